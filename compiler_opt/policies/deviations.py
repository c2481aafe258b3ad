"""A policy that departs from another one once in each function, to see what that changes."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy


@dataclasses.dataclass(frozen=True)
class Deviation:
    """What is decided otherwise.

    Attributes:
      decision: which of its function's decisions, from 0.
      advice: what is answered.
    """

    decision: int
    advice: int


class DeviatingPolicy(Policy):
    """Another policy, but for one decision of each function.

    Up to that decision the function is compiled as under the other policy, if that does not sample; so what differs in
    the end is the decision's doing.
    """

    def __init__(self, policy: Policy, deviations: Mapping[str, Deviation], name: str = "deviating"):
        self.name = name
        self.needs_default = policy.needs_default
        self._policy = policy
        self._deviations = dict(deviations)

    def start(self, header: Header, seed: int) -> Decider:
        return _Deviating(self._policy.start(header, seed), self._deviations)


class _Deviating(Decider):
    def __init__(self, decider: Decider, deviations: Mapping[str, Deviation]):
        self._decider = decider
        self._deviations = deviations
        self._num_decisions: defaultdict[str, int] = defaultdict(int)
        self._context: str | None = None

    def enter(self, context: str) -> None:
        self._context = context

    def __call__(self, observation: bytes) -> int | float:
        if self._context is None:
            raise ProtocolError("channel: a decision without the name of its function")
        advice = self._decider(observation)
        deviation = self._deviations.get(self._context)
        decision = self._num_decisions[self._context]
        self._num_decisions[self._context] += 1
        return deviation.advice if deviation is not None and deviation.decision == decision else advice
