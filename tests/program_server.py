"""Runs programs of this package in forks of a process that has loaded TensorFlow already, as a user would start them.

Loading TensorFlow and TF-Agents takes some 5 s of CPU time, our own modules and other libraries up to 2 s more, and the
tests run some three hundred programs. Each fork has its own working directory, environment, output and arguments, runs
the program as `__main__`, and ends as an interpreter does. What a program imports, and when, does not show in this way;
`floors_test.py` tests that.
"""

import atexit
import importlib
import json
import os
import pkgutil
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

import compiler_opt
from compiler_opt.tensorflow_loading import load_tensorflow
from tests.probed import COMPILERS, probed, remember_compilers

MAX_REQUEST_BYTES = 1 << 18

_NOT_LOADED = ("compiler_opt.__main__", "compiler_opt.env", "compiler_opt.tools", "compiler_opt.rl.train_")


def serve(connection: socket.socket) -> None:
    """Runs one program after the other until nobody asks any more.

    A request is JSON (`program`, `arguments`, `directory`, `environment`) with the descriptors of stdout and stderr.
    The answers are the process ID and, when it has ended, the exit status, which is negative for a signal.
    """
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 2)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
        os.chdir(request["directory"])
        # What is set before TensorFlow is loaded stays: it is loaded.
        kept = {name: os.environ[name] for name in ("TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL")}
        os.environ.clear()
        os.environ.update(kept | request["environment"])
        tempfile.tempdir = None
        sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path not in sys.path]
        status = _run(request["program"], request["arguments"])
    finally:
        os._exit(status)


def _run(program: str, arguments: list[str]) -> int:
    """Runs a script (a path) or a module (a name) as `__main__`; returns its exit status."""
    sys.argv = [program, *arguments]
    status = 0
    try:
        if program.endswith(".py"):
            sys.path[0] = str(Path(program).parent.absolute())
            runpy.run_path(program, run_name="__main__")
        else:
            sys.path[0] = str(Path.cwd())
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def load_libraries() -> None:
    """Imports all modules of this package but the entry points, each of which defines flags.

    No entry point uses environments.
    """
    remember_compilers()
    for name in filter(shutil.which, COMPILERS):
        probed(name)
    load_tensorflow()
    for module in pkgutil.walk_packages(compiler_opt.__path__, "compiler_opt."):
        if not module.name.startswith(_NOT_LOADED):
            importlib.import_module(module.name)


if __name__ == "__main__":
    load_libraries()
    serve(socket.socket(fileno=int(sys.argv[1])))
