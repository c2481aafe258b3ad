"""Masked categorical actions: one of several candidates, some of which may be illegal.

Legend: F inputs of a candidate, C candidates of a decision, T decisions.

The same network scores each candidate by itself; the distribution is the softmax over the scores of the legal ones.
Illegal candidates have probability 0 whatever the weights are.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider, Policy, deciding_by, uniforms
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ALL_FORMATS, ActionSpace
from compiler_opt.spaces.candidates import CandidateInputs, PortableInputs
from compiler_opt.spaces.learned_policy import GreedyDecisions, LearnedPolicy, NetworkInputs, outputs
from compiler_opt.spaces.native import NativeModel, native_blob
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead


class MaskedCategorical(ActionSpace):
    """The advice is a candidate's position; the compiler determines their number. The last one changes nothing.

    Attributes:
      inputs: computes a network's inputs, and which candidates are legal.
      further_baselines: a problem's own, besides `random` and `first`.
    """

    num_outputs = 1

    def __init__(self, inputs: CandidateInputs, further_baselines: Sequence[Policy] = ()):
        self.inputs = inputs
        self.further_baselines = tuple(further_baselines)
        self.optional_features = inputs.optional

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> "MaskedCategoricalPolicy":
        return MaskedCategoricalPolicy(weights, self.inputs, temperature=temperature, name=name, origin=origin)

    def head(
        self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]
    ) -> "MaskedCategoricalHead":
        from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead

        return MaskedCategoricalHead(quantiles, self.inputs, compiler_features)

    def available_features(self, feature_names: Sequence[str], compiler_features: Collection[str]) -> list[str]:
        """All supported features, because they are computed from those that the compiler must send."""
        missing = [name for name in self.inputs.features if name not in compiler_features]
        if missing:
            raise PolicyError(f"this compiler does not send the features {', '.join(missing)}")
        return list(self.supported_features(feature_names, compiler_features))

    def vocabulary_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        del compiler_features
        return self.inputs.names

    def used_features(self, compiler_features: Sequence[str]) -> tuple[str, ...]:
        return self.inputs.used(compiler_features)

    def vocabulary_values(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of the legal candidates, all decisions together."""
        values = self.inputs.values(features)[self.inputs.legal(features)]
        return dict(zip(self.inputs.names, values.T, strict=True))

    def baselines(self) -> Mapping[str, Policy]:
        policies = (RandomCandidate(self.inputs), FirstCandidate(self.inputs), *self.further_baselines)
        return {policy.name: policy for policy in policies}

    def native_form(self, weights: NetworkWeights, problem: str) -> bytes:
        return native_blob(weights, of_integers=False, about={"problem": problem})

    def formats(self, weights: NetworkWeights) -> tuple[str, ...]:
        del weights
        return ALL_FORMATS if isinstance(self.inputs, PortableInputs) else ()

    @property
    def native_model(self) -> NativeModel:
        return self.inputs.native_model if isinstance(self.inputs, PortableInputs) else super().native_model


class FirstCandidate(Policy):
    """Always chooses the first legal candidate."""

    name = "first"

    def __init__(self, inputs: CandidateInputs):
        self._inputs = inputs

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        return deciding_by(
            lambda features: _legal_places(self._inputs, features)[:1], [self._inputs.mask], header, self.name
        )


class RandomCandidate(Policy):
    """Chooses one of the legal candidates at random, each as likely."""

    name = "random"

    def __init__(self, inputs: CandidateInputs):
        self._inputs = inputs

    def start(self, header: Header, seed: int) -> Decider:
        uniform = uniforms(seed)

        def choose(features: dict[str, np.ndarray]) -> np.ndarray:
            places = _legal_places(self._inputs, features)
            drawn = int(uniform() * len(places))
            return places[drawn : drawn + 1]

        return deciding_by(choose, [self._inputs.mask], header, self.name)


def _legal_places(inputs: CandidateInputs, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Positions of the legal candidates of one decision; raises ProtocolError if there is none."""
    [legal] = np.nonzero(inputs.legal(features)[0])
    if not len(legal):
        raise ProtocolError("channel: a decision without a legal candidate")
    return legal


@dataclasses.dataclass(eq=False, repr=False)
class MaskedCategoricalPolicy(LearnedPolicy):
    """Chooses the legal candidate with the highest score, or samples one."""

    num_outputs = MaskedCategorical.num_outputs

    inputs: CandidateInputs

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights.features != self.inputs.names:
            odd = sorted(set(self.weights.features) ^ set(self.inputs.names))
            raise PolicyError(
                f"{self.origin}: expected a network over the inputs of this problem; they differ in "
                f"{', '.join(odd) or 'order'}: train it again"
            )

    @property
    def needed_features(self) -> Sequence[str]:
        return self.inputs.features

    @property
    def runs_in_plugin(self) -> bool:
        return not self.temperature

    def start(self, header: Header, seed: int) -> Decider:
        self.check_header(header)
        return _MaskedCategoricalDecider(self, header, seed)

    def used_features(self, compiler_features: Collection[str]) -> Sequence[str]:
        return self.inputs.used(compiler_features)

    def network_inputs(self, features: Mapping[str, np.ndarray]) -> NetworkInputs:
        """The legal candidates of each decision; raises ProtocolError if a decision has none."""
        legal = self.inputs.legal(features)
        if not legal.any(axis=1).all():
            raise ProtocolError(f"{self.origin}: a decision without a legal candidate")
        return NetworkInputs(self.encoder.ranks(self.inputs.values(features)[legal]), legal.nonzero()[0])

    def greedy_decisions(self, inputs: NetworkInputs, default: np.ndarray) -> GreedyDecisions:
        del default
        scores = outputs(self.weights, inputs.ranks)[:, 0].astype(np.float64)
        starts, decisions = inputs.starts, inputs.decisions
        best = np.maximum.reduceat(scores, starts)[decisions]
        # The first of the best.
        rows = np.flatnonzero(scores == best)
        chosen = rows[np.unique(decisions[rows], return_index=True)[1]]
        log_totals = np.log(np.add.reduceat(np.exp(scores - best), starts))[decisions]
        log_probs = scores - best - log_totals
        return GreedyDecisions(chosen, chosen, lambda actions: log_probs[actions])


class _MaskedCategoricalDecider(Decider):
    def __init__(self, policy: MaskedCategoricalPolicy, header: Header, seed: int):
        self._weights = policy.weights
        self._encoder = policy.encoder
        self._inputs = policy.inputs
        self._used = policy.inputs.used(header.names)
        self._dtype = record_dtype(header.features)
        self._temperature = policy.temperature
        self._uniform = uniforms(seed)
        self._log_probs: list[float] = []

    def __call__(self, observation: bytes) -> int:
        record = np.frombuffer(observation, self._dtype)
        features = {name: record[name] for name in self._used}
        legal = _legal_places(self._inputs, features)
        ranks = self._encoder.ranks(self._inputs.values(features)[0, legal])
        scores = outputs(self._weights, ranks)[:, 0].astype(np.float64)
        if not self._temperature:
            return int(legal[scores.argmax()])
        scaled = scores / self._temperature
        likelihood = np.exp(scaled - scaled.max())
        total = likelihood.cumsum()
        # A draw just below 1 must not round up to a position after the last.
        sampled = min(int((total <= self._uniform() * total[-1]).sum()), len(legal) - 1)
        self._log_probs.append(float(np.log(likelihood[sampled] / total[-1])))
        return int(legal[sampled])

    def log_probs(self) -> np.ndarray | None:
        return np.array(self._log_probs, np.float32) if self._temperature else None
