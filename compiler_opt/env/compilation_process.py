"""A process that compiles modules, and asks its host for each decision.

    process.begin(module, seed)
    event = process.next_event()           # a Question, or the Rollout at the end
    while isinstance(event, Question):
        process.answer(0)
        event = process.next_event()

A process of its own, because a compiler's host has one thread (`llvm.spawn`), and a learner may have many. It does
`collect.rollout.rollout`, as everything does, under a policy that asks.
"""

import contextlib
import dataclasses
import multiprocessing
import traceback
from multiprocessing.connection import Connection
from typing import Any

from compiler_opt.collect.python_process import start_process
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, CompilerOptError, ProtocolError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FunctionDecider, Policy
from compiler_opt.problem import AnyProblem, CompileTask

_SLACK_S = 60.0
"""Wall-clock seconds that the process may take beyond the compilation's timeout."""
_DIED = "has died, perhaps for lack of memory"


@dataclasses.dataclass(frozen=True)
class Question:
    """What the compiler asks, and waits for the answer.

    Attributes:
      header: the features of the observation.
      observation: their bytes.
    """

    header: Header
    observation: bytes


@dataclasses.dataclass(frozen=True)
class _Task:
    """A module to compile; `asks`: under the host's decisions, else under the default's."""

    module: Module
    seed: int
    asks: bool


class CompilationProcess:
    """The host's handle of the process, which starts with the first module and ends with `close`."""

    def __init__(self, toolchain: Toolchain, problem: AnyProblem, settings: RolloutSettings):
        self._shared = (toolchain, problem.task, settings)
        self._timeout_s = settings.timeout_s + _SLACK_S
        self._process: Any = None
        self._connection: Connection | None = None
        self._header: Header | None = None
        self._is_busy = False

    def begin(self, module: Module, seed: int) -> None:
        """Begins to compile a module under the host's decisions; an unfinished compilation is given up."""
        self._send_task(_Task(module, seed, asks=True))

    def default(self, module: Module) -> Rollout[Any]:
        """Compiles a module under the compiler's own decisions."""
        self._send_task(_Task(module, 0, asks=False))
        event = self.next_event()
        assert isinstance(event, Rollout)
        return event

    def next_event(self) -> Question | Rollout[Any]:
        """Waits for the next decision, or the end of the compilation.

        Raises:
          CompilerOptError: the compiler is unusable, or the process has died.
        """
        event = self._receive()
        if isinstance(event, Header):
            self._header = event
            event = self._receive()
        if isinstance(event, bytes):
            assert self._header is not None
            return Question(self._header, event)
        self._is_busy = False
        if isinstance(event, Exception):
            raise event
        assert isinstance(event, Rollout)
        return event

    def answer(self, advice: int | float) -> None:
        """Gives the advice that the compiler waits for.

        Raises:
          CompileError: the process has died.
        """
        self._send(advice)

    def close(self) -> None:
        """Ends the process, and its compiler with it."""
        if self._process is not None:
            assert self._connection is not None
            self._process.kill()
            self._process.join()
            self._process.close()
            self._connection.close()
        self._process, self._connection, self._is_busy = None, None, False

    def _send_task(self, task: _Task) -> None:
        if self._is_busy:
            self._give_up()
        if self._process is not None and not self._process.is_alive():
            self.close()
        if self._process is None:
            self._start()
        self._send(task)
        self._is_busy = True

    def _give_up(self) -> None:
        """Ends the compilation whose decision is awaited."""
        assert self._connection is not None
        with contextlib.suppress(OSError, CompilerOptError):
            self._connection.send(None)
            while isinstance(self.next_event(), Question):
                self._connection.send(None)
        if self._is_busy:
            self.close()

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = start_process(_serve, theirs, *self._shared)

    def _send(self, message: object) -> None:
        assert self._connection is not None
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._ended(_DIED) from error

    def _receive(self) -> object:
        assert self._connection is not None
        try:
            if self._connection.poll(self._timeout_s):
                received: object = self._connection.recv()
                return received
            reason = f"did not answer for {self._timeout_s:.0f} s"
        except (EOFError, OSError):
            reason = _DIED
        raise self._ended(reason)

    def _ended(self, reason: str) -> CompileError:
        """Closes, and returns the error that says why."""
        self.close()
        return CompileError(f"environment: the process that compiles {reason}; reset the environment")


class _AskingPolicy(Policy):
    """Sends each observation to the host, and takes its answer; None gives the compilation up."""

    name = "environment"

    def __init__(self, connection: Connection):
        self._connection = connection

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        self._connection.send(header)

        def ask(observation: bytes) -> int | float:
            self._connection.send(observation)
            answer: int | float | None = self._connection.recv()
            if answer is None:
                raise ProtocolError("environment: the episode was given up")
            return answer

        return FunctionDecider(ask)


def _serve(
    connection: Connection,
    toolchain: Toolchain,
    compile_task: CompileTask[Any],
    settings: RolloutSettings,
) -> None:
    """Runs in the process: does tasks until the host closes the connection or dies."""
    asking = _AskingPolicy(connection)
    default = compile_task.decision.default_policy or DefaultPolicy(compile_task)
    asked = dataclasses.replace(settings, backend="channel")
    with scratch_directory() as scratch, contextlib.suppress(EOFError):
        while True:
            task: _Task = connection.recv()
            answer: object
            try:
                answer = rollout(
                    task.module,
                    asking if task.asks else default,
                    compile_task,
                    toolchain,
                    scratch=scratch,
                    seed=task.seed,
                    settings=asked if task.asks else settings,
                )
            except CompilerOptError as error:
                answer = error
            except EOFError:
                raise
            except Exception:
                answer = RuntimeError(f"in the environment's process: {traceback.format_exc()}")
            connection.send(answer)
