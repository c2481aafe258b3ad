"""One compilation whose decisions are made here: features come in over a pipe, advice goes out over another.

The compiler opens `BASE.in` (our replies) and `BASE.out` (its observations, in the format of `training_log`), both
FIFOs. What can go wrong, and what is done about it:

- it dies before it opens them: the process is watched beside the pipe, so we never wait for a writer that will not
come;
- it closes `BASE.out` and goes on compiling, or never opens it since there is nothing to decide: we wait for its end;
- it hangs, or sends half a message: there is a deadline for the whole compilation;
- we die: see `processes`; it would spin for ever on our closed pipe otherwise.
"""

import contextlib
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
from compiler_opt.llvm.training_log import MAX_LINE_BYTES, Header, parse_header, parse_json_line

Decide = Callable[[bytes], int | float]
"""Takes one observation's bytes (`Header.features` in order), returns the advice."""

StartDeciding = Callable[[Header], Decide]
"""Called once, when the header has come."""


@runtime_checkable
class FollowsContexts(Protocol):
    """What decides may want to know what about."""

    def enter(self, context: str) -> None:
        """The decisions that follow are made in this module or function."""


@dataclasses.dataclass(frozen=True)
class Connection:
    """How a compiler is told that its decisions are made here, and where.

    Attributes:
      arguments: what its command line gets.
      environment: its whole environment; None for ours.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None


Connect = Callable[[Path], Connection]
"""Given the base name of the pipes, tells how."""


def llvm_channel(advisor: AdvisorFlags, *, include_default: bool = False, takes_llvm_options: bool = False) -> Connect:
    """LLVM's own channel.

    Args:
      advisor: what is decided.
      include_default: see `AdvisorFlags.interactive_options`.
      takes_llvm_options: the program takes LLVM's options as they are, such as `opt`; clang wants `-mllvm` before each.
    """

    def connect(base: Path) -> Connection:
        arguments = advisor.interactive_options(include_default=include_default)
        arguments += mllvm([f"{advisor.channel_base}={base}"])
        return Connection([word for word in arguments if word != "-mllvm"] if takes_llvm_options else arguments)

    return connect


MAX_OBSERVATION_BYTES = 1 << 29
"""Over all decisions of one compilation; thousands of times what real modules send."""

_OBSERVATION = b'{"observation"'
_CONTEXT = b'{"context"'


@dataclasses.dataclass(frozen=True)
class FunctionOfDecisions:
    """Where decisions were made, T of them.

    Attributes:
      functions: the names that occur, each once.
      indices: `[T]` int32, index into `functions`.
    """

    functions: tuple[str, ...]
    indices: np.ndarray


@dataclasses.dataclass(frozen=True)
class InteractiveResult:
    """What was seen and said during one compilation.

    Attributes:
      process: how the compiler ended; look at `process.ok` before believing the rest.
      header: features and advice, or None when the compiler never opened the channel (nothing to decide).
      observations: the observations' bytes, T of them, one after the other; `Header.decode` makes arrays of them.
      advice: what was answered, T values.
      contexts: name and index of the first decision of each context (a module or function, as the compiler names it).
    """

    process: processes.ProcessResult
    header: Header | None
    observations: bytes
    advice: list[int | float]
    contexts: list[tuple[str, int]]

    def functions(self) -> FunctionOfDecisions | None:
        """The context of each decision; None when a decision has none."""
        return functions_of(self.contexts, len(self.advice))


def functions_of(contexts: Sequence[tuple[str, int]], num_decisions: int) -> FunctionOfDecisions | None:
    """The context of each decision.

    Args:
      contexts: name and index of the first decision of each, as channel and training log have them.
      num_decisions: T.

    Returns:
      None when a decision has none.
    """
    if not contexts or contexts[0][1] != 0:
        return None
    names: dict[str, int] = {}
    indices = [names.setdefault(name, len(names)) for name, _ in contexts]
    lengths = np.diff([first for _, first in contexts], append=num_decisions)
    return FunctionOfDecisions(tuple(names), np.repeat(indices, lengths).astype(np.int32))


@contextlib.contextmanager
def _fifos(base: Path) -> Iterator[tuple[int, int]]:
    """Makes both FIFOs; yields descriptors to read observations from and to write replies to."""
    observations_path, replies_path = Path(f"{base}.out"), Path(f"{base}.in")
    with contextlib.ExitStack() as stack:
        for path in (observations_path, replies_path):
            os.mkfifo(path, 0o600)
            stack.callback(path.unlink, missing_ok=True)
        observations = os.open(observations_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, observations)
        # Opened for both, a FIFO neither waits for its other end nor raises SIGPIPE when that goes.
        replies = os.open(replies_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, replies)
        yield observations, replies


class _Conversation:
    """Cuts the byte stream into messages and answers them."""

    def __init__(self, start_deciding: StartDeciding, replies: int):
        self.header: Header | None = None
        self.advice: list[int | float] = []
        self.contexts: list[tuple[str, int]] = []
        self.observations: list[bytes] = []
        self._start_deciding = start_deciding
        self._replies = replies
        self._buffer = b""
        self._num_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Handles every message that is complete by now."""
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
        os.write(self._replies, self._pack(advice).tobytes())

    def finish(self) -> None:
        """Called when the compiler has closed its end after a successful compilation."""
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
    memory_bytes: int = processes.DEFAULT_MEMORY_BYTES,
    file_bytes: int = processes.DEFAULT_FILE_BYTES,
) -> InteractiveResult:
    """Compiles once, answering every decision.

    Args:
      command: the compiler's argument list, without what is about the channel.
      connect: how it is told of the channel, such as `llvm_channel`.
      start_deciding: given the header, returns the callable that is asked for each decision.
      scratch: a directory of the caller's own, for the pipes.
      timeout_s: wall-clock seconds for the whole compilation.
      memory_bytes: limit on the compiler's address space.
      file_bytes: limit on each file that it writes.

    Returns:
      what was seen and said; a compiler that fails is not an exception (see `InteractiveResult.process`).

    Raises:
      ProtocolError: what the compiler sent is not the expected format.
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
    """Talks until the compiler has ended; False when the deadline came first."""
    poll = select.poll()
    poll.register(observations, select.POLLIN)
    poll.register(child.pidfd, select.POLLIN)
    while True:
        events = child.await_event(poll, deadline_s)
        if not events:
            return False
        ready = dict(events)
        # POLLHUP without POLLIN: a writer has been there and has closed. No writer yet: no event at all.
        if observations in ready:
            chunk = os.read(observations, 1 << 16)
            if chunk:
                conversation.feed(chunk)
                continue
            poll.unregister(observations)
        if child.pidfd in ready:
            return True
