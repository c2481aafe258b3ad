"""Compiles over the interactive channel: observations come in over one pipe, advice goes out over another.

The compiler opens two FIFOs: `BASE.in` for advice and `BASE.out` for observations (in the format of `training_log`).
Failures are handled as follows:

- the compiler dies before it opens them: its process is watched beside the pipe;
- it closes `BASE.out` and continues, or has nothing to decide and never opens it: we wait for its end;
- it hangs, or sends a partial message: the whole compilation has a deadline;
- this process dies: see `processes`; otherwise the compiler would spin forever on the closed pipe.
"""

import contextlib
import ctypes
import dataclasses
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import AdvisorFlags, mllvm
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.spawn import DEFAULT_FILE_BYTES, DEFAULT_MEMORY_BYTES
from compiler_opt.llvm.training_log import MAX_LINE_BYTES, Header, parse_header, parse_json_line

Decide = Callable[[bytes], int | float]
"""Returns the advice for the bytes of one observation (`Header.features` in order)."""

StartDeciding = Callable[[Header], Decide]
"""Called once, when the header has arrived."""


@runtime_checkable
class FollowsContexts(Protocol):
    """A `Decide` that also follows the context of the decisions."""

    def enter(self, context: str) -> None:
        """The following decisions are made in this module or function."""


@dataclasses.dataclass(frozen=True)
class Connection:
    """How a compiler is connected: arguments to append, and all environment variables; None for this process's."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None


Connect = Callable[[Path], Connection]
"""Returns the connection, given the base name of the pipes."""


def llvm_channel(advisor: AdvisorFlags, *, include_default: bool = False, takes_llvm_options: bool = False) -> Connect:
    """LLVM's own channel; for `include_default` see `AdvisorFlags.interactive_options`.

    With `takes_llvm_options` the program takes LLVM's options directly, as `opt` does, rather than after `-mllvm`.
    """

    def connect(base: Path) -> Connection:
        arguments = advisor.interactive_options(include_default=include_default)
        arguments += mllvm([f"{advisor.channel_base}={base}"])
        return Connection([word for word in arguments if word != "-mllvm"] if takes_llvm_options else arguments)

    return connect


MAX_OBSERVATION_BYTES = 1 << 29
"""The limit for one compilation, thousands of times what real modules send."""

_READ_BYTES = 1 << 16
_OBSERVATION = b'{"observation"'
_CONTEXT = b'{"context"'


@dataclasses.dataclass(frozen=True)
class FunctionOfDecisions:
    """The function in which each of T decisions was made: distinct names, and `[T]` int32 indices into them."""

    functions: tuple[str, ...]
    indices: np.ndarray


@dataclasses.dataclass(frozen=True)
class InteractiveResult:
    """The T decisions of one compilation.

    Attributes:
      process: the compiler's result; the rest is only meaningful if `process.ok`.
      header: features and advice; None if the compiler had nothing to decide and did not open the channel.
      observations: the concatenated bytes of T observations; `Header.decode` makes arrays of them.
      advice: T values.
      contexts: name and index of the first decision of each context (a module or function, as the compiler names it).
    """

    process: processes.ProcessResult
    header: Header | None
    observations: bytes
    advice: list[int | float]
    contexts: list[tuple[str, int]]

    def functions(self) -> FunctionOfDecisions | None:
        """See `functions_of`."""
        return functions_of(self.contexts, len(self.advice))


def functions_of(contexts: Sequence[tuple[str, int]], num_decisions: int) -> FunctionOfDecisions | None:
    """The context of each of T decisions; None if a decision has none.

    `contexts` are names and indices of the first decision of each context, as in a channel or training log.
    """
    if not contexts or contexts[0][1] != 0:
        return None
    names: dict[str, int] = {}
    indices = [names.setdefault(name, len(names)) for name, _ in contexts]
    lengths = np.diff([first for _, first in contexts], append=num_decisions)
    return FunctionOfDecisions(tuple(names), np.repeat(indices, lengths).astype(np.int32))


@contextlib.contextmanager
def _fifos(base: Path) -> Iterator[tuple[int, int]]:
    """Creates both FIFOs; yields descriptors for reading observations and for writing replies."""
    observations_path, replies_path = Path(f"{base}.out"), Path(f"{base}.in")
    with contextlib.ExitStack() as stack:
        for path in (observations_path, replies_path):
            os.mkfifo(path, 0o600)
            stack.callback(path.unlink, missing_ok=True)
        observations = os.open(observations_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, observations)
        # Opened for reading too, a FIFO neither waits for its other end nor raises SIGPIPE when that closes.
        replies = os.open(replies_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, replies)
        yield observations, replies


class _Conversation:
    """Splits the byte stream into messages and answers them."""

    def __init__(self, start_deciding: StartDeciding, replies: int):
        self.header: Header | None = None
        self.advice: list[int | float] = []
        self.contexts: list[tuple[str, int]] = []
        self.observations: list[bytes] = []
        self._start_deciding = start_deciding
        self._replies = replies
        self._packed: dict[int | float, bytes] = {}  # by advice, which is one of a few, or else a number
        self._buffer = b""
        self._num_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Handles every message that is now complete."""
        buffer = self._buffer + chunk if self._buffer else chunk
        while buffer:
            line_end = buffer.find(b"\n")
            if line_end < 0:
                if len(buffer) > MAX_LINE_BYTES:
                    raise ProtocolError(f"channel: a line of over {MAX_LINE_BYTES} bytes")
                break
            if buffer.startswith(_OBSERVATION):
                if self.header is None:
                    raise ProtocolError("channel: an observation came before the header")
                end = line_end + 1 + self.header.observation_bytes
                if len(buffer) <= end:
                    break
                if buffer[end] != 10:
                    raise ProtocolError(f"channel: expected a newline after observation {len(self.advice)}")
                self._answer(buffer[line_end + 1 : end])
                buffer = buffer[end + 1 :]
            else:
                self._line(buffer[:line_end])
                buffer = buffer[line_end + 1 :]
        self._buffer = buffer

    def _line(self, line: bytes) -> None:
        if self.header is None:
            self.header = parse_header(line)
            self._decide = self._start_deciding(self.header)
            decider: object = self._decide
            self._enter = decider.enter if isinstance(decider, FollowsContexts) else None
            advice = self.header.advice
            if advice.num_elements != 1:
                raise ProtocolError(f"channel: expected an advice of one number, found the shape {advice.shape}")
            self._pack = advice.dtype.type
        elif line.startswith(_CONTEXT):
            context = parse_json_line(line).get("context")
            if not isinstance(context, str):
                raise ProtocolError(f"channel: expected the name of a context, found {line[:80]!r}")
            self.contexts.append((context, len(self.advice)))
            if self._enter is not None:
                self._enter(context)
        else:
            raise ProtocolError(f"channel: expected a context or an observation, found {line[:80]!r}")

    def _answer(self, observation: bytes) -> None:
        self._num_bytes += len(observation)
        if self._num_bytes > MAX_OBSERVATION_BYTES:
            raise ProtocolError(f"channel: over {MAX_OBSERVATION_BYTES} bytes of observations in one compilation")
        advice = self._decide(observation)
        self.observations.append(observation)
        self.advice.append(advice)
        reply = self._packed.get(advice)
        if reply is None:
            reply = self._packed[advice] = self._pack(advice).tobytes()
        os.write(self._replies, reply)

    def finish(self) -> None:
        """Checks, after a successful compilation, that no message is incomplete."""
        if self._buffer:
            raise ProtocolError(
                f"channel: the last message is cut off after {len(self._buffer)} bytes: {self._buffer[:60]!r}"
            )


