"""Behavioural cloning: a policy that decides as the compiler's own heuristic does, for reinforcement learning to go on.

Legend: N examples (decisions of a trace), F features, B of a minibatch, S minibatches of an epoch, A actions.

It is plain supervised classification, so the loop is plain too. The one thing special is that labels are smoothed: a
policy that is certain of every decision never tries another, and reinforcement learning has nothing to compare.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.policies.network import NetworkPolicy, NetworkWeights
from compiler_opt.rl import networks
from compiler_opt.rl.config import BehavioralCloningConfig, NetworkConfig
from compiler_opt.rl.trace_files import Trace

NUM_ACTIONS = 2


@dataclasses.dataclass(frozen=True)
class Examples:
    """Decisions to learn from, N of them.

    Attributes:
      values: `[N, F]` int64.
      actions: `[N]` int64.
      num_modules: how many modules they come from.
    """

    values: np.ndarray
    actions: np.ndarray
    num_modules: int

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def majority_rate(self) -> float:
        """The accuracy of always giving the more frequent answer."""
        inlined = float(self.actions.mean())
        return max(inlined, 1 - inlined)


@dataclasses.dataclass(frozen=True)
class Cloned:
    """What was learned.

    Attributes:
      weights: of the epoch that was best on the held-out modules.
      history: numbers by name, one entry per epoch.
      best: the entry of that epoch.
    """

    weights: NetworkWeights
    history: tuple[Mapping[str, float], ...]
    best: Mapping[str, float]


def held_out_modules(modules: Iterable[str], fraction: float, seed: int) -> frozenset[str]:
    """A share of the modules, at least one; the same for the same names and seed."""
    ordered = sorted(set(modules), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return frozenset(ordered[: max(1, round(fraction * len(ordered)))])


def load_examples(
    trace: Trace,
    features: Sequence[str],
    config: BehavioralCloningConfig,
    on_decisions: Callable[[int], object] = lambda count: None,
) -> tuple[Examples, Examples]:
    """Reads a trace into examples to learn from and examples to measure by, which come from different modules.

    Args:
      trace: the decisions.
      features: those that the policy sees, in its order.
      config: says how to split them.
      on_decisions: called with the number of decisions read since the last call, for progress bars.

    Raises:
      PolicyError: the trace's decisions are not between yes and no, or a feature is not one integer.
      ProtocolError: the trace is damaged, lacks a feature, or holds fewer than two modules.
    """
    if trace.advice.dtype.kind == "f":
        raise PolicyError(f"{trace.path}: {trace.advice.name} is a number and no choice; it cannot be cloned like this")
    for spec in trace.features:
        if spec.name in features and (spec.shape or spec.dtype.kind == "f"):
            raise PolicyError(
                f"{trace.path}: expected the feature {spec.name} to be one integer, found {spec.to_json()}"
            )
    rng = np.random.default_rng(config.seed)
    share = config.max_decisions / max(1, trace.num_decisions)
    values: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    names: list[str] = []
    lengths: list[int] = []
    for batch in trace.batches(features):
        on_decisions(len(batch))
        kept = np.ones(len(batch), bool) if share >= 1 else rng.random(len(batch)) < share
        values.append(np.stack([batch.features[name] for name in features], axis=-1)[kept])
        actions.append(batch.action[kept])
        names.extend(batch.modules)
        owners = np.repeat(np.arange(len(batch.modules)), batch.lengths)
        lengths.extend(np.bincount(owners[kept], minlength=len(batch.modules)).tolist())
    if len(set(names)) < 2:
        raise ProtocolError(
            f"{trace.path}: expected at least 2 modules, one of which to measure by, found {len(set(names))}"
        )
    all_actions = np.concatenate(actions)
    if all_actions.min() < 0 or all_actions.max() >= NUM_ACTIONS:
        raise PolicyError(
            f"{trace.path}: expected decisions of 0 or 1, found {all_actions.min()} to {all_actions.max()}"
        )
    held_out = held_out_modules(names, config.holdout_fraction, config.seed)
    is_held_out = np.repeat([name in held_out for name in names], lengths)
    all_values = np.concatenate(values)
    parts = [
        Examples(all_values[chosen], all_actions[chosen], num_modules)
        for chosen, num_modules in (
            (~is_held_out, len(set(names)) - len(held_out)),
            (is_held_out, len(held_out)),
        )
    ]
    if not all(len(part) for part in parts):
        raise ProtocolError(f"{trace.path}: too few decisions to learn from some and measure by others")
    return parts[0], parts[1]


class Cloner:
    """Owns network and optimiser."""

    def __init__(
        self,
        quantiles: Mapping[str, np.ndarray],
        action_name: str,
        network: NetworkConfig,
        config: BehavioralCloningConfig,
    ):
        """Makes the network.

        Args:
          quantiles: the vocabulary: features, in order, with their quantiles.
          action_name: the advice's name, such as `inlining_decision`.
          network: its shape.
          config: how it learns.
        """
        self._features = tuple(quantiles)
        self._quantiles = tuple(quantiles.values())
        self._config = config
        action = networks.action_spec(action_name, NUM_ACTIONS)
        self._actor = networks.actor_network(self._features, self._quantiles, action, network, config.seed)
        self._optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self._epoch = tf.function(self._train_epoch, reduce_retracing=True, autograph=False)

    def clone(
        self,
        training: Examples,
        held_out: Examples,
        on_epoch: Callable[[Mapping[str, float]], None] = lambda entry: None,
    ) -> Cloned:
        """Learns until it gets no better on the held-out examples.

        Args:
          training: learned from.
          held_out: measured by.
          on_epoch: called with each epoch's numbers.
        """
        config = self._config
        rng = np.random.default_rng(config.seed)
        values, actions = tf.constant(training.values), tf.constant(training.actions, tf.int64)
        batch_size = min(config.batch_size, len(training))
        history: list[dict[str, float]] = []
        best: dict[str, float] = {}
        best_weights = self.weights()
        for epoch in range(1, config.num_epochs + 1):
            start_s = time.monotonic()
            self._optimizer.learning_rate.assign(config.learning_rate * 0.1 ** ((epoch - 1) / config.num_epochs))
            # [S, B]: a remainder waits for another epoch, in which it is another one.
            order = rng.permutation(len(training))[: len(training) // batch_size * batch_size].reshape(-1, batch_size)
            loss = float(self._epoch(values, actions, tf.constant(order)))
            weights = self.weights()
            entry = {
                "iteration": epoch,
                "training_loss": loss,
                **self._measure(weights, held_out),
                "elapsed_s": time.monotonic() - start_s,
            }
            history.append(entry)
            on_epoch(entry)
            if not best or entry["loss"] < best["loss"]:
                best, best_weights = entry, weights
            elif epoch - best["iteration"] >= config.patience:
                break
        return Cloned(best_weights, tuple(history), best)

    def weights(self, metadata: Mapping[str, Any] | None = None) -> NetworkWeights:
        """What the network is now, in the form that decides."""
        return networks.to_weights(self._actor, self._features, self._quantiles, metadata)

    def _train_epoch(self, values: tf.Tensor, actions: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        """`[N, F]`, `[N]` and `[S, B]` to the mean loss."""

        def step(total: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
            return total + self._train_step(tf.gather(values, batch), tf.gather(actions, batch))

        total: tf.Tensor = tf.foldl(step, order, initializer=tf.constant(0.0))
        return total / tf.cast(tf.shape(order)[0], tf.float32)

    def _train_step(self, values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """`[B, F]` and `[B]` to the loss before the step."""
        observation = dict(zip(self._features, tf.unstack(values, axis=-1), strict=True))
        labels = _smoothed(actions, self._config.label_smoothing)
        with tf.GradientTape() as tape:
            distribution, _ = self._actor(observation, step_type=tf.ones_like(actions, tf.int32), network_state=())
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, distribution.logits))
        variables = self._actor.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def _measure(self, weights: NetworkWeights, examples: Examples) -> dict[str, float]:
        """What the policy is worth on examples, as it will decide: in numpy."""
        columns = {name: examples.values[:, index] for index, name in enumerate(self._features)}
        logits = NetworkPolicy(weights).logits(columns).astype(np.float64)
        margin = logits[:, 1] - logits[:, 0]
        signs = 2.0 * examples.actions - 1
        smoothing = self._config.label_smoothing
        loss = (1 - smoothing) * np.logaddexp(0, -signs * margin) + smoothing * np.logaddexp(0, signs * margin)
        advised = margin > 0
        return {
            "loss": float(loss.mean()),
            "accuracy": float((advised == (examples.actions == 1)).mean()),
            "majority_rate": examples.majority_rate,
            "advised_rate": float(advised.mean()),
            "default_rate": float(examples.actions.mean()),
        }


def _smoothed(actions: tf.Tensor, label_smoothing: float) -> tf.Tensor:
    """`[B]` to `[B, A]`: all but `label_smoothing` of the probability on what was decided."""
    return tf.one_hot(actions, NUM_ACTIONS, on_value=1 - label_smoothing, off_value=label_smoothing)
