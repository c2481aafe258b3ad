"""Two compilations of a module in step, for compilers that send the default decision in another feature's place.

One process sends all features, the other the default decision. Both get the same advice, so each decision of one is
about the same call as that of the other.

    features process:  observation ──► policy(observation, default) ──► advice
    default process:   default ───────────────▲              advice ◄─────┘
"""

import contextlib
import dataclasses
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.interactive import InteractiveResult
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FunctionDecider, Policy


class Converse(Protocol):
    """Compiles over LLVM's channel."""

    def __call__(
        self, compilation: Compilation, policy: Policy, *, include_default: bool
    ) -> tuple[Trajectory | None, InteractiveResult]: ...


def compile_in_two_processes(
    compilation: Compilation, policy: Policy, read_default: Policy, converse: Converse
) -> Trajectory | None:
    """Compiles under a policy that needs the default decision, which `read_default` reads from the other process.

    The policy observes the default decision after all features; the trajectory has the features alone.

    Raises:
      CompileError, CorpusError, ProtocolError: one of the processes fails, or they ask for different decisions.
    """
    defaults, advice = _Pipe(), _Pipe()
    with scratch_directory(compilation.scratch) as folder, ThreadPoolExecutor(1) as executor:
        twin = compilation.twin(folder)
        sender = _DefaultSender(read_default, defaults, advice)

        def send_defaults() -> InteractiveResult:
            with defaults.ended():
                return converse(twin, sender, include_default=True)[1]

        other = executor.submit(send_defaults)
        trajectory, num_decisions = None, None
        try:
            # If the other process has failed, its error is the reason.
            with contextlib.suppress(_OtherEndedError), advice.ended():
                beside = _BesideDefault(policy, compilation.advisor.default_feature or "", defaults, advice)
                trajectory, result = converse(compilation, beside, include_default=False)
                num_decisions = len(result.advice)
            if len(other.result().advice) != num_decisions:
                raise ProtocolError(
                    f"{compilation.module.name}: with the same advice, the compiler asked for other decisions when it "
                    "also sent its default decisions; use the backend plugin"
                )
        finally:
            other.cancel()
            compilation.cpu_s += twin.cpu_s
    return trajectory


class _OtherEndedError(ProtocolError):
    """The other process sends nothing more."""


class _Pipe:
    """Sends integers from one thread to another."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def send(self, value: int) -> None:
        self._queue.put(value)

    def receive(self) -> int:
        """Waits for the next number; raises _OtherEndedError after the last."""
        value = self._queue.get()
        if value is None:
            raise _OtherEndedError("channel: of two compilations in step, one ended before the other")
        return value

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """At the end of the block, nothing more is sent, whatever has happened."""
        try:
            yield
        finally:
            self._queue.put(None)


class _DefaultSender(Policy):
    """Sends the default decision of each call, and takes the advice of the other process."""

    name = "default"

    def __init__(self, read_default: Policy, defaults: _Pipe, advice: _Pipe):
        self._read_default = read_default
        self._defaults = defaults
        self._advice = advice

    def start(self, header: Header, seed: int) -> Decider:
        read = self._read_default.start(header, seed)

        def decide(observation: bytes) -> int:
            self._defaults.send(int(read(observation)))
            return self._advice.receive()

        return FunctionDecider(decide)


class _BesideDefault(Policy):
    """Decides as a policy that is also given the default decision, and sends its advice."""

    def __init__(self, policy: Policy, default_feature: str, defaults: _Pipe, advice: _Pipe):
        self.name = policy.name
        self._policy = policy
        self._default_feature = default_feature
        self._defaults = defaults
        self._advice = advice

    def start(self, header: Header, seed: int) -> Decider:
        default = dataclasses.replace(header.advice, name=self._default_feature)
        decider = self._policy.start(Header((*header.features, default), header.advice), seed)

        def decide(observation: bytes) -> int:
            default_bytes = np.array(self._defaults.receive(), default.dtype).tobytes()
            advice = int(decider(observation + default_bytes))
            self._advice.send(advice)
            return advice

        return FunctionDecider(decide)
