"""The protocol of a decision problem, and loading problems by name; each problem has a folder here."""

import abc
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from compiler_opt import problems
from compiler_opt.checked_values import Json
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.advisors import AdvisorFlags
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import Rule
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head

Measurement = TypeVar("Measurement")
"""What a worker reads from one compilation; picklable, and small enough to send between processes."""

Context = TypeVar("Context")
"""What scoring needs to know of a module's project; JSON."""

Sites: TypeAlias = CallSites | FunctionOfDecisions
"""Where T decisions were made: call sites for inlining, otherwise functions."""


class Problem(abc.ABC, Generic[Measurement, Context]):
    """One kind of decision, and what its results cost.

    measurement = problem.measure(object_path, remarks)                            # worker, for each compilation
    context = problem.project_context(measurements of the default)                 # host, once per project
    score = problem.score(measurement, context)                                    # lower is better
    credit = problem.credit(measurements, sites, context)                          # for rollouts of the same module
    """

    name: str
    """Also the name of its folder here, and of its folder of gin files."""

    advisor: AdvisorFlags
    """Which decisions of the compiler; several problems may score the same decisions differently."""

    feature_names: tuple[str, ...]
    """A network's inputs, in order (of each candidate, if there are several); the compiler may offer more."""

    action_space: ActionSpace
    """The kind of action, which determines how policies learn and decide."""

    score_name: str
    """The score's name in reports."""

    is_size: bool = False
    """Whether the score estimates the bytes of the linked program, which reports then give first."""

    default_policy: Policy | None = None
    """Rebuilds the compiler's own decisions, if the compiler does not send them."""

    rule: Rule | None = None
    """A family of rules, one of which is close to the compiler's own."""

    remark_pass: str | None = None
    """The pass whose optimisation remarks `measure` needs."""

    object_options: tuple[str, ...] = ()
    """Options of cc1 for all compilations, such as those that write into the object what `measure` reads there."""

    scored_by: str = ""
    """What else a score depends on, such as a cost model: it is kept with what was measured, and with policies."""

    context_policies: tuple[Policy, ...] = ()
    """Policies under which modules are also compiled for `project_context`, besides the default."""

    def decide_as(self, other: "Problem[Any, Any]") -> None:
        """Makes the decisions those of another problem, which this one scores differently."""
        self.name = other.name
        self.advisor = other.advisor
        self.feature_names = other.feature_names
        self.action_space = other.action_space
        self.default_policy = other.default_policy
        self.rule = other.rule
        self.context_policies = other.context_policies

    @abc.abstractmethod
    def measure(self, object_path: Path, remarks: bytes) -> Measurement:
        """Reads what the score needs from an object file and the remarks of `remark_pass`, if there is one.

        Raises:
          ProtocolError: the object or the remarks are damaged.
        """

    def supported_features(self, compiler_features: Iterable[str]) -> tuple[str, ...]:
        """All features that a policy may observe with a compiler that sends these."""
        return self.action_space.supported_features(self.feature_names, compiler_features)

    def available_features(self, compiler_features: Collection[str]) -> list[str]:
        """The supported features that are available from a compiler that sends these.

        Raises:
          PolicyError: it does not send a feature that every policy needs.
        """
        try:
            return self.action_space.available_features(self.feature_names, compiler_features)
        except PolicyError as error:
            raise PolicyError(f"{self.name}: {error}") from None

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> LearnedPolicy:
        """The policy that decides by a network.

        Raises:
          PolicyError: the network is for another problem.
        """
        return self.action_space.policy(weights, temperature=temperature, name=name, origin=origin)

    def load_policy(self, directory: Path, *, name: str = "policy", margin: float | None = None) -> LearnedPolicy:
        """The greedy policy in a folder; `margin` replaces its own, see `NetworkWeights`.

        Raises:
          PolicyError: there is none, it is damaged, it is for another problem, or it can have no such margin.
        """
        return self.policy(NetworkWeights.load(directory).with_margin(margin), name=name, origin=str(directory))

    def native_form(self, weights: NetworkWeights) -> bytes:
        """The form in which our plugins run the network, see `spaces.native`.

        Raises:
          PolicyError: the network has no native form, or is larger than the evaluator allows.
        """
        return self.action_space.native_form(weights, self.name)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "Head":
        """The trainable side of the action space, for those features of the vocabulary that the problem supports.

        Raises:
          PolicyError: the compiler does not send what the problem needs.
        """
        supported = self.supported_features(spec.name for spec in compiler_features)
        known = {name: quantiles[name] for name in supported if name in quantiles}
        try:
            return self.action_space.head(known, compiler_features)
        except PolicyError as error:
            raise PolicyError(f"{self.name}: {error}") from None

    @abc.abstractmethod
    def project_context(self, measurements: Iterable[Measurement], others: Iterable[Measurement] = ()) -> Context:
        """What scoring needs to know of a project.

        Args:
          measurements: of the project's modules, compiled by the default.
          others: of the same modules under `context_policies`; without them the context is less exact.
        """

    def shared_parts(self, measurement: Measurement) -> Iterable[str]:
        """Names of the parts of an object of which a linker keeps one copy in a project; by default none."""
        del measurement
        return ()

    def with_copies(self, context: Context, copies: Mapping[str, float]) -> Context:
        """The context if a project's modules emit other copies of shared parts.

        Args:
          context: by `project_context`.
          copies: how many modules emit each part that several may emit; an average, so not always whole.
        """
        del copies
        return context

    @abc.abstractmethod
    def score(self, measurement: Measurement, context: Context) -> float:
        """What a module's object costs; lower is better. The default's score is the baseline."""

    @abc.abstractmethod
    def credit(
        self, measurements: Sequence[Measurement], sites: Sequence[Sites], context: Context
    ) -> list[np.ndarray] | None:
        """Each decision's share of the difference between rollouts of the same module.

        Args:
          measurements: one per rollout.
          sites: one per rollout, of T decisions each.
          context: of the module's project.

        Returns:
          for each rollout `[T]` float64 in units of the score, positive if better than the group's mean; None if the
          problem has no finer credit than the module's score.
        """

    def by_function(self, measurement: Measurement) -> Mapping[str, float] | None:
        """The score of each function, if a decision changes only the function that it is made in; otherwise None."""
        del measurement
        return None


