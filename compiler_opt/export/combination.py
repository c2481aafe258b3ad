"""Several policies in one, chosen by the value of a feature, such as a function's linkage."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.export.untrained_policies import check_width, load_several, save_in_all_forms, shared_metadata
from compiler_opt.llvm import plugin_features
from compiler_opt.policies.joined import constant_network, gated_network
from compiler_opt.policies.weights import NetworkWeights

COMBINED_OF = "combined_of"
"""The key, in a policy's metadata, of the checksums of the policies that it is made of."""

RULES = "rules"
"""The key of the rules that come before one policy's network, the first ones first."""

RULED = "network_of_the_rules"
"""The key of the checksum of the policy that the rules were added to."""

CONSTANT = {"never": 0, "always": 1}
"""Policies that always take the same one of two actions."""


def combine_policies(policy_dirs: Sequence[Path | str], feature: str, thresholds: Sequence[float]) -> NetworkWeights:
    """One network that decides as one of several policies, by the value of a feature.

    The first policy decides below the first threshold, the second from there to below the second one, and so on. Its
    layers have the units of all policies, see `gated_network`.

    Args:
      policy_dirs: folders of policies, or names in `CONSTANT`; two or more, one of them trained.
      feature: the feature.
      thresholds: ascending, one less than policies.

    Raises:
      PolicyError: a policy is missing or damaged; they are too few, for different problems, or do not share
        vocabulary and margin; the feature or the thresholds do not fit them; or the network is wider than the native
        form allows.
    """
    if len(policy_dirs) < 2:
        raise PolicyError(f"--policy_path: expected at least two policies, found {len(policy_dirs)}")
    trained, problem = load_several([Path(folder) for folder in policy_dirs if folder not in CONSTANT], at_least=1)
    known = problem.decision.supported_features((*problem.decision.feature_names, *plugin_features.ALL))
    if feature not in known:
        raise PolicyError(f"--feature={feature}: expected a feature of {problem.name}, one of {', '.join(known)}")
    loaded = iter(trained)
    try:
        policies = [
            constant_network(trained[0], CONSTANT[str(each)]) if each in CONSTANT else next(loaded)
            for each in policy_dirs
        ]
        combined = gated_network(policies, feature, thresholds)
    except PolicyError as error:
        raise PolicyError(f"{', '.join(map(str, policy_dirs))}: {error}") from None
    check_width(combined, len(policies))
    ruled = {weights.metadata.get(RULED) or weights.checksum() for weights in trained}
    if len(ruled) == 1:
        # One policy, with rules: what is known of its training still holds.
        rules = _rules([each.metadata for each in policies], policy_dirs, feature, thresholds)
        metadata = {**trained[0].metadata, RULES: rules, RULED: ruled.pop()}
    else:
        shown = ", ".join(map(_number, thresholds))
        metadata = shared_metadata(trained, problem, f"{len(policies)} policies, by {feature} at {shown}")
        metadata[COMBINED_OF] = [weights.checksum() for weights in trained]
    combined = dataclasses.replace(combined, metadata=metadata)
    problem.decision.policy(combined, origin="combined policies")
    return combined


def _number(value: float) -> str:
    return f"{value:.15g}"


def _rules(
    facts: Sequence[Mapping[str, Json]], policy_dirs: Sequence[Path | str], feature: str, thresholds: Sequence[float]
) -> list[Json]:
    """What comes before one training's network: constant policies, then the rules that its policies have."""
    bounds = [None, *map(_number, thresholds), None]
    rules: list[Json] = []
    earlier: list[Json] = []
    several = len([each for each in policy_dirs if each not in CONSTANT]) > 1
    for metadata, each, low, high in zip(facts, policy_dirs, bounds, bounds[1:], strict=False):
        above = f"{low} <= {feature} < {high}" if high is not None else f"{feature} >= {low}"
        where = f"{feature} < {high}" if low is None else above
        if each in CONSTANT:
            rules.append(f"{each} if {where}")
        else:
            earlier += [f"{rule}, where {where}" if several else rule for rule in metadata.get(RULES) or ()]
    return [*rules, *earlier]


def save_combination(
    policy_dirs: Sequence[Path | str], feature: str, thresholds: Sequence[float], output: Path
) -> NetworkWeights:
    """Saves several policies as one policy's folder, in all of its forms; see `combine_policies` for errors.

    Raises:
      OutputError: the folder cannot be written.
    """
    weights = combine_policies(policy_dirs, feature, thresholds)
    save_in_all_forms(weights, output)
    return weights
