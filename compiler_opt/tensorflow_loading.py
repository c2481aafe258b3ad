"""Imports TensorFlow with the environment that it needs, and without its messages."""

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from absl import logging

from compiler_opt.errors import MissingPackageError

# TF-Agents 0.19 needs Keras 2, which TensorFlow uses only if this is set before its first import.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)

PACKAGES = ("tensorflow", "tf_agents")
"""What a minimal installation lacks."""

REMEDY = "run ./bootstrap.sh, or pip install 'compiler_opt[train]'" + (
    " and then pip install --no-deps 'tf-agents<0.20'" if sys.version_info >= (3, 12) else ""
)
"""docs/pythons.md says why it takes two."""


def missing_packages() -> list[str]:
    """Those of `PACKAGES` that are not installed; imports none."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def require_tensorflow(purpose: str) -> None:
    """Raises MissingPackageError, with the purpose, such as `training`, unless TensorFlow is installed."""
    if missing := missing_packages():
        raise MissingPackageError(
            f"{purpose} needs {' and '.join(missing)}, which this minimal installation lacks; {REMEDY}"
        )


def load_tensorflow(num_threads: int | None = None) -> None:
    """Imports TensorFlow and TF-Agents (some 4 s) without their messages, unless the import fails.

    Without a GPU, TensorFlow prints lines that look like errors; gym, which TF-Agents imports, prints a notice. With a
    number of threads, TensorFlow, which must not have computed anything yet, uses only so many.

    Raises:
      MissingPackageError: they are not installed.
    """
    require_tensorflow("this step")
    with stderr_held(), _interrupts_held(), _garbage_collection_paused():
        tensorflow = importlib.import_module("tensorflow")
        importlib.import_module("tf_agents.agents.ppo.ppo_clip_agent")
    if num_threads is not None:
        tensorflow.config.threading.set_intra_op_parallelism_threads(num_threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(num_threads)
    # TensorFlow logs each saved checkpoint.
    logging.set_verbosity(logging.WARNING)


@contextlib.contextmanager
def stderr_held() -> Iterator[None]:
    """Holds back stderr within the block, and shows it only if the block fails."""
    sys.stderr.flush()
    terminal = os.dup(2)
    captured = os.memfd_create("stderr", os.MFD_CLOEXEC)
    os.dup2(captured, 2)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(terminal, os.pread(captured, 1 << 20, 0))
        raise
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(captured)


@contextlib.contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Saves a quarter of the import: its half a million objects remain, and need no search for garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delays Ctrl-C, and SIGTERM where it does the same, to the end of the block.

    During the initialisation of one of TensorFlow's C++ modules, an interrupt is lost or becomes an ImportError.
    """
    held = [each for each in _INTERRUPTS if signal.getsignal(each) is signal.default_int_handler]
    if threading.current_thread() is not threading.main_thread() or not held:
        yield
        return
    received = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True

    for number in held:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt
