"""Behavioural cloning: supervised learning of another policy's decisions, such as those of the default heuristic.

Legend: N examples (decisions of a trace), R sequences of T of them (see `rl.truncated_sequences`), P sequences and
B examples of a minibatch, S minibatches of an epoch.

Labels are smoothed: a policy that is certain of every decision never explores, which leaves reinforcement learning
nothing to compare. A teacher gives its probabilities as labels instead, which say what matters to it and what does not
(Hinton, Vinyals and Dean, *Distilling the Knowledge in a Neural Network*, 2015).
"""

import dataclasses
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.sampling import project_weights
from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import duration_text
from compiler_opt.rl.config import POLICY_DIR, BehavioralCloningConfig
from compiler_opt.rl.history import History
from compiler_opt.rl.learner import gradient_steps, minibatch_order, save_run_policy
from compiler_opt.rl.trace_files import Trace
from compiler_opt.rl.truncated_sequences import sequences_per_step, truncate
from compiler_opt.rl.unfinished_policy import how_far_kept, is_finished, save_unfinished_policy
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.learned_policy import LearnedPolicy


@dataclasses.dataclass(frozen=True)
class Examples:
    """N decisions to learn from or to measure by.

    Attributes:
      observations: by name `[N, ...]`, see `Head.observe`; for recurrent networks also `networks.FIRST`.
      actions: `[N]`, see `Head.actions`.
      num_modules: modules that they come from.
      weights: `[N]` float32, of mean 1, how much each counts in the loss; None if all count alike.
      labels: `[N, ...]` float32, what is learned, see `Head.labels`; None for the actions, smoothed.
    """

    observations: Mapping[str, np.ndarray]
    actions: np.ndarray
    num_modules: int
    weights: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.actions)


@dataclasses.dataclass(frozen=True)
class Cloned:
    """A cloned policy.

    Attributes:
      weights: of the epoch with the lowest loss on the held-out modules.
      best: metrics of that epoch.
    """

    weights: NetworkWeights
    best: Mapping[str, float]


def held_out_modules(projects: Mapping[str, str], fraction: float, seed: int) -> frozenset[str]:
    """A share of the modules, at least one; depends on nothing but names and seed.

    The modules of whole projects, as many as the share allows: a policy is for projects that it has not seen. Where
    even one project would be more, the modules of all projects are drawn from.

    Args:
      projects: the project of each module, by their names.
      fraction: share of the modules.
      seed: of the draw.
    """
    wanted = max(1, round(fraction * len(projects)))
    sizes = Counter(projects.values())
    drawn: set[str] = set()
    for project in _shuffled(sizes, seed):
        if len(sizes) > 1 and sum(sizes[each] for each in drawn) + sizes[project] <= wanted:
            drawn.add(project)
    if drawn:
        return frozenset(module for module, project in projects.items() if project in drawn)
    return frozenset(_shuffled(projects, seed)[:wanted])


