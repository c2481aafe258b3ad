"""Fixtures for every test: the two compilers that this project is tested with."""

import functools
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import hypothesis
import numpy as np
import pytest

from compiler_opt.llvm.toolchain import Toolchain
from tests.cpu_times import CpuTimes
from tests.made_once import FOLDER, made_once
from tests.probed import COMPILERS, probed, remember_compilers
from tests.real_observations import Decisions, real_decisions, real_observations

_T = TypeVar("_T")

remember_compilers()  # before modules of tests import it

# A deadline would be a timed test: on a busy machine it fails.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


@pytest.fixture(params=COMPILERS, scope="module")
def clang_path(request: pytest.FixtureRequest) -> str:
    """Absolute path of each tested compiler in turn; a missing one is a failure, since the two differ in behaviour."""
    path = shutil.which(request.param)
    if path is None:
        pytest.fail(f"{request.param} is not installed; ./run_tests.sh installs what the tests need")
    return path


@pytest.fixture(scope="module")
def toolchain(clang_path: str) -> Toolchain:
    """Each tested compiler, probed."""
    return probed(clang_path)


@pytest.fixture(scope="module")
def observations(clang_path: str) -> dict[str, np.ndarray]:
    """Some 2,000 real inlining decisions: features `[T]` int64 by name, those of the default decisions first."""
    return _observations(clang_path)


@functools.cache
def _observations(clang_path: str) -> dict[str, np.ndarray]:
    return _made_once(lambda folder: real_observations(probed(clang_path), folder, 2000), "observations", clang_path)


@pytest.fixture(scope="module")
def evictions(clang_path: str) -> Decisions:
    """Over 2,000 real decisions about live-range eviction."""
    return _decisions("regalloc_eviction", clang_path)


@pytest.fixture(scope="module")
def priorities(clang_path: str) -> Decisions:
    """Over 1,000 real decisions about allocation priority."""
    return _decisions("regalloc_priority", clang_path)


@functools.cache
def _decisions(problem: str, clang_path: str) -> Decisions:
    return _made_once(lambda folder: real_decisions(problem, probed(clang_path), folder), problem, clang_path)


def _made_once(make: Callable[[Path], _T], *key: str) -> _T:
    """What the function makes in a temporary folder; workers share it."""

    def pickled() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return pickle.dumps(make(Path(folder)))

    made: _T = pickle.loads(made_once(pickled, key))  # noqa: S301
    return made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="show the CPU seconds of each test file")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's `&` makes programs ignore it; tests interrupt what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        # Workers inherit the variable.
        folder = tempfile.TemporaryDirectory(prefix="compiler_opt-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ[FOLDER] = folder.name
    if config.getoption("--cpu"):
        config.pluginmanager.register(CpuTimes())


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        older = callspec is not None and callspec.params.get("clang_path") == "clang-19"
        if older and not item.get_closest_marker("both_compilers"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
