"""The two kinds of test suites: tests registered with CTest, and a command, which is one test."""

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import processes
from compiler_opt.llvm.processes import BUILD_TIMEOUT_S, ProcessResult
from compiler_opt.optimize.program import TestRun, TestSuite, Variant, build_environment

COMMAND_NAME = "test command"
"""The name of the only test of a `CommandSuite`."""

_TEST_TIMEOUT_S = 600
_FAILED_TESTS = Path("Testing", "Temporary", "LastTestsFailed.log")
"""Where CTest lists the tests that failed, a line each: `NUMBER:NAME`."""

_MAX_LIST_BYTES = 1 << 24
_MAX_SUMMARY = 200


class CTest(msgspec.Struct, frozen=True):
    """A test that is registered with CTest, as `ctest --show-only=json-v1` prints it."""

    name: str
    command: list[str] = []


class _Tests(msgspec.Struct):
    """The output of `ctest --show-only=json-v1`."""

    tests: list[CTest]


def registered_tests(ctest: str, folder: Path) -> list[CTest]:
    """The tests of a configured build folder, in CTest's order; none if they cannot be listed."""
    result = processes.run([ctest, "--show-only=json-v1"], cwd=folder)
    try:
        return convert(json.loads(result.stdout), _Tests).tests if result.ok else []
    except ValueError:
        return []


class CTestSuite(TestSuite):
    """The tests that a CMake project registers."""

    def __init__(self, ctest: str, tests: Sequence[CTest], jobs: int):
        """`ctest` is the program; it runs `jobs` of the `tests` at a time unless they are named."""
        self._ctest = ctest
        self._numbers = {test.name: number for number, test in enumerate(tests, 1)}
        self._jobs = jobs

    def run(
        self, variant: Variant, log: Path, names: Collection[str] = (), *, timeout_s: float = BUILD_TIMEOUT_S
    ) -> TestRun:
        gone = [name for name in names if name not in self._numbers]
        if gone:
            raise ConfigError(
                f"{variant.folder}: expected the test {gone[0]!r}, which failed before, found none of that name; "
                f"remove {variant.folder.parent} to start over"
            )
        command = [self._ctest, "--output-on-failure", "--timeout", str(_TEST_TIMEOUT_S)]
        if names:
            # By number: any name may be matched by a regular expression of CTest, which has no exact way to name one.
            numbers = sorted(self._numbers[name] for name in names)
            command += ["-j", "1", "-I", ",".join(map(str, (0, 0, 0, *numbers)))]
        else:
            command += ["-j", str(self._jobs)]
        failures = variant.folder / _FAILED_TESTS
        failures.unlink(missing_ok=True)  # CTest leaves the list of an earlier run if no test fails.
        result = processes.run_logged(
            command, log, timeout_s=timeout_s, cwd=variant.folder, environment=build_environment()
        )
        asked = frozenset(names or self._numbers)
        failed = _listed(failures) & asked
        if not result.ok and not failed:
            failed = asked  # CTest was stopped, or failed itself.
        return test_run(result, log, variant, sorted(failed, key=self._numbers.__getitem__))


class CommandSuite(TestSuite):
    """A command of the user's that runs in the build folder."""

    def __init__(self, command: Sequence[str]):
        self._command = tuple(command)

    def run(
        self, variant: Variant, log: Path, names: Collection[str] = (), *, timeout_s: float = BUILD_TIMEOUT_S
    ) -> TestRun:
        result = processes.run_logged(
            self._command, log, timeout_s=timeout_s, cwd=variant.folder, environment=build_environment()
        )
        return test_run(result, log, variant, () if result.ok else (COMMAND_NAME,))


def test_run(result: ProcessResult, log: Path, variant: Variant, failed: Sequence[str]) -> TestRun:
    """What a process that ran tests, and its output, say; `failed` tests failed."""
    with log.open(errors="replace") as file:
        lines = [line.strip()[:_MAX_SUMMARY] for line in file if line.strip()]
    summaries = [line for line in lines if re.search(r"tests? (passed|failed)", line)]
    summary = "ran out of time" if result.timed_out else (summaries or lines or ["no output"])[-1]
    return TestRun(not failed, summary, str(log.relative_to(variant.folder.parent)), tuple(failed))


def _listed(path: Path) -> frozenset[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_LIST_BYTES).decode("utf-8", "replace")
    except OSError:
        return frozenset()
    return frozenset(line.partition(":")[2] for line in text.splitlines())