def _shuffled(names: Iterable[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogateescape")).digest())


class Teacher:
    """A policy whose decisions are cloned in place of those that a trace records."""

    def __init__(self, policy: LearnedPolicy, space: ActionSpace, trace: Trace):
        """The trace has the policy's features."""
        weights = policy.weights
        self.weights = weights
        self._head = space.head(dict(zip(weights.features, weights.quantiles, strict=True)), trace.features)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the compiler's features that it observes."""
        return self._head.compiler_features

    def decide(self, features: Mapping[str, np.ndarray], is_first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Its decisions, see `Head.taught`; `is_first` `[N]` says which decisions begin a context."""
        observations = self._head.observe(features)
        if self.weights.is_recurrent:
            observations[networks.FIRST] = is_first
        return self._head.taught(self.weights, observations)


def load_examples(
    trace: Trace,
    head: Head,
    config: BehavioralCloningConfig,
    on_decisions: Callable[[int], object] = lambda count: None,
    *,
    is_recurrent: bool = False,
    teacher: Teacher | None = None,
) -> tuple[Examples, Examples]:
    """Reads a trace as training examples and held-out examples, see `split_by_module`.

    Args:
      trace: of the decisions.
      head: encodes them.
      config: how many to read, and how to split them.
      on_decisions: called with the number of decisions read since the last call, for progress bars.
      is_recurrent: whether the examples are for a recurrent network, which needs all decisions of a module.
      teacher: decides in place of what the trace says.

    Raises:
      PolicyError: the head cannot clone such decisions.
      ProtocolError: the trace is damaged, lacks a feature, or holds fewer than two modules.
    """
    head.check_examples(trace.features, trace.advice)
    rng = np.random.default_rng(config.seed)
    share = config.max_decisions / max(1, trace.num_decisions)
    observations: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    actions: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    names: list[str] = []
    projects: dict[str, str] = {}
    lengths: list[int] = []
    observed_by_teacher = () if teacher is None else teacher.features
    for batch in trace.batches(tuple(dict.fromkeys((*head.compiler_features, *observed_by_teacher)))):
        on_decisions(len(batch))
        kept = np.ones(len(batch), bool)
        if share < 1:
            kept = (
                np.repeat(rng.random(len(batch.modules)) < share, batch.lengths)
                if is_recurrent
                else (rng.random(len(batch)) < share)
            )
        for name, observed in head.observe({name: values[kept] for name, values in batch.features.items()}).items():
            observations[name].append(observed)
        owners = np.repeat(np.arange(len(batch.modules)), batch.lengths)
        is_first = np.diff(owners, prepend=-1).astype(np.float32)
        if teacher is None:
            actions.append(head.actions(batch.action[kept]))
        else:
            decided, taught = teacher.decide(batch.features, is_first)
            actions.append(decided[kept])
            labels.append(taught[kept])
        names.extend(batch.modules)
        projects.update(zip(batch.modules, batch.projects, strict=True))
        if is_recurrent:
            observations[networks.FIRST].append(is_first[kept])
        lengths.extend(np.bincount(owners[kept], minlength=len(batch.modules)).tolist())
    if len(set(names)) < 2:
        raise ProtocolError(f"{trace.path}: expected at least 2 modules, one of them held out, found {len(set(names))}")
    learned = np.concatenate(labels) if labels else None
    parts = split_by_module(observations, np.concatenate(actions), names, lengths, projects, config, labels=learned)
    if not all(len(part) for part in parts):
        raise ProtocolError(f"{trace.path}: too few decisions to hold some out")
    return parts


def split_by_module(
    observations: Mapping[str, Sequence[np.ndarray]],
    actions: np.ndarray,
    modules: Sequence[str],
    lengths: Sequence[int],
    projects: Mapping[str, str],
    config: BehavioralCloningConfig,
    *,
    labels: np.ndarray | None = None,
) -> tuple[Examples, Examples]:
    """Splits examples into training examples and held-out examples, which come from different modules.

    They come from different projects if the modules of a project are few enough; see `held_out_modules`.

    Args:
      observations: by name, parts that concatenate to `[N, ...]`.
      actions: `[N]`.
      modules: names of the modules that successive runs of decisions come from; names may recur.
      lengths: decisions of each run.
      projects: the project of each module, by their names.
      config: how to split them.
      labels: `[N, ...]`, see `Examples`.
    """
    held_out = held_out_modules(projects, config.holdout_fraction, config.seed)
    is_held_out = np.repeat([name in held_out for name in modules], lengths)
    columns = {name: np.concatenate(parts) for name, parts in observations.items()}

    def part(chosen: np.ndarray, num_modules: int) -> Examples:
        counts = np.bincount(np.repeat(np.arange(len(modules)), lengths)[chosen], minlength=len(modules))
        decisions: Counter[str] = Counter()
        for name, count in zip(modules, counts.tolist(), strict=True):
            decisions[projects[name]] += count
        by_project = project_weights(decisions, config.project_balance)
        weights = np.repeat([by_project[projects[name]] for name in modules], counts).astype(np.float32)
        values = {name: column[chosen] for name, column in columns.items()}
        return Examples(values, actions[chosen], num_modules, weights, None if labels is None else labels[chosen])

    return part(~is_held_out, len(set(modules) - held_out)), part(is_held_out, len(held_out))


class Cloner:
    """Owns network and optimiser."""

    def __init__(self, head: Head, action_name: str, network: NetworkConfig, config: BehavioralCloningConfig):
        """Creates the network for advice of a name, such as `inlining_decision`."""
        self._head = head
        self._config = config
        self._network = network
        self._actor = head.actor(action_name, network, config.seed)
        self._optimizer = tf.keras.optimizers.Adam(config.learning_rate)
        self._epoch = tf.function(self._train_epoch, reduce_retracing=True, autograph=False)

    def clone(
        self,
        training: Examples,
        held_out: Examples,
        on_epoch: Callable[[Mapping[str, float]], None] = lambda entry: None,
        on_best: Callable[[Cloned], None] = lambda cloned: None,
    ) -> Cloned:
        """Learns until the loss on the held-out examples stops falling.

        `on_epoch` gets the metrics of each epoch, `on_best` the policy of each epoch that is better than all before.
        """
        config = self._config
        rng = np.random.default_rng(config.seed)
        observations = {name: tf.constant(values) for name, values in training.observations.items()}
        labels = tf.constant(self._labels(training))
        examples_weights = tf.ones(len(training)) if training.weights is None else tf.constant(training.weights)
        best: dict[str, float] = {}
        best_weights = self.weights()
        for epoch in range(1, config.num_epochs + 1):
            start_s = time.monotonic()
            self._optimizer.learning_rate.assign(config.learning_rate * 0.1 ** ((epoch - 1) / config.num_epochs))
            sequences = truncate(self.weights(), training.observations, self._network, rng)
            order = minibatch_order(len(sequences), sequences_per_step(config.batch_size, self._network), rng)  # [S, P]
            parts = (tf.constant(sequences.decisions), tf.constant(sequences.states), tf.constant(order))
            loss = float(self._epoch(observations, labels, examples_weights, *parts))
            weights = self.weights()
            entry = {
                "iteration": epoch,
                "training_loss": loss,
                **self._head.cloning_metrics(weights, held_out.observations, held_out.actions, self._labels(held_out)),
                "elapsed_s": time.monotonic() - start_s,
            }
            on_epoch(entry)
            if not best or entry["loss"] < best["loss"]:
                best, best_weights = entry, weights
                on_best(Cloned(weights, entry))
            elif epoch - best["iteration"] >= config.patience:
                break
        return Cloned(best_weights, best)

    def weights(self) -> NetworkWeights:
        """The network's current weights."""
        return self._head.to_weights(self._actor)

    def _labels(self, examples: Examples) -> np.ndarray:
        """`[N, ...]` float32."""
        if examples.labels is not None:
            return examples.labels
        return self._head.labels(examples.observations, examples.actions, self._config.label_smoothing)

    def _train_epoch(
        self,
        observations: Mapping[str, tf.Tensor],
        labels: tf.Tensor,
        weights: tf.Tensor,
        decisions: tf.Tensor,
        states: tf.Tensor,
        order: tf.Tensor,
    ) -> tf.Tensor:
        """Does the steps of an epoch.

        Args:
          observations: `[N, ...]` by name.
          labels: `[N, ...]`.
          weights: `[N]`.
          decisions: `[R, T]`, those of each sequence, see `Sequences`.
          states: `[R, 2 U]`, before each sequence.
          order: indices `[S, P]` of the sequences of minibatches.

        Returns:
          the mean loss before the steps.
        """

        def loss(chosen: tf.Tensor) -> tf.Tensor:
            batch = tf.reshape(tf.gather(decisions, chosen), [-1])  # [B]
            observation = {name: tf.gather(values, batch) for name, values in observations.items()}
            if self._network.lstm_units:
                observation[networks.STATE] = tf.repeat(tf.gather(states, chosen), decisions.shape[1], axis=0)
            step_type = tf.ones(tf.shape(batch), tf.int32)
            distribution, _ = self._actor(observation, step_type=step_type, network_state=())
            losses = self._head.cloning_loss(distribution, tf.gather(labels, batch))  # [B]
            return tf.reduce_mean(tf.gather(weights, batch) * losses)

        return gradient_steps(loss, order, self._optimizer, self._actor.trainable_variables)


def clone(
    root_dir: Path,
    trace_paths: Sequence[Path],
    problem: Problem,
    quantiles: Mapping[str, np.ndarray],
    network: NetworkConfig,
    config: BehavioralCloningConfig,
    echo: Callable[[str], object],
    say: Callable[[str], object],
    taught_by: LearnedPolicy | None = None,
) -> Path:
    """Clones a trace under a vocabulary, see `pipeline.clone_default`; returns the policy's folder."""
    trace = Trace(*trace_paths)
    head = problem.decision.head(quantiles, trace.features)
    teacher = None if taught_by is None else Teacher(taught_by, problem.decision.action_space, trace)
    with progress_bar(total=trace.num_decisions, description="reading", unit="decision", unit_scale=True) as progress:
        try:
            training, held_out = load_examples(
                trace, head, config, progress.update, is_recurrent=network.lstm_units > 0, teacher=teacher
            )
        except PolicyError as error:
            raise PolicyError(f"{trace.path}: {error}") from error
    say(f"{len(training)} decisions of {training.num_modules} modules; {held_out.num_modules} modules held out")
    # An earlier policy of this folder stays until there is another one that is finished.
    keeps_earlier = is_finished(root_dir)
    history = History(root_dir, 0)
    elapsed_s = 0.0

    def record(entry: Mapping[str, float]) -> None:
        nonlocal elapsed_s
        history.add(entry)
        epoch = int(entry["iteration"])
        elapsed_s += entry["elapsed_s"]
        say(
            f"epoch {epoch} of {config.num_epochs}: loss {entry['training_loss']:.4f}, held out {entry['loss']:.4f}, "
            f"accuracy {entry['accuracy']:.2%} (majority class: {entry['majority_rate']:.2%}), "
            f"at most {duration_text(elapsed_s / epoch * (config.num_epochs - epoch))} left"
        )

    def described(cloned: Cloned) -> NetworkWeights:
        metadata = {
            "problem": problem.name,
            "toolchain": trace.about.get("toolchain"),
            "corpus": trace.about.get("corpus"),
            **ProblemConfig.from_json(trace.about).to_json(),
            "method": "behavioral cloning",
            "examples": len(training),
            "accuracy": cloned.best["accuracy"],
            "majority_rate": cloned.best["majority_rate"],
            "seed": config.seed,
            **({} if teacher is None else {"teacher": teacher.weights.checksum()}),
        }
        return dataclasses.replace(cloned.weights, metadata=metadata)

    def keep(cloned: Cloned) -> None:
        if not keeps_earlier:
            how_far = f"{cloned.best['iteration']} of {config.num_epochs} epochs"
            save_unfinished_policy(root_dir, described(cloned), how_far)

    try:
        cloned = Cloner(head, trace.advice.name, network, config).clone(training, held_out, record, keep)
        weights, space = described(cloned), problem.decision.action_space
        policy_dir = save_run_policy(root_dir, weights, space, trace.advice.name, trace.features)
    except KeyboardInterrupt:
        kept = how_far_kept(root_dir / POLICY_DIR)
        what = "that of an earlier cloning" if keeps_earlier else f"the best so far, after {kept}"
        policy = f"the policy in {root_dir / POLICY_DIR} is {what}" if keeps_earlier or kept else "no policy yet"
        raise KeyboardInterrupt(f"{policy}; the same command starts again from the first epoch") from None
    echo(
        f"{policy_dir}: accuracy {cloned.best['accuracy']:.2%} on held-out modules, "
        f"{cloned.best['majority_rate']:.2%} by always choosing the majority class"
    )
    return policy_dir
