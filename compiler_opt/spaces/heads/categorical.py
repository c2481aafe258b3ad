"""The heads of discrete action spaces: `Binary` and `MaskedCategorical`.

Legend: N decisions, F features, A actions to choose from, C candidates.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.specs import tensor_spec

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.llvm.advisors import REBUILT_DEFAULT, rebuilds_default
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.spaces.candidates import CandidateInputs, PortableInputs
from compiler_opt.spaces.distributions import categorical_entropy, log_softmax, smoothed_labels
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.tensor_spec import TensorSpec


class CategoricalHead(Head):
    """One of A actions, which are the advice. By default all of them are legal.

    Attributes:
      num_actions: A.
      noop_action: the action that changes nothing: not to inline, to evict nothing.
    """

    num_actions: int
    noop_action: int

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which actions may be chosen, `[N, A]` bool."""
        return np.ones((len(next(iter(observations.values()))), self.num_actions), bool)

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Logits in numpy as the policy will decide, `[N, A]` float64; minus infinity for illegal actions.

        Of a recurrent network, the observations are whole modules, and `FIRST` says where each begins.
        """
        return outputs(weights, observations[networks.RANKS], observations.get(networks.FIRST)).astype(np.float64)

    def actions(self, advice: np.ndarray) -> np.ndarray:
        if len(advice) and (advice.min() < 0 or advice.max() >= self.num_actions):
            raise PolicyError(
                f"expected decisions of 0 to {self.num_actions - 1}, found {advice.min()} to {advice.max()}"
            )
        return advice

    def action_spec(self, action_name: str) -> tensor_spec.BoundedTensorSpec:
        return tensor_spec.BoundedTensorSpec((), tf.int64, 0, self.num_actions - 1, action_name)

    def evaluate_actions(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        log_probs = log_softmax(self.logits(weights, observations))
        return log_probs[np.arange(len(actions)), actions], categorical_entropy(log_probs)

    def labels(self, observations: Mapping[str, np.ndarray], actions: np.ndarray, smoothing: float) -> np.ndarray:
        return smoothed_labels(actions, self.legal(observations), smoothing)

    def taught(self, teacher: NetworkWeights, observations: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        log_probs = log_softmax(self.logits(teacher, observations))
        return log_probs.argmax(axis=-1), np.exp(log_probs).astype(np.float32)

    def cloning_loss(self, distribution: tfp.distributions.Distribution, labels: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(labels, distribution.logits)

    def cloning_metrics(
        self, weights: NetworkWeights, observations: Mapping[str, np.ndarray], actions: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        log_probs = log_softmax(self.logits(weights, observations))
        # The label of an illegal action is 0, and so is its loss.
        loss = -(labels * np.where(labels > 0, log_probs, 0.0)).sum(axis=-1)
        advised = log_probs.argmax(axis=-1)
        return {
            "loss": float(loss.mean()),
            "accuracy": float((advised == actions).mean()),
            "majority_rate": float(np.bincount(actions).max() / len(actions)),
            "advised_rate": float((advised != self.noop_action).mean()),
            "default_rate": float((actions != self.noop_action).mean()),
        }

    def actor(self, action_name: str, config: NetworkConfig, seed: int) -> network.DistributionNetwork:
        return networks.categorical_actor(self.observation_spec(), self.action_spec(action_name), config, seed)

    def advice(self, outputs: tf.Tensor, observations: Mapping[str, tf.Tensor], margin: float) -> tf.Tensor:
        del observations, margin
        return tf.argmax(outputs, axis=-1, output_type=tf.int64)


class BinaryHead(CategoricalHead):
    """Advice 0 or 1, from scalar integers and elements of embeddings."""

    num_actions = 2
    noop_action = 0

    def __init__(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec] = ()):
        super().__init__(quantiles, compiler_features)
        for name in self.features:
            if ir2vec.tensor_and_place(name) is None:
                self._dtypes.setdefault(name, np.dtype(np.int64))

    def check_examples(self, features: Sequence[TensorSpec], advice: TensorSpec) -> None:
        super().check_examples(features, advice)
        for spec in features:
            is_odd = spec.shape or (spec.dtype.kind == "f" and not ir2vec.components([spec.name]))
            if spec.name in self.features and is_odd:
                raise PolicyError(f"expected the feature {spec.name} to be one integer, found {spec.to_json()}")

    def observe_tensors(self, tensors: Mapping[str, tf.Tensor], ranks: networks.Ranks) -> dict[str, tf.Tensor]:
        observed = super().observe_tensors(tensors, ranks)
        if rebuilds_default(self.features):
            cost, threshold = (tensors[name] for name in REBUILT_DEFAULT)
            observed[networks.DEFAULT] = cost < threshold
        return observed

    def advice(self, outputs: tf.Tensor, observations: Mapping[str, tf.Tensor], margin: float) -> tf.Tensor:
        chosen = super().advice(outputs, observations, margin)
        if not margin:
            return chosen
        is_uncertain = tf.abs(outputs[..., 1] - outputs[..., 0]) < margin
        return tf.where(is_uncertain, tf.cast(observations[networks.DEFAULT], tf.int64), chosen)


class MaskedCategoricalHead(CategoricalHead):
    """Advice is the position of a candidate; the last one is the no-op.

    Observations are the candidates' quantile ranks `[N, C, F]` float32 and `legal` `[N, C]` float32, 1 or 0.
    """

    def __init__(
        self, quantiles: Mapping[str, np.ndarray], inputs: CandidateInputs, compiler_features: Sequence[TensorSpec]
    ):
        """Raises PolicyError when the vocabulary is not for these inputs, or the compiler sends no mask."""
        super().__init__(quantiles, compiler_features)
        places = {spec.num_elements for spec in compiler_features if spec.name == inputs.mask}
        if len(places) != 1:
            raise PolicyError(f"the compiler does not send {inputs.mask!r}, which says which candidates are legal")
        if self.features != inputs.names:
            odd = sorted(set(self.features) ^ set(inputs.names))
            raise PolicyError(f"vocabulary: is for other inputs than this problem's: {', '.join(odd) or 'order'}")
        self.inputs = inputs
        self._specs = {spec.name: spec for spec in compiler_features}
        self._used = inputs.used([spec.name for spec in compiler_features])
        self.num_actions = places.pop()
        self.noop_action = self.num_actions - 1

    @property
    def compiler_features(self) -> tuple[str, ...]:
        return self._used

    def observe(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            networks.RANKS: self.encoder.ranks(self.inputs.values(features)),
            networks.LEGAL: self.inputs.legal(features).astype(np.float32),
        }

    def observation_spec(self) -> dict[str, tf.TensorSpec]:
        return {
            networks.RANKS: tf.TensorSpec((self.num_actions, len(self.features)), tf.float32, networks.RANKS),
            networks.LEGAL: tf.TensorSpec((self.num_actions,), tf.float32, networks.LEGAL),
        }

    def legal(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return observations[networks.LEGAL] > 0

    def logits(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        scores = outputs(weights, observations[networks.RANKS])[..., 0].astype(np.float64)
        return np.where(self.legal(observations), scores, -np.inf)

    def encoding(self) -> tf.keras.layers.Layer:
        return networks.MeanOfLegal()

    def compiler_tensors(self) -> dict[str, tf.TensorSpec]:
        if missing := [name for name in self.inputs.features if name not in self._specs]:
            raise PolicyError(f"policy: needs features that this compiler does not send: {', '.join(missing)}")
        sizes = {name: self._specs[name].num_elements for name in self.inputs.features}
        return {
            name: tf.TensorSpec((size,) if size > 1 else (), tf.as_dtype(self._specs[name].dtype), name)
            for name, size in sizes.items()
        }

    def observe_tensors(self, tensors: Mapping[str, tf.Tensor], ranks: networks.Ranks) -> dict[str, tf.Tensor]:
        if not isinstance(self.inputs, PortableInputs):
            raise PolicyError(f"{type(self.inputs).__name__}: these inputs cannot be computed in TensorFlow")
        values = self.inputs.compute(tensors, networks.TENSORFLOW)
        legal = networks.TENSORFLOW.rows(tensors[self.inputs.mask]) != 0
        return {networks.RANKS: ranks(tf.unstack(values, axis=-1)), networks.LEGAL: tf.cast(legal, tf.float32)}

    def advice(self, outputs: tf.Tensor, observations: Mapping[str, tf.Tensor], margin: float) -> tf.Tensor:
        # Whatever the weights are, no legal candidate's score is lower.
        return super().advice(networks.masked_logits(outputs, observations, outputs.dtype.min), observations, margin)
