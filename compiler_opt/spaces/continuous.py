"""Continuous actions: real numbers.

Legend: F features, T decisions.

The network outputs mean and deviation of a Gaussian over *actions*; a greedy policy takes the mean, an exploring one
samples. The *advice* for the compiler is the action quantized by a fixed map, `ActionQuantizer`. Many actions have the
same advice, so a policy that samples also records the actions.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ALL_FORMATS, ActionSpace
from compiler_opt.spaces.distributions import gaussian_log_density, mean_and_log_deviation, normals
from compiler_opt.spaces.learned_policy import GreedyDecisions, LearnedPolicy, NetworkInputs, outputs
from compiler_opt.spaces.native import NativeModel, native_blob
from compiler_opt.spaces.quantizer import ActionQuantizer
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.continuous import ContinuousHead


class Continuous(ActionSpace):
    """A real number; the features are scalars of any type.

    Attributes:
      quantizer: rounds actions to advice.
    """

    # The compiler's own advice is unbounded; traces have the rebuilt default's, which is within the quantizer's range.
    plugin_takes_default = False

    def __init__(self, quantizer: ActionQuantizer):
        self.quantizer = quantizer

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> "ContinuousPolicy":
        return ContinuousPolicy(weights, self.quantizer, temperature=temperature, name=name, origin=origin)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "ContinuousHead":
        from compiler_opt.spaces.heads.continuous import ContinuousHead

        return ContinuousHead(quantiles, self.quantizer, compiler_features)

    def native_form(self, weights: NetworkWeights, problem: str) -> bytes:
        about = {"problem": problem, "scale": dataclasses.asdict(self.quantizer)}
        return native_blob(weights, of_integers=False, about=about)

    def formats(self, weights: NetworkWeights) -> tuple[str, ...]:
        del weights
        return ALL_FORMATS

    @property
    def native_model(self) -> NativeModel:
        numbers = (float(self.quantizer.lowest), float(self.quantizer.highest), float(self.quantizer.steps))
        expression = f"PriorityModel(ActionQuantizer{{{', '.join(map(repr, numbers))}}})"
        return NativeModel(expression, ("regalloc_policy.h", "regalloc_models.h"))


@dataclasses.dataclass(eq=False, repr=False)
class ContinuousPolicy(LearnedPolicy):
    """Takes the mean of a Gaussian, or samples from it."""

    num_outputs = 2

    quantizer: ActionQuantizer

    @property
    def runs_in_plugin(self) -> bool:
        return not self.temperature

    def check_header(self, header: Header) -> None:
        """Raises PolicyError if a feature is missing or not a scalar, or the compiler does not expect a float."""
        self.check(header.names)
        for spec in header.features:
            if spec.name in self.weights.features and spec.num_elements != 1:
                raise PolicyError(f"{self.origin}: expected scalar features, found {spec.to_json()}")
        if header.advice.dtype.kind != "f":
            raise PolicyError(
                f"{self.origin}: takes continuous actions, but the compiler expects {header.advice.to_json()}"
            )

    def start(self, header: Header, seed: int) -> Decider:
        self.check_header(header)
        return _ContinuousDecider(self, header, seed)

    def means(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """The greedy actions of many decisions: features `[T]` by name to `[T]` float64."""
        return self._gaussians(self.network_inputs(features))[0]

    def greedy_decisions(self, inputs: NetworkInputs, default: np.ndarray) -> GreedyDecisions:
        del default
        mean, log_deviation = self._gaussians(inputs)
        advice = self.quantizer.to_advice(mean)
        return GreedyDecisions(advice, mean, lambda actions: gaussian_log_density(actions, mean, log_deviation))

    def _gaussians(self, inputs: NetworkInputs) -> tuple[np.ndarray, np.ndarray]:
        """Means and log deviations, `[T]` float64 each."""
        return mean_and_log_deviation(outputs(self.weights, inputs.ranks))


class _ContinuousDecider(Decider):
    def __init__(self, policy: ContinuousPolicy, header: Header, seed: int):
        self._weights = policy.weights
        self._encoder = policy.encoder
        self._quantizer = policy.quantizer
        self._temperature = policy.temperature
        self._dtype = record_dtype(header.features)
        self._normal = normals(seed)
        # Most decisions of a module fall into buckets that occurred before.
        self._known: dict[bytes, tuple[float, float]] = {}
        self._actions: list[float] = []
        self._parameters: list[tuple[float, float]] = []

    def __call__(self, observation: bytes) -> float:
        record = np.frombuffer(observation, self._dtype, 1)[0]
        values = np.array([record[name].item() for name in self._weights.features], np.float64)
        buckets = self._encoder.buckets(values)
        key = buckets.tobytes()
        parameters = self._known.get(key)
        if parameters is None:
            gaussian = mean_and_log_deviation(outputs(self._weights, self._encoder.bucket_ranks[buckets]))
            parameters = self._known[key] = float(gaussian[0]), float(gaussian[1])
        action, log_deviation = parameters
        if self._temperature:
            log_deviation += math.log(self._temperature)
            # With the precision of the record.
            sampled = float(np.float32(action + math.exp(log_deviation) * self._normal()))
            self._actions.append(sampled)
            self._parameters.append((action, log_deviation))
            action = sampled
        return float(self._quantizer.to_advice(np.array(action)))

    def sampled_actions(self) -> np.ndarray | None:
        return np.array(self._actions, np.float32) if self._temperature else None

    def log_probs(self) -> np.ndarray | None:
        if not self._temperature:
            return None
        mean, log_deviation = np.array(self._parameters).reshape(-1, 2).T
        return gaussian_log_density(np.array(self._actions), mean, log_deviation).astype(np.float32)