AnyProblem: TypeAlias = Problem[Any, Any]
"""A problem whose types only its own module knows, such as one loaded by name."""

ENTRY_POINTS = "compiler_opt.problems"
"""The group of entry points by which other packages offer problems: `NAME = "MODULE:PROBLEM"`."""


def names() -> tuple[str, ...]:
    """The installed problems: the folders beside this file, and the entry points of other packages."""
    return tuple(sorted(_references()))


def load(name: str) -> AnyProblem:
    """Loads a problem by its name or, from any package, by `MODULE:ATTRIBUTE`, which runs that package's code.

    Raises:
      ConfigError: there is no such problem.
    """
    references = _references()
    if ":" not in name and name not in references:
        raise ConfigError(
            f"unknown problem {name!r}; expected one of {', '.join(sorted(references))}, or MODULE:PROBLEM of your own"
        )
    module, _, attribute = references.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"problem {name!r}: cannot be imported ({error}); expected MODULE:PROBLEM") from error
    if not isinstance(found, Problem):
        raise ConfigError(f"problem {name!r}: expected an instance of Problem, found {type(found).__name__}")
    return found


def recorded(metadata: Mapping[str, Json], origin: str) -> AnyProblem:
    """Loads the problem named in the metadata of a policy or trace; inlining if none is named.

    It must be installed: metadata may come from anybody, and must not choose what is imported.

    Raises:
      PolicyError: the problem is not installed; the message begins with `origin`.
    """
    name = str(metadata.get("problem", "inlining"))
    if name not in names():
        raise PolicyError(
            f"{origin}: is for the problem {name!r}; expected one of {', '.join(names())}, or "
            "--compile_task=MODULE:PROBLEM of your own"
        )
    return load(name)


def load_policy(directory: Path, *, name: str = "policy") -> LearnedPolicy:
    """Loads the greedy policy in a folder, whichever installed problem it is for.

    Raises:
      PolicyError: there is none, it is damaged, or its problem is not installed.
    """
    return recorded(NetworkWeights.load(directory).metadata, str(directory)).load_policy(directory, name=name)


def _references() -> dict[str, str]:
    """`MODULE:ATTRIBUTE` of the installed problems, by name."""
    ours = (module.name for module in pkgutil.iter_modules(problems.__path__) if module.ispkg)
    offered = {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return offered | {name: f"{problems.__name__}.{name}:PROBLEM" for name in ours}


def reward(score: float, baseline: float) -> float:
    """The reward: the share of the baseline that was saved, `1 - score / baseline`; 0 for an empty baseline."""
    return 1 - score / baseline if baseline > 0 else 0.0
