"""Which counterfactuals to try, and the samples that come of them.

Legend: N samples, T decisions, F inputs of a candidate, K rollouts with counterfactuals, P pairs of a decision of a
function and another candidate.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.policies.counterfactuals import Counterfactual
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithms.counterfactuals import CounterfactualsConfig
from compiler_opt.spaces.heads.masked_categorical import MaskedCategoricalHead
from compiler_opt.spaces.heads.networks import RANKS


@dataclasses.dataclass(frozen=True)
class Samples:
    """Gains of N counterfactuals.

    Attributes:
      positions: `[N, 2, F]` float32, of the candidate that the policy chose, and of the other one.
      gains: `[N]` float32, what the function gained by the other one, see `log_gain`.
    """

    positions: np.ndarray
    gains: np.ndarray

    def __len__(self) -> int:
        return len(self.gains)

    def take(self, indices: np.ndarray) -> "Samples":
        return Samples(self.positions[indices], self.gains[indices])

    @classmethod
    def concatenate(cls, parts: Sequence["Samples"]) -> "Samples":
        if not parts:
            return cls(np.empty((0, 2, 0), np.float32), np.empty(0, np.float32))
        return cls(np.concatenate([part.positions for part in parts]), np.concatenate([part.gains for part in parts]))


class CounterfactualSampler:
    """Draws what to try in a module: for each function, a different counterfactual in each rollout."""

    def __init__(self, kind: MaskedCategoricalHead, config: CounterfactualsConfig):
        self._kind = kind
        self._config = config

    def draw(
        self,
        weights: NetworkWeights,
        features: Mapping[str, np.ndarray],
        advice: np.ndarray,
        sites: FunctionOfDecisions,
        count: int,
        rng: np.random.Generator,
    ) -> list[dict[str, Counterfactual]]:
        """For each of `count` rollouts, at most one counterfactual per function.

        Args:
          weights: of the policy that decided.
          features: of its T decisions, by name.
          advice: `[T]`, what it decided.
          sites: the functions.
          count: K.
          rng: what draws.
        """
        observations = self._kind.observe(features)
        scores = self._kind.logits(weights, observations)
        chosen = np.arange(scores.shape[1]) == advice[:, np.newaxis]
        lag = np.where(self._kind.legal(observations) & ~chosen, (scores[chosen][:, np.newaxis] - scores), np.inf)
        result: list[dict[str, Counterfactual]] = [{} for _ in range(count)]
        for index, function in enumerate(sites.functions):
            [decisions] = np.nonzero(sites.indices == index)
            number, candidate = np.nonzero(np.isfinite(lag[decisions]))
            if not len(number):
                continue
            likelihood = self._likelihood(lag[decisions][number, candidate])
            drawn = rng.choice(len(number), min(count, len(number)), replace=False, p=likelihood)
            for counterfactuals, pair in zip(result, drawn, strict=False):
                counterfactuals[function] = Counterfactual(int(number[pair]), int(candidate[pair]))
        return result

    def _likelihood(self, lag: np.ndarray) -> np.ndarray:
        """`[P]`, how far candidates score behind the chosen one, to probabilities: uniform mixed with a softmax."""
        config = self._config
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
    """What the network sees of the chosen and the other candidate of each counterfactual, see `Samples.positions`.

    Args:
      counterfactuals: by function, N of them.
      observations: of the T decisions of the rollout that they change, by name.
      advice: `[T]`, what was decided there.
      sites: its functions.
    """
    pairs = []
    for function, other in counterfactuals.items():
        [decisions] = np.nonzero(sites.indices == sites.functions.index(function))
        row = decisions[other.decision]
        pairs.append(observations[RANKS][row][[advice[row], other.advice]])
    return np.stack(pairs)
