"""The mean of several policies' logits as one policy, such as of trainings with different seeds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import PolicyError
from compiler_opt.export.untrained_policies import check_width, load_several, save_in_all_forms, shared_metadata
from compiler_opt.policies.joined import mean_network
from compiler_opt.policies.weights import NetworkWeights

MEAN_OF = "mean_of"
"""The key, in a policy's metadata, of the checksums of the policies that it is the mean of."""


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
