"""A policy that differs from another in one decision of each function, to measure that decision's effect."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy


@dataclasses.dataclass(frozen=True)
class Counterfactual:
    """A changed decision of a function.

    Attributes:
      decision: its index among the function's decisions, from 0.
      advice: given instead.
    """

    decision: int
    advice: int


class CounterfactualPolicy(Policy):
    """Decides as another policy, except for one decision of each function.

    Unless the other policy samples, the function is compiled alike up to that decision, so any difference in the end is
    due to it.

    Attributes:
      counterfactuals: by function.
    """

    def __init__(self, policy: Policy, counterfactuals: Mapping[str, Counterfactual], name: str = "counterfactual"):
        self.name = name
        self.needs_default = policy.needs_default
        self.counterfactuals = dict(counterfactuals)
        self._policy = policy

    def start(self, header: Header, seed: int) -> Decider:
        return _Decider(self._policy.start(header, seed), self.counterfactuals)


class _Decider(Decider):
    def __init__(self, decider: Decider, counterfactuals: Mapping[str, Counterfactual]):
        self._decider = decider
        self._counterfactuals = counterfactuals
        self._num_decisions: defaultdict[str, int] = defaultdict(int)
        self._context: str | None = None

    def enter(self, context: str) -> None:
        self._context = context

    def __call__(self, observation: bytes) -> int | float:
        if self._context is None:
            raise ProtocolError("channel: a decision without the name of its function")
        advice = self._decider(observation)
        other = self._counterfactuals.get(self._context)
        decision = self._num_decisions[self._context]
        self._num_decisions[self._context] += 1
        return other.advice if other is not None and other.decision == decision else advice
