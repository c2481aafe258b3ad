"""A trained network that answers with a number: how much, not which.

Legend: F inputs, T decisions.

What is learned is the *action*, a real number: the network gives the mean and the deviation of a Gaussian, a greedy
policy takes the mean, one that explores draws. What the compiler is told is the *advice*: the action by a fixed map,
`NumberScale`. Many actions have the same advice, so a policy that draws also tells which it drew.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.policy import Decider, uniforms
from compiler_opt.policies.weights import LearnedPolicy, NetworkWeights, outputs, positions_of, quantile_positions
from compiler_opt.tensor_spec import TensorSpec

LARGEST_ADVICE = (1 << 24) - 1
"""Up to here float32 has all whole numbers, so advice arrives as it was meant, and keeps its order when the compiler
makes an unsigned number of it."""

MIDDLE_LOG_DEVIATION, LOG_DEVIATION_RANGE = math.log(0.1), math.log(20)
"""Deviations lie between a twentieth of the middle one and twenty times it, whatever the weights are."""

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class NumberScale:
    """The fixed way from actions to advice: whole steps above the lowest action, never falling as actions rise.

    Attributes:
      lowest: the action whose advice is 0, as is that of all below it.
      highest: the action with the greatest advice, as all above it.
      steps: of advice, for each unit of actions.

    Raises:
      ValueError: there would be none, or more steps than advice can tell apart.
    """

    lowest: float
    highest: float
    steps: int

    def __post_init__(self) -> None:
        if not (self.lowest < self.highest and 1 <= self.largest_advice <= LARGEST_ADVICE):
            raise ValueError(f"scale: expected 1 to {LARGEST_ADVICE} steps, found {self}")

    @property
    def largest_advice(self) -> int:
        return round((self.highest - self.lowest) * self.steps)

    def to_advice(self, actions: np.ndarray) -> np.ndarray:
        """`[T]` to `[T]` float32: whole numbers from 0 to `largest_advice`."""
        steps = np.rint((np.asarray(actions, np.float64) - self.lowest) * self.steps)
        return np.clip(steps, 0, self.largest_advice).astype(np.float32)

    def to_actions(self, advice: np.ndarray) -> np.ndarray:
        """`[T]` to `[T]` float32: for each advice the middle of the actions that have it.

        Raises:
          PolicyError: one is not the advice of any action.
        """
        steps = np.asarray(advice, np.float64)
        odd = steps[(steps != np.rint(steps)) | (steps < 0) | (steps > self.largest_advice)]
        if len(odd):
            raise PolicyError(
                f"expected decisions that are whole numbers from 0 to {self.largest_advice}, found {odd[0]}; "
                "make the trace again with compiler_opt/tools/generate_default_trace.py"
            )
        return (self.lowest + steps / self.steps).astype(np.float32)


def mean_and_log_deviation(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A network's two outputs `[..., 2]` as mean and log deviation of actions, each `[...]` float64."""
    raw = raw.astype(np.float64)
    return raw[..., 0], MIDDLE_LOG_DEVIATION + LOG_DEVIATION_RANGE * np.tanh(raw[..., 1])


def log_deviation_of(deviation: float) -> float:
    """The logarithm of a deviation, or of the nearest that a network can be taught."""
    # At the ends of the range a network never arrives.
    within = 0.95 * LOG_DEVIATION_RANGE
    wanted = math.log(max(deviation, 1e-9))
    return min(max(wanted, MIDDLE_LOG_DEVIATION - within), MIDDLE_LOG_DEVIATION + within)


def log_density(actions: np.ndarray, mean: np.ndarray, log_deviation: np.ndarray) -> np.ndarray:
    """Of Gaussians, each at its action; `[T]` to `[T]` float64."""
    distance = (np.asarray(actions, np.float64) - mean) / np.exp(log_deviation)
    density: np.ndarray = -0.5 * np.square(distance) - log_deviation - _HALF_LOG_TWO_PI
    return density


