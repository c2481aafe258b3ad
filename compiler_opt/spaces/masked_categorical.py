"""A trained network that chooses among candidates: the same network scores each of them, and only legal ones count.

Legend: F inputs of a candidate, C candidates (places) of a decision, T decisions.

How many places there are the compiler says. An illegal candidate has probability 0 whatever the weights are, and when
one alone is legal it is chosen.
"""

import abc
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider, UsesFeatures, uniforms
from compiler_opt.policies.weights import LearnedPolicy, NetworkWeights, outputs


class CandidateInputs(UsesFeatures, abc.ABC):
    """What a network sees of candidates, made of what the compiler sends."""

    mask: str
    """The feature, one of those, whose elements are the C places."""

    names: tuple[str, ...]
    """The F inputs, in order."""

    default_input: str | None = None
    """Which of them is 1 for what the compiler's own heuristic would choose, else 0; None when that is not known."""

    @abc.abstractmethod
    def legal(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which candidates may be chosen; arrays by name as the compiler sends them to `[T, C]` bool."""

    @abc.abstractmethod
    def values(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """`[T, C, F]` float32, finite."""


class CandidatePolicy(LearnedPolicy):
    """Chooses the candidate with the highest score, or draws one."""

    num_outputs = 1

    def __init__(
        self,
        weights: NetworkWeights,
        inputs: CandidateInputs,
        *,
        temperature: float = 0.0,
        name: str = "policy",
        origin: str = "",
    ):
        super().__init__(weights, temperature=temperature, name=name, origin=origin)
        if weights.features != inputs.names:
            odd = sorted(set(weights.features) ^ set(inputs.names))
            raise PolicyError(
                f"{self._origin}: expected a network over the inputs of this problem; they differ in "
                f"{', '.join(odd) or 'order'}: train it again"
            )
        self.inputs = inputs

    def check(self, feature_names: Sequence[str]) -> None:
        self._require(self.inputs.features, feature_names)

    def start(self, header: Header, seed: int) -> Decider:
        self.check(header.names)
        return _Choosing(self.weights, self.inputs, header, seed, self.temperature)


class _Scores:
    """All candidates of a decision at once."""

    def __init__(self, weights: NetworkWeights):
        self._weights = weights
        self._lengths = np.array([len(column) for column in weights.quantiles], np.float32)
        self._quantiles = np.full((len(weights.quantiles), int(self._lengths.max())), np.inf)
        for row, column in zip(self._quantiles, weights.quantiles, strict=True):
            row[: len(column)] = column

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """`[C, F]` to `[C]` float64."""
        reached = (values[:, :, np.newaxis] >= self._quantiles).sum(axis=-1)
        return outputs(self._weights, (reached / self._lengths).astype(np.float32))[:, 0].astype(np.float64)


class _Choosing(Decider):
    def __init__(self, weights: NetworkWeights, inputs: CandidateInputs, header: Header, seed: int, temperature: float):
        self._scores = _Scores(weights)
        self._inputs = inputs
        self._used = inputs.used(header.names)
        self._dtype = record_dtype(header.features)
        self._temperature = temperature
        self._uniform = uniforms(seed)
        self._log_probs: list[float] = []

    def __call__(self, observation: bytes) -> int:
        record = np.frombuffer(observation, self._dtype)
        features = {name: record[name] for name in self._used}
        [legal] = np.nonzero(self._inputs.legal(features)[0])
        if not len(legal):
            raise ProtocolError("channel: a decision without a legal candidate")
        scores = self._scores(self._inputs.values(features)[0, legal])
        if not self._temperature:
            return int(legal[scores.argmax()])
        scaled = scores / self._temperature
        likelihood = np.exp(scaled - scaled.max())
        reached = likelihood.cumsum()
        # A draw of all but 1 must not round up to a place after the last.
        drawn = min(int(reached.searchsorted(self._uniform() * reached[-1], "right")), len(legal) - 1)
        self._log_probs.append(float(np.log(likelihood[drawn] / reached[-1])))
        return int(legal[drawn])

    def log_probs(self) -> np.ndarray | None:
        return np.array(self._log_probs, np.float32) if self._temperature else None
