"""Reduces decisions: the fewest changes of the default's decisions that still have an effect on a module.

The effect is a failure of the compiler, or a score that rises. Few decisions make a report that others can follow.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from compiler_opt.collect.rollout import Rollout, RolloutSettings, rollout
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.evaluation.minimiser import minimised
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.decisions import Advice, Decisions, OverridingPolicy, Site
from compiler_opt.policies.policy import Decider, DeciderByFunction, FeaturePolicy, Policy
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.masked_categorical import MaskedCategorical


class RecordingPolicy(Policy):
    """Decides as a policy, and notes where the default differs; also if the compilation fails.

    Attributes:
      changes: of the last compilation in this process, in the order of decisions.
      defaults: what the default would have decided in their places.
      num_decisions: of it, in all.
    """

    def __init__(self, policy: Policy, default: Policy):
        self.name = policy.name
        self.changes: dict[Site, Advice] = {}
        self.defaults: dict[Site, Advice] = {}
        self.num_decisions = 0
        self._policy, self._default = policy, default

    def start(self, header: Header, seed: int) -> Decider:
        self.changes, self.defaults, self.num_decisions = {}, {}, 0
        policy, default = self._policy.start(header, seed), self._default.start(header, seed)

        def decide(function: str, ordinal: int, observation: bytes) -> Advice:
            advice, by_default = policy(observation), default(observation)
            self.num_decisions += 1
            if advice != by_default:
                site = Site.in_function(function, ordinal)
                self.changes[site], self.defaults[site] = advice, by_default
            return advice

        return DeciderByFunction(decide, (policy, default))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What some changed decisions do to a module.

    Attributes:
      failure: why the compilation fails; None if it does not.
      score: the module's score; None if it fails.
      rise: the score's rise, as a share of the default's.
    """

    failure: str | None
    score: float | None
    rise: float

    def describe(self) -> str:
        if self.failure is not None:
            return f"fails: {self.failure}"
        return f"score {self.score:g}, {self.rise:+.2%} against the default's"


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The result of a reduction.

    Attributes:
      effect: of all changes.
      changes: that are left.
      defaults: what the default decides in their places, where it differs.
      remaining: their effect.
      num_compiles: how many compilations it took.
      is_minimal: whether no change that is left could be left out alone; False if the compilations were used up.
    """

    effect: Outcome
    changes: Mapping[Site, Advice]
    defaults: Mapping[Site, Advice]
    remaining: Outcome
    num_compiles: int
    is_minimal: bool


class Reducer:
    """Compiles one module under changed decisions."""

    def __init__(
        self, module: Module, problem: AnyProblem, toolchain: Toolchain, settings: RolloutSettings = RolloutSettings()
    ):
        """Compiles the module by the default.

        Raises:
          ConfigError: the problem is none of register allocation.
          CorpusError: the module cannot be compiled by the default.
          ToolchainError: the compiler cannot be used.
        """
        decision = problem.decision
        if decision.moves_code or decision.advisor.plugin_default_feature is None:
            raise ConfigError(
                f"{problem.name}: expected a problem of register allocation, whose decisions change one function each; "
                "for inlining see compiler_opt explain and compiler_opt search"
            )
        self.num_compiles = 0
        self._module, self._problem, self._toolchain = module, problem, toolchain
        self._settings = settings
        self._default = decision.default_policy or FeaturePolicy(
            decision.advisor.plugin_default_feature, name="default"
        )
        plain = self._compiled(None)
        if plain.measurement is None:
            raise CorpusError(f"{plain.failure}; expected a module that compiles by the default")
        self._context = problem.objective.project_context([plain.measurement])
        self._baseline = problem.score(plain.measurement, self._context)

    def record(self, policy: Policy, seed: int = 0) -> RecordingPolicy:
        """The decisions of a policy that differ from the default's, until it fails."""
        recording = RecordingPolicy(policy, self._default)
        self._compiled(recording, seed)
        return recording

    def outcome(self, changes: Mapping[Site, Advice]) -> Outcome:
        """Compiles under some changed decisions; those that the others have made illegal are left out.

        Raises:
          CorpusError: the machine lacks memory or disk, which says nothing of the decisions.
        """
        result = self._compiled(self._changed(changes))
        if result.is_transient:
            raise CorpusError(f"{result.failure}; free some memory or disk, and run it again")
        if result.measurement is None:
            return Outcome(result.failure, None, 0.0)
        score = self._problem.score(result.measurement, self._context)
        return Outcome(None, score, (score - self._baseline) / self._baseline if self._baseline > 0 else 0.0)

    def reduce(
        self, changes: Mapping[Site, Advice], *, min_rise: float | None = None, max_compiles: int = 500
    ) -> Reduction:
        """Leaves out changes as long as the effect of all remains.

        Args:
          changes: all of them.
          min_rise: if the compilation does not fail: the score's rise, as a share of the default's, that must remain;
            by default half of that of all changes.
          max_compiles: stops, with what was reached, when so many more compilations are used up.

        Raises:
          PolicyError: the changes have no such effect.
        """
        effect = self.outcome(changes)
        needed = effect.rise / 2 if min_rise is None else min_rise
        if effect.failure is None and (effect.rise <= 0 or effect.rise < needed):
            expected = f"a score that rises by {needed:.2%}" if effect.rise > 0 else "a failure, or a score that rises"
            raise PolicyError(f"{self._module.name}: {len(changes)} changes: expected {expected}; {effect.describe()}")
        smallest = frozenset(changes)
        known = {smallest: effect}
        last = self.num_compiles + max_compiles

        def holds(some: Sequence[Site]) -> bool:
            nonlocal smallest
            key = frozenset(some)
            if key not in known:
                if self.num_compiles >= last:
                    raise _UsedUpError
                known[key] = self.outcome({site: changes[site] for site in some})
            found = known[key]
            same = found.failure is not None if effect.failure is not None else found.rise >= needed
            if same and len(key) < len(smallest):
                smallest = key
            return same

        is_minimal = True
        try:
            minimised(list(changes), holds)
        except _UsedUpError:
            is_minimal = False
        left = {site: advice for site, advice in changes.items() if site in smallest}
        defaults = self.record(self._changed(left)).defaults
        return Reduction(effect, left, defaults, known[smallest], self.num_compiles, is_minimal)

    def _changed(self, changes: Mapping[Site, Advice]) -> Policy:
        space = self._problem.decision.action_space
        mask = space.inputs.mask if isinstance(space, MaskedCategorical) else None
        return OverridingPolicy(self._default, Decisions(changes), mask=mask) if changes else self._default

    def _compiled(self, policy: Policy | None, seed: int = 0) -> Rollout[object]:
        self.num_compiles += 1
        return rollout(self._module, policy, self._problem, self._toolchain, seed=seed, settings=self._settings)


class _UsedUpError(Exception):
    """All compilations are used up."""
