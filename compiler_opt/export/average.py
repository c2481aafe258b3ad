"""The mean of several policies' logits as one policy, such as of trainings with different seeds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights, mean_network
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.spaces.native import MAX_WIDTH
from compiler_opt.tensorflow_loading import load_tensorflow

MEAN_OF = "mean_of"
"""The key, in a policy's metadata, of the checksums of the policies that it is the mean of."""

_SHARED = ("problem", "toolchain", "corpus", "problem_config", "iterations")


def average_policies(policy_dirs: Sequence[Path]) -> NetworkWeights:
    """One network that gives the mean of several policies' logits.

    Its layers have the units of all of them, so it takes as long as they do together.

    Raises:
      PolicyError: a policy is missing or damaged; they are fewer than two, for different problems, or do not share
        vocabulary and depth; or the network is wider than the native form allows.
    """
    policies, problem = load_several(policy_dirs)
    try:
        mean = mean_network(policies)
    except PolicyError as error:
        raise PolicyError(f"{', '.join(map(str, policy_dirs))}: {error}") from None
    check_width(mean, len(policies))
    method = f"mean of the logits of {len(policies)} policies"
    metadata = shared_metadata(policies, problem, method)
    metadata[MEAN_OF] = [weights.checksum() for weights in policies]
    return dataclasses.replace(mean, metadata=metadata)


def save_average(policy_dirs: Sequence[Path], output: Path) -> NetworkWeights:
    """Saves the mean of several policies as a policy's folder, in all of its forms; see `average_policies` for errors.

    Raises:
      OutputError: the folder cannot be written.
    """
    weights = average_policies(policy_dirs)
    save_in_all_forms(weights, output)
    return weights


def load_several(policy_dirs: Sequence[Path]) -> tuple[list[NetworkWeights], AnyProblem]:
    """Two or more policies for the same problem.

    Raises:
      PolicyError: a policy is missing or damaged, they are fewer, or for different problems.
    """
    if len(policy_dirs) < 2:
        raise PolicyError(f"--policy_path: expected at least two policies, found {len(policy_dirs)}")
    policies = [NetworkWeights.load(directory) for directory in policy_dirs]
    named = {
        problem.name: problem
        for weights, directory in zip(policies, policy_dirs, strict=True)
        for problem in [problems.recorded(weights.metadata, str(directory))]
    }
    if len(named) > 1:
        raise PolicyError(f"--policy_path: expected policies for one problem, found some for {' and '.join(named)}")
    return policies, named.popitem()[1]


def check_width(weights: NetworkWeights, count: int) -> None:
    """Raises PolicyError if the network, made of `count` policies, is wider than the native form allows."""
    widest = max(len(bias) for bias in weights.biases)
    if widest > MAX_WIDTH:
        raise PolicyError(
            f"--policy_path: {count} policies have {widest} units in a layer together; expected at most {MAX_WIDTH}: "
            "give fewer"
        )


def shared_metadata(policies: Sequence[NetworkWeights], problem: AnyProblem, method: str) -> dict[str, Json]:
    """The metadata in which policies agree, for one that is made of them by a method."""
    first = policies[0].metadata
    shared = {
        key: first[key] for key in _SHARED if all(key in p.metadata and p.metadata[key] == first[key] for p in policies)
    }
    return {**shared, "problem": problem.name, "method": method}


def save_in_all_forms(weights: NetworkWeights, output: Path) -> None:
    """Saves a policy's folder; its metadata names the problem. Raises OutputError if the folder cannot be written."""
    problem = problems.recorded(weights.metadata, str(output))
    load_tensorflow()
    from compiler_opt.export.release_model import EMBEDDED_MODELS
    from compiler_opt.export.saved_model import save_policy

    model = EMBEDDED_MODELS[problem.advisor.problem]
    save_policy(output, weights, problem.action_space, model.advice.name, model.features)
