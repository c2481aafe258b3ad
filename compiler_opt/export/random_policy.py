"""Untrained policies with random weights, for tests of compilers that load models."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.problem import AnyProblem


def random_policy(
    problem: AnyProblem, quantiles: Mapping[str, np.ndarray], hidden_units: Sequence[int], *, seed: int
) -> NetworkWeights:
    """A network for a problem, which observes the features of a vocabulary; the same seed gives the same weights.

    Its outputs vary with the features about as much as those of trained networks.

    Raises:
      PolicyError: LLVM has no form in which it could load a policy for this problem.
    """
    rng = np.random.default_rng(seed)
    sizes = (len(TRANSFORMS) * len(quantiles), *hidden_units, problem.decision.action_space.num_outputs)
    weights = NetworkWeights(
        tuple(quantiles),
        tuple(quantiles.values()),
        tuple(
            rng.normal(0, np.sqrt(2 / size), (size, width)).astype("f4") for size, width in itertools.pairwise(sizes)
        ),
        tuple(np.zeros(width, np.float32) for width in sizes[1:]),
        {"problem": problem.name, "method": f"random weights, seed {seed}; not trained"},
    )
    if "saved_model" not in problem.decision.action_space.formats(weights):
        raise PolicyError(f"{problem.name}: its policies have no SavedModel, so there is nothing that LLVM could load")
    return weights
