"""Several policies in one, chosen by the value of a feature, such as a function's linkage."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import PolicyError
from compiler_opt.export.untrained_policies import check_width, load_several, save_in_all_forms, shared_metadata
from compiler_opt.llvm import plugin_features
from compiler_opt.policies.joined import gated_network
from compiler_opt.policies.weights import NetworkWeights

COMBINED_OF = "combined_of"
"""The key, in a policy's metadata, of the checksums of the policies that it is made of."""


def combine_policies(policy_dirs: Sequence[Path], feature: str, thresholds: Sequence[float]) -> NetworkWeights:
    """One network that decides as one of several policies, by the value of a feature.

    The first policy decides below the first threshold, the second from there to below the second one, and so on. Its
    layers have the units of all policies, see `gated_network`.

    Raises:
      PolicyError: a policy is missing or damaged; they are fewer than two, for different problems, or do not share
        vocabulary and margin; the feature or the thresholds do not fit them; or the network is wider than the native
        form allows.
    """
    policies, problem = load_several(policy_dirs)
    known = problem.decision.supported_features((*problem.decision.feature_names, *plugin_features.ALL))
    if feature not in known:
        raise PolicyError(f"--feature={feature}: expected a feature of {problem.name}, one of {', '.join(known)}")
    try:
        combined = gated_network(policies, feature, thresholds)
    except PolicyError as error:
        raise PolicyError(f"{', '.join(map(str, policy_dirs))}: {error}") from None
    check_width(combined, len(policies))
    shown = ", ".join(f"{threshold:g}" for threshold in thresholds)
    metadata = shared_metadata(policies, problem, f"{len(policies)} policies, by {feature} at {shown}")
    metadata[COMBINED_OF] = [weights.checksum() for weights in policies]
    combined = dataclasses.replace(combined, metadata=metadata)
    problem.decision.policy(combined, origin="combined policies")
    return combined


def save_combination(
    policy_dirs: Sequence[Path], feature: str, thresholds: Sequence[float], output: Path
) -> NetworkWeights:
    """Saves several policies as one policy's folder, in all of its forms; see `combine_policies` for errors.

    Raises:
      OutputError: the folder cannot be written.
    """
    weights = combine_policies(policy_dirs, feature, thresholds)
    save_in_all_forms(weights, output)
    return weights
