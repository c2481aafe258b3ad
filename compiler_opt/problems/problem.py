"""What every decision problem tells the rest of the system; each has a folder here with the same file names in it."""

import abc
import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt import problems
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm import ir2vec
from compiler_opt.llvm.advisors import AdvisorFlags
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.rule import Rule
from compiler_opt.policies.weights import LearnedPolicy, NetworkPolicy, NetworkWeights
from compiler_opt.spaces.continuous import NumberPolicy, NumberScale
from compiler_opt.spaces.masked_categorical import CandidateInputs, CandidatePolicy
from compiler_opt.spaces.native import native_blob


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
    """What policies see, in order; the compiler may offer more. With `candidates`, what the networks see of each."""

    score_name: str
    """What the score is, in reports."""

    is_size: bool = False
    """Whether the score estimates the bytes of the linked program, which reports then give first."""

    default_policy: Policy | None = None
    """Decides as the compiler would, where it does not tell."""

    candidates: CandidateInputs | None = None
    """What policies see of candidates, when the decision is which of several."""

    scale: NumberScale | None = None
    """How what is learned becomes advice, when the decision is how much. Without either it is yes or no."""

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

    @property
    def is_yes_or_no(self) -> bool:
        """Whether advice is 0 or 1."""
        return self.candidates is None and self.scale is None

    def known(self, sent: Iterable[str]) -> tuple[str, ...]:
        """`feature_names` and, of what the compiler sends, the embeddings where they can be made use of."""
        return (*self.feature_names, *(ir2vec.components(sent) if self.is_yes_or_no else ()))

    def visible(self, sent: Sequence[str]) -> list[str]:
        """Which features policies can see when the compiler sends these.

        Raises:
          PolicyError: candidates cannot be compared by them.
        """
        if self.candidates is None:
            return [name for name in self.known(sent) if name in sent]
        missing = [name for name in self.candidates.features if name not in sent]
        if missing:
            raise PolicyError(f"{self.name}: this compiler does not send the features {', '.join(missing)}")
        return list(self.feature_names)

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> LearnedPolicy:
        """The policy that decides by a network.

        Raises:
          PolicyError: the network is for another problem.
        """
        if self.candidates is not None:
            return CandidatePolicy(weights, self.candidates, temperature=temperature, name=name, origin=origin)
        if self.scale is not None:
            return NumberPolicy(weights, self.scale, temperature=temperature, name=name, origin=origin)
        return NetworkPolicy(weights, temperature=temperature, name=name, origin=origin)

    def load_policy(self, directory: Path, *, name: str = "policy") -> LearnedPolicy:
        """The greedy policy in a folder.

        Raises:
          PolicyError: there is none, it is damaged, or it is for another problem.
        """
        return self.policy(NetworkWeights.load(directory), name=name, origin=str(directory))

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


def names() -> tuple[str, ...]:
    """The problems that there are: the folders beside this file."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(problems.__path__) if module.ispkg))


def load(name: str) -> Problem:
    """The problem of that name.

    Raises:
      ConfigError: there is none.
    """
    if name not in names():
        raise ConfigError(f"unknown problem {name!r}; expected one of {', '.join(names())}")
    module: types.ModuleType = importlib.import_module(f"{problems.__name__}.{name}")
    problem: Problem = module.PROBLEM
    return problem


def of_policy(weights: NetworkWeights, origin: str) -> Problem:
    """The problem that a policy is for, as its metadata say; inlining when they say nothing.

    Args:
      weights: of the policy.
      origin: what an error calls it by.

    Raises:
      PolicyError: it is for one that there is not.
    """
    name = str(weights.metadata.get("problem", "inlining"))
    if name not in names():
        raise PolicyError(f"{origin}: is of the problem {name!r}; expected one of {', '.join(names())}")
    return load(name)


def native_form(weights: NetworkWeights, problem: Problem) -> bytes:
    """What our plugins decide by, see `policies.native`.

    Raises:
      PolicyError: the network is larger than the evaluator allows.
    """
    if problem.is_yes_or_no:
        return native_blob(weights)
    about: dict[str, Any] = {"problem": problem.name}
    if problem.scale is not None:
        about["scale"] = dataclasses.asdict(problem.scale)
    return native_blob(weights, of_integers=False, about=about)


def reward(score: float, baseline: float) -> float:
    """The reward: the share of the baseline that was saved, `1 - score / baseline`; 0 for an empty baseline."""
    return 1 - score / baseline if baseline > 0 else 0.0
