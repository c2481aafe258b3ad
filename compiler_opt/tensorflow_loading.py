"""Loads TensorFlow with the environment that it needs, and without what it prints meanwhile."""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from absl import logging

# TF-Agents 0.19 is written against Keras 2, which TensorFlow looks for only when this is set before its first import.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def load_tensorflow() -> None:
    """Imports TensorFlow and TF-Agents (some 5 s) without what they print while at it.

    On a machine without a GPU, TensorFlow's libraries print lines that read like errors and are none; gym, which
    TF-Agents imports, prints a notice about its own future. Should the import fail, all that was printed is shown.
    """
    with stderr_held(), _interrupts_held():
        importlib.import_module("tensorflow")
        importlib.import_module("tf_agents.agents.ppo.ppo_clip_agent")
    # How TensorFlow saves a checkpoint is of no interest, 150 times a run.
    logging.set_verbosity(logging.WARNING)


@contextlib.contextmanager
def stderr_held() -> Iterator[None]:
    """What libraries print to stderr within the block is shown only if it fails."""
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
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block.

    An interrupt in the middle of TensorFlow's import is lost, or becomes an ImportError, when it meets the
    initialisation of one of its C++ modules.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
