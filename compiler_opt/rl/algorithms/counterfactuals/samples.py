"""Which counterfactuals to try, and the samples that they yield, in memory and on disk.

Legend: N samples, T decisions, F inputs of a candidate, K counterfactual rollouts, P pairs of a decision of a function
and another candidate.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.files import set_aside, sweep_temporaries
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.policies.policy import Counterfactual
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithms.counterfactuals import CounterfactualsConfig
from compiler_opt.spaces.heads.categorical import MaskedCategoricalHead
from compiler_opt.spaces.heads.networks import RANKS

_LOG = logging.getLogger(__name__)

_MAX_BYTES = 1 << 32


@dataclasses.dataclass(frozen=True)
class Samples:
    """The gains of N counterfactuals.

    Attributes:
      ranks: `[N, 2, F]` float32, quantile ranks of the candidate that the policy chose and of the other one.
      gains: `[N]` float32, the function's gain from the other candidate, see `log_gain`.
    """

    ranks: np.ndarray
    gains: np.ndarray

    def __len__(self) -> int:
        return len(self.gains)

    def take(self, indices: np.ndarray) -> "Samples":
        return Samples(self.ranks[indices], self.gains[indices])

    @classmethod
    def concatenate(cls, parts: Sequence["Samples"]) -> "Samples":
        if not parts:
            return cls(np.empty((0, 2, 0), np.float32), np.empty(0, np.float32))
        return cls(np.concatenate([part.ranks for part in parts]), np.concatenate([part.gains for part in parts]))


def save_samples(directory: Path, iteration: int, samples: Samples) -> None:
    """Writes the samples of an iteration. Raises OutputError if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    save_arrays(directory / f"{iteration:06d}.npz", {"positions": samples.ranks, "gains": samples.gains})


def load_samples(directory: Path, last_iteration: int) -> list[Samples]:
    """Reads the samples of all iterations up to the last, and removes those of later ones.

    A damaged file is set aside and logged.
    """
    found = []
    sweep_temporaries(directory)
    for path in sorted(directory.glob("*.npz")):
        if path.stem > f"{last_iteration:06d}":
            path.unlink()
            continue
        try:
            arrays = load_arrays(path, _MAX_BYTES)
            ranks, gains = arrays["positions"], arrays["gains"]
            if ranks.ndim != 3 or gains.shape != ranks.shape[:1]:
                raise ValueError(f"arrays of shapes {ranks.shape} and {gains.shape}")
            found.append(Samples(ranks, gains))
        except (OSError, ValueError, KeyError) as error:
            _LOG.warning("%s: no samples of this run (%s); kept as %s, lost", path, error, set_aside(path).name)
    return found


def draw_counterfactuals(
    head: MaskedCategoricalHead,
    config: CounterfactualsConfig,
    weights: NetworkWeights,
    features: Mapping[str, np.ndarray],
    advice: np.ndarray,
    sites: FunctionOfDecisions,
    count: int,
    rng: np.random.Generator,
) -> list[dict[str, Counterfactual]]:
    """Draws the counterfactuals of a module: for each rollout, at most one per function, different in each rollout.

    Args:
      head: of the action space.
      config: how to draw.
      weights: of the policy that decided.
      features: of its T decisions, by name.
      advice: `[T]`, its decisions.
      sites: the functions of the decisions.
      count: K.
      rng: source of random numbers.
    """
    observations = head.observe(features)
    scores = head.logits(weights, observations)
    chosen = np.arange(scores.shape[1]) == advice[:, np.newaxis]
    # How far each other legal candidate scores below the chosen one.
    lag = np.where(head.legal(observations) & ~chosen, (scores[chosen][:, np.newaxis] - scores), np.inf)
    result: list[dict[str, Counterfactual]] = [{} for _ in range(count)]
    for index, function in enumerate(sites.functions):
        [decisions] = np.nonzero(sites.indices == index)
        number, candidate = np.nonzero(np.isfinite(lag[decisions]))
        if not len(number):
            continue
        probabilities = _probabilities(lag[decisions][number, candidate], config)
        drawn = rng.choice(len(number), min(count, len(number)), replace=False, p=probabilities)
        for counterfactuals, pair in zip(result, drawn, strict=False):
            counterfactuals[function] = Counterfactual(int(number[pair]), int(candidate[pair]))
    return result


def _probabilities(lag: np.ndarray, config: CounterfactualsConfig) -> np.ndarray:
    """`[P]` to `[P]`: a softmax over negative lags, mixed with the uniform distribution."""
    promise = np.exp(-(lag - lag.min()) / config.promise_temperature)
    uniform = np.full(len(lag), 1 / len(lag))
    result: np.ndarray = config.uniform_share * uniform + (1 - config.uniform_share) * promise / promise.sum()
    return result / result.sum()


def candidate_pairs(
    counterfactuals: Mapping[str, Counterfactual],
    observations: Mapping[str, np.ndarray],
    advice: np.ndarray,
    sites: FunctionOfDecisions,
) -> np.ndarray:
    """Quantile ranks of the chosen and the other candidate of each counterfactual, see `Samples.ranks`.

    Args:
      counterfactuals: by function, N of them.
      observations: of the T decisions of the rollout that they change, by name.
      advice: `[T]`, the decisions of that rollout.
      sites: their functions.
    """
    pairs = []
    for function, other in counterfactuals.items():
        [decisions] = np.nonzero(sites.indices == sites.functions.index(function))
        row = decisions[other.decision]
        pairs.append(observations[RANKS][row][[advice[row], other.advice]])
    return np.stack(pairs)
