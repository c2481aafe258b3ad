"""Binary actions: 0 or 1.

Legend: F features, B buckets of all features together, H units of the first layer, T decisions.

A network observes the quantile rank of each feature, one of a few values. If all features are integers, the products of
the first layer are computed once, as a table `[B, H]`; a decision then adds F rows of it instead of multiplying. The
result equals the layer's up to rounding. The first layer is a dense one or, in a recurrent network, the gates of its
LSTM. Without one, the half of a module's decisions that have the buckets of an earlier one take its logits.
"""

import abc
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm import ir2vec, plugin_features
from compiler_opt.llvm.advisors import INLINING, rebuilds_default
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.lstm import LSTM
from compiler_opt.policies.policy import ConstantPolicy, Decider, FeaturePolicy, Policy, RandomPolicy, uniforms
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.spaces.action_space import ALL_FORMATS, ActionSpace
from compiler_opt.spaces.distributions import bernoulli_log_probs
from compiler_opt.spaces.learned_policy import GreedyDecisions, LearnedPolicy, NetworkInputs, outputs
from compiler_opt.spaces.native import NativeModel, native_blob
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.categorical import BinaryHead

_INT64 = np.dtype(np.int64)
_MAX_TABLES = 8
"""Cached tables: a run has one policy at a time, an evaluation a few."""


class Binary(ActionSpace):
    """Advice 0 or 1; the features are scalar integers, and optionally IR2Vec embeddings or features of our plugin."""

    takes_recurrence = True

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> "BinaryPolicy":
        return BinaryPolicy(weights, temperature=temperature, name=name, origin=origin)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "BinaryHead":
        from compiler_opt.spaces.heads.categorical import BinaryHead

        return BinaryHead(quantiles, compiler_features)

    def supported_features(self, feature_names: Sequence[str], compiler_features: Iterable[str]) -> tuple[str, ...]:
        """`feature_names`, and the embeddings or features of our plugin among those of the compiler."""
        names = tuple(compiler_features)
        return (*feature_names, *ir2vec.components(names), *plugin_features.among(names))

    def baselines(self) -> Mapping[str, Policy]:
        policies = (ConstantPolicy(0, "never"), ConstantPolicy(1, "always"), RandomPolicy(0.5, "random"))
        return {policy.name: policy for policy in policies}

    def native_form(self, weights: NetworkWeights, problem: str) -> bytes:
        del problem
        if ir2vec.components(weights.features):
            raise PolicyError(
                "policy network: observes IR2Vec embeddings, so it has no native form for plugins, which support only "
                f"integers; train one without {ir2vec.SETTING}"
            )
        return native_blob(weights)

    def formats(self, weights: NetworkWeights) -> tuple[str, ...]:
        if ir2vec.components(weights.features):
            return () if weights.margin or weights.is_recurrent else ("saved_model", "aot")
        lacks_default = bool(weights.margin) and not rebuilds_default(weights.features)
        if lacks_default or weights.is_recurrent or plugin_features.among(weights.features):
            # LLVM's own forms cannot ask for the default decision, forget earlier ones, and lack the plugin's features.
            return ("native", "cpp")
        return ALL_FORMATS

    @property
    def native_model(self) -> NativeModel:
        return NativeModel("BinaryModel()")


