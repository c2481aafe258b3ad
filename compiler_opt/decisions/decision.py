"""Kinds of decisions of the compiler, whatever their results cost."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.advisors import AdvisorFlags
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.pretrained_index import policy_folder
from compiler_opt.policies.rule import Rule
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from compiler_opt.spaces.heads.head import Head

Sites: TypeAlias = CallSites | FunctionOfDecisions
"""Where T decisions were made: call sites for inlining, otherwise functions."""


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """One kind of decision.

    Attributes:
      name: also that of its folder of gin files.
      advisor: LLVM's options for it.
      feature_names: a network's inputs in order, of each candidate if there are several; the compiler may offer more.
      action_space: the kind of action, which determines how policies learn and decide.
      credit: shares out what rollouts of the same module differ in. Takes, by rollout, the cost of each function (one
        that is missing costs 0) and the sites of T decisions. Returns for each rollout `[T]` float64, positive if
        better than the rollouts' mean.
      moves_code: whether code moves between functions, whose calls and costs then change, too.
      default_policy: rebuilds the compiler's own decisions, if the compiler does not send them.
      rule: a family of rules, one of which is close to the compiler's own.
      bounding_policies: together with the default, they emit whatever any policy may.
    """

    name: str
    advisor: AdvisorFlags
    feature_names: tuple[str, ...]
    action_space: ActionSpace
    credit: Callable[[Sequence[Mapping[str, float]], Sequence[Any]], list[np.ndarray]]
    moves_code: bool = False
    default_policy: Policy | None = None
    rule: Rule | None = None
    bounding_policies: tuple[Policy, ...] = ()

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
          PolicyError: the network is for another decision.
        """
        return self.action_space.policy(weights, temperature=temperature, name=name, origin=origin)

    def load_policy(self, directory: Path | str, *, name: str = "policy", margin: float | None = None) -> LearnedPolicy:
        """The greedy policy in a folder, or `pretrained:NAME`; `margin` replaces its own, see `NetworkWeights`.

        Raises:
          PolicyError: there is none, it is damaged, it is for another decision, or it can have no such margin.
        """
        folder = policy_folder(directory)
        return self.policy(NetworkWeights.load(folder).with_margin(margin), name=name, origin=str(folder))

    def native_form(self, weights: NetworkWeights) -> bytes:
        """The form in which our plugins run the network, see `spaces.native`.

        Raises:
          PolicyError: the network has no native form, or is larger than the evaluator allows.
        """
        return self.action_space.native_form(weights, self.name)

    def head(self, quantiles: Mapping[str, np.ndarray], compiler_features: Sequence[TensorSpec]) -> "Head":
        """The trainable side of the action space, for those features of the vocabulary that a policy may observe.

        Raises:
          PolicyError: the compiler does not send what every policy needs.
        """
        supported = self.supported_features(spec.name for spec in compiler_features)
        known = {name: quantiles[name] for name in supported if name in quantiles}
        try:
            return self.action_space.head(known, compiler_features)
        except PolicyError as error:
            raise PolicyError(f"{self.name}: {error}") from None
