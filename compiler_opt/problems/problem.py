"""What every decision problem tells the rest of the system; each has a folder here with the same file names in it."""

import abc
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_opt import problems
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.advisors import AdvisorFlags
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import Rule
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head


class Problem(abc.ABC):
    """One kind of decision: what is compiled how, and what the result costs.

    A *measurement* is what a worker reads off one compilation; it is small enough to send between processes. A *score*
    is what that costs (lower is better), given the *context* of the module's project.
    """

    name: str
    """Also of its folder here, and of its folder of gin files."""

    advisor: AdvisorFlags
    """Which of the compiler's decisions it is about; several problems may judge the same ones differently."""

    feature_names: tuple[str, ...]
    """What policies see, in order; the compiler may offer more. Of candidates, what the networks see of each."""

    action_space: ActionSpace
    """What kind of action a decision takes, and with it how it is learned and decided."""

    score_name: str
    """What the score is, in reports."""

    is_size: bool = False
    """Whether the score estimates the bytes of the linked program, which reports then give first."""

    default_policy: Policy | None = None
    """Decides as the compiler would, where it does not tell."""

    rule: Rule | None = None
    """A family of rules that has the compiler's own, as nearly as it can be written down, among them."""

    remark_pass: str | None = None
    """The pass whose optimisation remarks `measure` needs."""

    @abc.abstractmethod
    def measure(self, object_path: Path, remarks: bytes) -> Any:
        """Reads what the score needs off a compilation's output.

        Args:
          object_path: the object file.
          remarks: of `remark_pass`; empty without one.

        Raises:
          ProtocolError: it is damaged.
        """

    def supported_features(self, compiler_features: Iterable[str]) -> tuple[str, ...]:
        """All features that a policy may see of a compiler that sends these."""
        return self.action_space.supported_features(self.feature_names, compiler_features)

    def available_features(self, compiler_features: Collection[str]) -> list[str]:
        """The supported features that can be had of a compiler that sends these.

        Raises:
          PolicyError: it does not send what no policy can do without.
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

    def load_policy(self, directory: Path, *, name: str = "policy") -> LearnedPolicy:
        """The greedy policy in a folder.

        Raises:
          PolicyError: there is none, it is damaged, or it is for another problem.
        """
        return self.action_space.load_policy(directory, name=name)

    def native_form(self, weights: NetworkWeights) -> bytes:
        """What our plugins decide by, see `spaces.native`.

        Raises:
          PolicyError: the network has none, or is larger than the evaluator allows.
        """
        return self.action_space.native_form(weights, self.name)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "Head":
        """What is learned; imports TensorFlow.

        Args:
          quantiles: the vocabulary; features that the problem does not support are left out.
          compiler_features: what the compiler sends.

        Raises:
          PolicyError: the compiler sends other than the problem needs.
        """
        supported = self.supported_features(spec.name for spec in compiler_features)
        known = {name: quantiles[name] for name in supported if name in quantiles}
        try:
            return self.action_space.head(known, compiler_features)
        except PolicyError as error:
            raise PolicyError(f"{self.name}: {error}") from None

    context_policies: tuple[Policy, ...] = ()
    """Policies whose compilations tell scoring more of a project than the default's alone."""

    @abc.abstractmethod
    def project_context(self, measurements: Iterable[Any], others: Iterable[Any] = ()) -> Any:
        """What scoring needs to know of a project; JSON.

        Args:
          measurements: of the project's modules as the default compiles them.
          others: of the same modules under `context_policies`; without them the context is less exact.
        """

    @abc.abstractmethod
    def score(self, measurement: Any, context: Any) -> float:
        """What a module's object costs; lower is better, the default's is the baseline."""

    @abc.abstractmethod
    def credit(self, measurements: Sequence[Any], sites: Sequence[Any], context: Any) -> list[np.ndarray] | None:
        """Each decision's own share of what it changed, for rollouts of the same module.

        Args:
          measurements: one per rollout.
          sites: one per rollout, of T decisions each: `CallSites` for inlining, else `FunctionOfDecisions`.
          context: of the module's project.

        Returns:
          for each rollout `[T]` float64, better than the group's mean when positive, in the units of the score; None
          when the problem has no finer credit than the module's score.
        """

    def by_function(self, measurement: Any) -> Mapping[str, float] | None:
        """The score by function, of a problem whose decisions change no other function than their own; else None."""
        del measurement
        return None


ENTRY_POINTS = "compiler_opt.problems"
"""The group of entry points by which other packages offer problems: `NAME = "MODULE:PROBLEM"`."""


def names() -> tuple[str, ...]:
    """The installed problems: the folders beside this file, and what other packages offer by entry points."""
    return tuple(sorted(_references()))


def load(name: str) -> Problem:
    """Loads a problem, which may run code of other packages.

    Args:
      name: of an installed problem, or where to import one from: `MODULE:ATTRIBUTE`.

    Raises:
      ConfigError: there is none.
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


def recorded(metadata: Mapping[str, Any], origin: str) -> Problem:
    """Loads the problem that a policy or trace says it is for; inlining when it says nothing.

    Only installed problems are looked for: metadata come from elsewhere, and must not choose what is imported.

    Args:
      metadata: of the policy or trace.
      origin: what an error calls it by.

    Raises:
      PolicyError: it is for one that is not installed.
    """
    name = str(metadata.get("problem", "inlining"))
    if name not in names():
        raise PolicyError(
            f"{origin}: is for the problem {name!r}; expected one of {', '.join(names())}, or --compile_task with the "
            "place of your own"
        )
    return load(name)


def load_policy(directory: Path, *, name: str = "policy") -> LearnedPolicy:
    """Loads the greedy policy in a folder, for whichever installed problem it is.

    Raises:
      PolicyError: there is none, it is damaged, or its problem is not installed.
    """
    metadata = NetworkWeights.load(directory).metadata
    return recorded(metadata, str(directory)).load_policy(directory, name=name)


def _references() -> dict[str, str]:
    """`MODULE:ATTRIBUTE` of the installed problems, by name."""
    ours = (module.name for module in pkgutil.iter_modules(problems.__path__) if module.ispkg)
    offered = {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return offered | {name: f"{problems.__name__}.{name}:PROBLEM" for name in ours}


def reward(score: float, baseline: float) -> float:
    """The reward: the share of the baseline that was saved, `1 - score / baseline`; 0 for an empty baseline."""
    return 1 - score / baseline if baseline > 0 else 0.0