def compile_interactively(
    command: Sequence[str],
    *,
    connect: Connect,
    start_deciding: StartDeciding,
    scratch: Path,
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    file_bytes: int = DEFAULT_FILE_BYTES,
    sandbox: Sandbox | None = None,
) -> InteractiveResult:
    """Compiles once and answers every decision; if the compiler fails, see `InteractiveResult.process`.

    `command` lacks the channel's arguments, which come from `connect`, such as `llvm_channel`. `start_deciding` gets
    the header and returns what makes the decisions. `scratch` holds the pipes. The limits are wall-clock seconds, the
    compiler's address space, and the size of each file that it writes. A `sandbox` must let it write to `scratch`.

    Raises:
      ProtocolError: the compiler's messages do not have the expected format.
      ToolchainError: the compiler cannot be started.
    """
    deadline_s = time.monotonic() + timeout_s
    base = scratch / "channel"
    connection = connect(base)
    with (
        _fifos(base) as (observations, replies),
        os.fdopen(os.memfd_create("stderr", os.MFD_CLOEXEC), "w+b") as stderr,
        processes.start(
            [*command, *connection.arguments],
            stderr=stderr,
            memory_bytes=memory_bytes,
            file_bytes=file_bytes,
            environment=connection.environment,
            sandbox=sandbox,
        ) as child,
    ):
        conversation = _Conversation(start_deciding, replies)
        timed_out = not _converse(conversation, observations, child, deadline_s)
        if timed_out:
            child.kill()
        process = child.wait(timed_out=timed_out)
    if process.ok:
        conversation.finish()
    return InteractiveResult(
        process, conversation.header, b"".join(conversation.observations), conversation.advice, conversation.contexts
    )


def _converse(conversation: _Conversation, observations: int, child: processes.Child, deadline_s: float) -> bool:
    """Answers until the compiler has ended; False if the deadline comes first."""
    poll = select.poll()
    poll.register(observations, select.POLLIN)
    poll.register(child.pidfd, select.POLLIN)
    # Before the compiler opens the pipe, there is no event; when it closes it, POLLHUP without POLLIN.
    events = child.await_event(poll, deadline_s)
    if observations in dict(events):
        # From now on the pipe has a writer: reading waits for the next message, without asking first.
        os.set_blocking(observations, True)
        with child.watched(deadline_s) as timed_out, _on_one_cpu(child.pid):
            while chunk := os.read(observations, _READ_BYTES):
                conversation.feed(chunk)
        if timed_out.is_set():
            return False
    return bool(events) and processes.wait_for_exit(child, deadline_s)


@contextlib.contextmanager
def _on_one_cpu(pid: int) -> Iterator[None]:
    """Keeps this thread and a process, of which one waits for the other at any time, on the CPU where the thread is.

    Waking another CPU for each message would cost as much as the decision.
    """
    both, allowed = (0, pid), os.sched_getaffinity(0)
    here = {ctypes.CDLL(None).sched_getcpu()} & allowed
    try:
        for each in both:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(each, here)
        yield
    finally:
        for each in both:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(each, allowed)