class NumberPolicy(LearnedPolicy):
    """Answers with the mean, or with a number drawn around it."""

    num_outputs = 2

    def __init__(
        self,
        weights: NetworkWeights,
        scale: NumberScale,
        *,
        temperature: float = 0.0,
        name: str = "policy",
        origin: str = "",
    ):
        """As `LearnedPolicy`; the temperature multiplies the deviation."""
        super().__init__(weights, temperature=temperature, name=name, origin=origin)
        self.scale = scale

    def check(self, feature_names: Sequence[str]) -> None:
        self._require(self.weights.features, feature_names)

    def check_specs(self, specs: Sequence[TensorSpec], advice: TensorSpec) -> None:
        """Raises PolicyError when the compiler lacks a feature, sends several numbers as one, or wants no number."""
        self.check([spec.name for spec in specs])
        for spec in specs:
            if spec.name in self.weights.features and spec.num_elements != 1:
                raise PolicyError(f"{self._origin}: expected features of one number, found {spec.to_json()}")
        if advice.dtype.kind != "f":
            raise PolicyError(f"{self._origin}: answers with a number, but the compiler wants {advice.to_json()}")

    def start(self, header: Header, seed: int) -> Decider:
        self.check_specs(header.features, header.advice)
        return _Answering(self, header, seed)

    def means(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """The greedy actions of many decisions: arrays `[T]` by name to `[T]` float64."""
        columns = [np.asarray(features[name], np.float64).reshape(-1) for name in self.weights.features]
        raw = outputs(self.weights, positions_of(self.weights.quantiles, np.stack(columns, axis=-1)))
        return mean_and_log_deviation(raw)[0]


class _Answering(Decider):
    def __init__(self, policy: NumberPolicy, header: Header, seed: int):
        self._weights = policy.weights
        self._scale = policy.scale
        self._temperature = policy.temperature
        self._dtype = record_dtype(header.features)
        self._normal = _normals(seed)
        # Few positions differ: most decisions of a module have been met before.
        self._known: dict[tuple[float, ...], tuple[float, float]] = {}
        self._actions: list[float] = []
        self._parameters: list[tuple[float, float]] = []

    def __call__(self, observation: bytes) -> float:
        record = np.frombuffer(observation, self._dtype, 1)[0]
        weights = self._weights
        positions = tuple(
            float(quantile_positions(quantiles, record[name].item()))
            for name, quantiles in zip(weights.features, weights.quantiles, strict=True)
        )
        parameters = self._known.get(positions)
        if parameters is None:
            gaussian = mean_and_log_deviation(outputs(weights, np.array(positions, np.float32)))
            parameters = self._known[positions] = float(gaussian[0]), float(gaussian[1])
        action, log_deviation = parameters
        if self._temperature:
            log_deviation += math.log(self._temperature)
            # As it is recorded.
            drawn = float(np.float32(action + math.exp(log_deviation) * self._normal()))
            self._actions.append(drawn)
            self._parameters.append((action, log_deviation))
            action = drawn
        return float(self._scale.to_advice(np.array(action)))

    def drawn(self) -> np.ndarray | None:
        return np.array(self._actions, np.float32) if self._temperature else None

    def log_probs(self) -> np.ndarray | None:
        if not self._temperature:
            return None
        mean, log_deviation = np.array(self._parameters).reshape(-1, 2).T
        return log_density(np.array(self._actions), mean, log_deviation).astype(np.float32)


def _normals(seed: int) -> Callable[[], float]:
    """A stream of standard normal numbers (Box and Muller 1958), one for each two of `uniforms`."""
    uniform = uniforms(seed)

    def draw() -> float:
        # 1 - u lies in (0, 1]: its logarithm is finite.
        radius = math.sqrt(-2 * math.log(1 - uniform()))
        return radius * math.cos(2 * math.pi * uniform())

    return draw
