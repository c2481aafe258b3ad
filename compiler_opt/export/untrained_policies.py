"""What making a policy without a training shares: of several others, or at random."""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt import problem as problems
from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.native import MAX_WIDTH
from compiler_opt.tensorflow_loading import load_tensorflow

_SHARED = ("problem", "toolchain", "corpus", "problem_config", "iterations")


def load_several(policy_dirs: Sequence[Path], at_least: int = 2) -> tuple[list[NetworkWeights], AnyProblem]:
    """Policies for the same problem.

    Raises:
      PolicyError: a policy is missing or damaged, they are fewer, or for different problems.
    """
    if len(policy_dirs) < at_least:
        expected = "one trained policy" if at_least == 1 else "two policies"
        raise PolicyError(f"--policy_path: expected at least {expected}, found {len(policy_dirs)}")
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

    model = EMBEDDED_MODELS[problem.decision.advisor.problem]
    save_policy(output, weights, problem.decision.action_space, model.advice.name, model.features)
