"""The policies of a deployment: which ones are requested, and which of them can share a prefix."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import INLINER
from compiler_opt.llvm.plugin import PluginKind
from compiler_opt.llvm.regalloc_plugin import REGALLOC
from compiler_opt.policies.decisions import Base
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.learned_policy import LearnedPolicy

DEFAULT_LEVELS = ("Oz",)
DEFAULT_SPEED_LEVELS = ("O2", "O3")

_LEVELS = ("O0", "O1", "O2", "O3", "Os", "Oz")


@dataclasses.dataclass(frozen=True)
class PolicyRequest:
    """A policy to deploy.

    Attributes:
      folder: a trained policy; None for the compiler's own heuristic if there are decisions, otherwise for the policy
        for inlining that ships and suits all of the compilers.
      levels: optimisation levels at which it decides; None for those of its problem.
    """

    folder: Path | None = None
    levels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError if a level is unknown."""
        if self.levels is None:
            return
        names = [level.removeprefix("-") for level in self.levels]
        if not names or set(names) - set(_LEVELS):
            wrong = next((name for name in names if name not in _LEVELS), "none")
            raise ConfigError(f"--levels: expected some of {' '.join(_LEVELS)}, found {wrong}; separate them by commas")
        object.__setattr__(self, "levels", tuple(dict.fromkeys(names)))


@dataclasses.dataclass(frozen=True)
class LoadedPolicy:
    """What decides at some levels where nothing is replayed: a network, or the compiler's own heuristic.

    Attributes:
      problem: what it decides.
      levels: at which it decides, such as `Oz`.
      origin: its folder, or `pretrained:NAME`; empty for the compiler's own heuristic.
      policy: None for that heuristic, like its card.
      base: its weights and its native form; neither for that heuristic.
      card: its model card.
    """

    problem: AnyProblem
    levels: tuple[str, ...]
    origin: str = ""
    policy: LearnedPolicy | None = None
    base: Base = dataclasses.field(default_factory=Base)
    card: ModelCard | None = None

    @classmethod
    def load(cls, request: PolicyRequest, margin: float | None, origin: str = "") -> "LoadedPolicy":
        """Loads a policy; `margin` replaces that of the policy, if it can have one.

        Raises:
          PolicyError: there is no policy, or it is damaged.
        """
        if request.folder is None:
            problem = problems.load(INLINING.problem)
            return cls(problem, _levels(request, problem))
        trained = NetworkWeights.load(request.folder)
        problem = problems.recorded(trained.metadata, str(request.folder))
        policy = problem.decision.policy(trained, origin=str(request.folder))
        weights = trained.with_margin(margin) if policy.takes_margin else trained
        # What was measured with another margin does not hold with this one.
        card = (ModelCard.load(request.folder) if weights.margin == trained.margin else None) or weights.card()
        return cls(
            problem=problem,
            levels=_levels(request, problem),
            origin=origin or str(request.folder),
            policy=problem.decision.policy(weights, origin=str(request.folder)),
            base=Base(weights, problem.decision.native_form(weights)),
            card=card,
        )

    @property
    def kind(self) -> PluginKind:
        """The plugin that it is built into."""
        return INLINER if self.problem.decision.advisor == INLINING else REGALLOC

    def __str__(self) -> str:
        return f"{self.origin or 'the default heuristic'} ({self.problem.name})"


def _levels(request: PolicyRequest, problem: AnyProblem) -> tuple[str, ...]:
    if request.levels is not None:
        return tuple(request.levels)
    return DEFAULT_LEVELS if problem.objective.is_size else DEFAULT_SPEED_LEVELS


def names_of(policies: Iterable[LoadedPolicy]) -> list[str]:
    """Names for their files in a prefix: that of the plugin, with a number from the second policy of a kind on."""
    seen: Counter[str] = Counter()
    names = []
    for policy in policies:
        kind = policy.kind.name
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
    return names


def check_together(policies: Sequence[LoadedPolicy], *, never_worse: bool, margin: float | None) -> None:
    """Raises ConfigError unless the policies can share a prefix with these settings.

    At each level, a compilation loads each plugin at most once.
    """
    for first, second in itertools.combinations(policies, 2):
        shared = next((level for level in first.levels if level in second.levels), None)
        if shared is None or first.kind != second.kind:
            continue
        reason = (
            "but only one policy can make the same decisions"
            if first.problem.name == second.problem.name
            else "but the register allocator's plugin supports only one policy in a compilation"
        )
        raise ConfigError(
            f"--policy_path: {first} and {second} both decide at -{shared}, {reason}; give each its own --levels, or "
            "leave one out"
        )
    if margin is not None and not any(policy.policy and policy.policy.takes_margin for policy in policies):
        found = ", ".join(map(str, policies)) or "none"
        raise ConfigError(f"--margin: expected a policy with binary actions, found {found}; leave it out")
    if never_worse:
        _check_never_worse(policies)


def _check_never_worse(policies: Sequence[LoadedPolicy]) -> None:
    fast = [policy for policy in policies if not policy.problem.objective.is_size]
    if policies and len(fast) == len(policies):
        found = " and ".join(dict.fromkeys(policy.problem.name for policy in fast))
        raise ConfigError(f"--never_worse: keeps the smaller object, but {found} does not optimise size; leave it out")
    for policy in fast:
        for other in policies:
            shared = next((level for level in policy.levels if level in other.levels), None)
            if shared is not None and other.problem.objective.is_size:
                raise ConfigError(
                    f"--never_worse: keeps the smaller object, but at -{shared} {policy} also decides, which does not "
                    "optimise size; give it other --levels, or leave --never_worse out"
                )
