"""Python processes of our own; they need no main guard in the user's program, which may come from stdin or a notebook.

Whatever multiprocessing spawns first imports the program that spawned it. Without a main guard, that starts processes
again; from stdin, there is nothing to import. The processes here import it only when they are sent an object that it
defines.
"""

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import spawn
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from compiler_opt.errors import ConfigError
from compiler_opt.llvm.processes import die_with_parent

_starting = threading.Lock()
"""Held while the process does not look like the user's program."""

UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)
"""What pickling raises for an object that cannot be sent to another process."""

SEND_REMEDY = "define classes and functions at the top level of a module"
RECEIVE_REMEDY = (
    "define it in a module that workers find or, in a script that has everything but definitions below "
    '`if __name__ == "__main__":`, above that line'
)


def start_process(target: Callable[..., None], connection: Connection, *arguments: object) -> SpawnProcess:
    """Starts `target(connection, *arguments)` in a process that ends with this one, and ignores interrupts.

    If an argument cannot be received there, it sends an exception over the connection, and ends.

    Raises:
      ConfigError: an argument cannot be pickled, or this process must not start others.
      OSError: the machine lacks memory or processes.
    """
    if multiprocessing.current_process().daemon:
        raise ConfigError("a daemon process, such as a worker, cannot start processes of its own")
    try:
        pickled = pickle.dumps(arguments)
    except UNPICKLABLE as error:
        raise ConfigError(f"the problem cannot be sent to workers: {error}; {SEND_REMEDY}") from error
    # spawn: the host may hold TensorFlow and its threads, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with _starting:
        program = {key: value for key, value in spawn.get_preparation_data("").items() if key.startswith("init_main")}
        process = context.Process(target=_run, args=(target, connection, pickled, program, os.getpid()), daemon=True)
        with _without_main_module():
            process.start()
    return process


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Processes that multiprocessing spawns in this context do not import this one's program."""
    main = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    kept = {name: getattr(main, name) for name in names if hasattr(main, name)}
    for name in kept:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


def _run(
    target: Callable[..., None], connection: Connection, pickled: bytes, program: Mapping[str, Any], host_pid: int
) -> None:
    """Runs in the process."""
    die_with_parent()
    if os.getppid() != host_pid:
        return
    # An interrupt goes to every process of the terminal; the host handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Unpickling looks an object of the program up in `__main__`.
    vars(sys.modules["__main__"])["__getattr__"] = functools.partial(_program_attribute, program)
    try:
        arguments = pickle.loads(pickled)  # noqa: S301 - from the process that has started this one
    except ConfigError as error:
        connection.send(error)
    except (AttributeError, ImportError) as error:
        connection.send(ConfigError(f"workers cannot import a class or function: {error}; {RECEIVE_REMEDY}"))
    else:
        target(connection, *arguments)


def _program_attribute(program: Mapping[str, Any], name: str) -> object:
    """An attribute of the host's program, which is imported for it.

    Raises:
      AttributeError: it has none of this name.
      ConfigError: it cannot be imported.
    """
    main = sys.modules["__main__"]
    if not name.startswith("__"):
        vars(main).pop("__getattr__", None)
        try:
            spawn.prepare(dict(program))  # From now on, this module is `__main__`.
        except (Exception, SystemExit) as error:
            [path] = program.values()
            raise ConfigError(f"{path}: workers import it for {name}, and cannot: {error}; {RECEIVE_REMEDY}") from error
        if sys.modules["__main__"] is not main:
            return getattr(sys.modules["__main__"], name)
    raise AttributeError(f"the host's program has no {name!r} that can be imported")