class BinaryPolicy(LearnedPolicy):
    """Takes the action with the higher of two logits, or samples one.

    Greedily, it takes the default decision where the logits differ by less than the margin, see `NetworkWeights`.
    """

    num_outputs = 2
    runs_in_development_mode = True
    takes_margin = True
    takes_recurrence = True

    @property
    def runs_in_plugin(self) -> bool:
        return True

    @property
    def plugin_features(self) -> tuple[str, ...]:
        return plugin_features.among(self.weights.features)

    @functools.cached_property
    def _sees_embeddings(self) -> bool:
        return bool(ir2vec.components(self.weights.features))

    def check_header(self, header: Header) -> None:
        """Raises PolicyError if a feature is missing or, unless it is an embedding, not an integer."""
        self.check(header.names)
        for spec in header.features:
            if self._sees_embeddings and ir2vec.components([spec.name]):
                continue
            if spec.dtype != np.int64 or spec.num_elements != 1:
                raise PolicyError(f"{self.origin}: expected scalar int64 features, found {spec.to_json()}")

    def start(self, header: Header, seed: int) -> Decider:
        self.check_header(header)
        decider = _NumberDecider if self._sees_embeddings else _IntegerDecider
        return decider(self, header, seed)

    def logged_log_probs(self, actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
        logits = logits.astype(np.float64)
        return bernoulli_log_probs(actions, (logits[:, 1] - logits[:, 0]) / self.temperature)

    def logits(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Logits of many decisions: features `[T]` by name to `[T, 2]` float32.

        Of a recurrent policy, they are the decisions of one module in order.
        """
        return outputs(self.weights, self.network_inputs(features).ranks)

    def greedy_decisions(self, inputs: NetworkInputs, default: np.ndarray) -> GreedyDecisions:
        off, on = outputs(self.weights, inputs.ranks).astype(np.float64).T
        difference = on - off
        advice = np.where(np.abs(difference) < self.weights.margin, default, difference > 0)
        return GreedyDecisions(advice, advice, lambda actions: bernoulli_log_probs(actions, difference))


@functools.lru_cache(_MAX_TABLES)
def _first_layer(policy: BinaryPolicy) -> np.ndarray:
    """`[B, H]` float32, the contribution of each bucket of each feature to the first layer."""
    encoder, weights = policy.encoder, policy.weights
    kernel, bias = (weights.kernels[0], weights.biases[0])
    if weights.lstm is not None:
        kernel, bias = weights.lstm.kernel, weights.lstm.bias
    rows = []
    for index, ranks in enumerate(np.split(encoder.bucket_ranks, encoder.first_buckets[1:])):
        inputs = expand(ranks[:, np.newaxis])
        rows.append(inputs @ kernel[len(TRANSFORMS) * index : len(TRANSFORMS) * (index + 1)])
    # The bias is in the first feature's rows, exactly one of which each decision adds.
    rows[0] = rows[0] + bias
    return np.ascontiguousarray(np.concatenate(rows), np.float32)


class _Memory:
    """The state of an LSTM in one compilation."""

    def __init__(self, lstm: LSTM):
        self._lstm = lstm
        self._state = lstm.zero_state()

    def __call__(self, gates: np.ndarray) -> np.ndarray:
        """The output `[U]` for the next decision, from the products of its inputs `[4 U]`."""
        self._state = self._lstm.step(gates, self._state)
        return self._state[: self._lstm.units]


class _BinaryDecider(Decider):
    def __init__(self, policy: BinaryPolicy, header: Header, seed: int):
        self._memory = None if policy.weights.lstm is None else _Memory(policy.weights.lstm)
        self._margin = policy.weights.margin
        self._default: Decider | None = None
        if policy.needs_default:
            assert INLINING.default_feature is not None
            self._default = FeaturePolicy(INLINING.default_feature, name=policy.name).start(header, seed)
        self._temperature = policy.temperature
        self._encoder: QuantileEncoder = policy.encoder
        self._uniform = uniforms(seed)
        self._scaled_logits: list[float] = []
        self._actions: list[int] = []

    @abc.abstractmethod
    def _difference(self, observation: bytes) -> float:
        """The logit of action 1, less that of action 0."""

    def __call__(self, observation: bytes) -> int:
        difference = self._difference(observation)
        if not self._temperature:
            if self._default is not None and abs(difference) < self._margin:
                return int(self._default(observation))
            return int(difference > 0)
        scaled = difference / self._temperature
        probability = 1 / (1 + math.exp(-scaled)) if scaled > -700 else 0.0
        action = int(self._uniform() < probability)
        self._scaled_logits.append(scaled)
        self._actions.append(action)
        return action

    def log_probs(self) -> np.ndarray | None:
        if not self._temperature:
            return None
        return bernoulli_log_probs(np.array(self._actions), np.array(self._scaled_logits))


class _IntegerDecider(_BinaryDecider):
    def __init__(self, policy: BinaryPolicy, header: Header, seed: int):
        super().__init__(policy, header, seed)
        self._table = _first_layer(policy)
        self._ones = np.ones(len(policy.weights.features), np.float32)
        columns = [header.names.index(name) for name in policy.weights.features]
        # Where it can be a slice, nothing is copied: 2 of the 42 us that a decision takes over the channel.
        in_order = columns == list(range(columns[0], columns[0] + len(columns)))
        self._columns: slice | np.ndarray = slice(columns[0], columns[-1] + 1) if in_order else np.array(columns)
        self._weights = policy.weights
        self._layers = list(zip(policy.weights.kernels, policy.weights.biases, strict=True))[1:]
        self._buckets = self._encoder.buckets_of_one()
        self._differences: dict[bytes, float] = {}  # by the bytes of the buckets

    def _difference(self, observation: bytes) -> float:
        rows = self._buckets(np.frombuffer(observation, _INT64)[self._columns])
        if self._memory is not None:
            return _difference(self._weights.dense(self._memory(self._first(rows))))
        key = rows.tobytes()
        difference = self._differences.get(key)
        if difference is None:
            difference = self._differences[key] = self._network(rows)
        return difference

    def _first(self, rows: np.ndarray) -> np.ndarray:
        # Their sum; as a product it takes a quarter of the time.
        activations: np.ndarray = self._ones.dot(self._table.take(rows, axis=0))
        return activations

    def _network(self, rows: np.ndarray) -> float:
        activations = self._first(rows)
        for kernel, bias in self._layers:
            np.maximum(activations, 0, out=activations)
            activations = activations.dot(kernel)
            activations += bias
        return _difference(activations)


class _NumberDecider(_BinaryDecider):
    """For features that need not be integers."""

    def __init__(self, policy: BinaryPolicy, header: Header, seed: int):
        super().__init__(policy, header, seed)
        self._weights = policy.weights
        # By type: the indices of the features, and the places of their bytes in an observation.
        self._gathered: list[tuple[np.dtype, np.ndarray, np.ndarray]] = []
        known = record_dtype(header.features).fields
        assert known is not None
        dtypes = [known[name][0].base for name in self._weights.features]
        offsets = np.array([known[name][1] for name in self._weights.features])
        for dtype in dict.fromkeys(dtypes):
            places = np.array([place for place, each in enumerate(dtypes) if each == dtype])
            self._gathered.append((dtype, places, np.add.outer(offsets[places], np.arange(dtype.itemsize)).reshape(-1)))

    def _difference(self, observation: bytes) -> float:
        content = np.frombuffer(observation, np.uint8)
        values = np.empty(len(self._weights.features))
        for dtype, places, sources in self._gathered:
            values[places] = content[sources].view(dtype)
        ranks = self._encoder.ranks(values)
        if self._memory is None:
            return _difference(outputs(self._weights, ranks))
        assert self._weights.lstm is not None
        gates = expand(ranks) @ self._weights.lstm.kernel + self._weights.lstm.bias
        return _difference(self._weights.dense(self._memory(gates)))


def _difference(logits: np.ndarray) -> float:
    off, on = logits.tolist()
    return float(on - off)
