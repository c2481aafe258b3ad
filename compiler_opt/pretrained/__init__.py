"""Policies that ship with this package: found by name, and checked against the checksums of an index.

    pretrained.names()                                        ('inlining-Oz-plugin', 'inlining-Oz-portable')
    pretrained.load("inlining-Oz-portable")                   its weights
    pretrained.folder("pretrained:inlining-Oz-portable")      its folder, as flags name it

A folder of policies, this one or that of the environment variable `COMPILER_OPT_PRETRAINED`, has:

    index.json                           for each policy its problem, and size and SHA-256 of each of its files
    NAME/network.npz                     the weights, see `NetworkWeights`
    NAME/model_card.json, MODEL_CARD.md  how it was trained, and what it gains

`compiler_opt policy release` writes it. A policy of which any file is missing or changed is refused by name.
"""

from collections.abc import Iterable
from pathlib import Path

from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import can_build
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.pretrained_index import PREFIX as PREFIX
from compiler_opt.policies.pretrained_index import PretrainedIndex
from compiler_opt.policies.pretrained_index import policy_folder as folder  # noqa: F401 (ruff wants `folder as folder`)
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem


def names(problem: str | None = None) -> tuple[str, ...]:
    """The names of the policies, or of those for one problem, sorted. Raises PolicyError if the index is damaged."""
    return PretrainedIndex.installed().names(problem)


def path(name: str) -> Path:
    """The folder of a policy. Raises PolicyError if there is no such policy, or it was changed."""
    return PretrainedIndex.installed().path(name)


def load(name: str) -> NetworkWeights:
    """The weights of a policy. Raises PolicyError if there is no such policy, or it was changed."""
    return NetworkWeights.load(path(name))


def find_default(problem: AnyProblem, toolchains: Iterable[Toolchain]) -> str | None:
    """The policy to use for a problem where the user names none, as `pretrained:NAME`; None if no policy suits.

    It observes only what all of these compilers offer and, of several such policies, observes most.

    Raises:
      PolicyError: the index or a policy is damaged.
      ToolchainError: a compiler has no channel for the problem.
    """
    name = PretrainedIndex.installed().best(
        problem.name, [offered_features(toolchain, problem.decision) for toolchain in toolchains]
    )
    return None if name is None else PREFIX + name


def default(problem: AnyProblem, toolchains: Iterable[Toolchain], flag: str) -> str:
    """The same, for a command that cannot do without a policy and has a flag for it.

    Raises:
      PolicyError: no policy suits; also as `find_default`.
      ToolchainError: a compiler has no channel for the problem.
    """
    found = find_default(problem, toolchains)
    if found is not None:
        return found
    shipped = names(problem.name)
    if shipped:
        reason = f"{' and '.join(shipped)} need features that this compiler does not send"
    else:
        reason = f"no policy for {problem.name} ships with this version of compiler_opt"
    raise PolicyError(f"{flag}: {reason}; train a policy (docs/training.md says how) and give its folder")


def offered_features(toolchain: Toolchain, decision: Decision) -> frozenset[str]:
    """The names of all features that policies can observe with a compiler, and its plugin if that can be built.

    Raises:
      ToolchainError: it has no channel for it.
    """
    support = toolchain.require(decision.advisor.problem)
    lacks_plugin = decision.advisor == INLINING and not can_build(toolchain)
    return frozenset((spec.name for spec in support.features) if lacks_plugin else support.feature_names)
