"""Tests by CTest: names, those that fail, and runs of some of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.optimize.program import Compilers, Variant
from compiler_opt.optimize.suites import CTestSuite, registered_tests

LISTS = """
cmake_minimum_required(VERSION 3.19)
project(tests NONE)
enable_testing()
add_test(NAME fine COMMAND sh -c "echo fine >> ran")
add_test(NAME "odd (1) a.b+c [x]" COMMAND sh -c "echo odd >> ran; exit 1")
add_test(NAME gone COMMAND nowhere)
add_test(NAME off COMMAND sh -c "exit 1")
set_tests_properties(off PROPERTIES DISABLED ON)
add_test(NAME a:b COMMAND sh -c "exit 1")
"""
ODD = "odd (1) a.b+c [x]"


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    (tmp_path / "CMakeLists.txt").write_text(LISTS)
    folder = tmp_path / "build"
    options = ["-S", str(tmp_path), "-B", str(folder), "-DCMAKE_POLICY_DEFAULT_CMP0110=NEW"]
    subprocess.run(["cmake", *options], check=True, capture_output=True)
    nowhere = tmp_path / "nowhere"
    return Variant(folder, Compilers(nowhere, nowhere, nowhere), ())


def test_which_tests_fail(variant: Variant) -> None:
    ctest = shutil.which("ctest") or "ctest"
    tests = registered_tests(ctest, variant.folder)
    assert [test.name for test in tests] == ["fine", ODD, "gone", "off", "a:b"]
    suite, log = CTestSuite(ctest, tests, 2), variant.log("tests")
    run = suite.run(variant, log)
    assert (run.passed, run.failed) == (False, (ODD, "gone", "a:b"))
    assert run.summary == "25% tests passed, 3 tests failed out of 4"
    assert run.log == "logs/build-tests.log"

    ran = variant.folder / "ran"
    ran.unlink()
    assert suite.run(variant, log, [ODD]).failed == (ODD,)
    assert ran.read_text() == "odd\n"
    # CTest still has its list of those that failed before.
    passed = suite.run(variant, log, ["fine"])
    assert (passed.passed, passed.failed) == (True, ())
    with pytest.raises(ConfigError, match="expected the test 'new', which failed before, found none of that name"):
        suite.run(variant, log, ["fine", "new"])


def test_a_ctest_that_is_stopped_has_passed_nothing(variant: Variant) -> None:
    ctest = shutil.which("ctest") or "ctest"
    suite = CTestSuite(ctest, registered_tests(ctest, variant.folder), 2)
    run = suite.run(variant, variant.log("tests"), ["fine"], timeout_s=0)
    assert (run.passed, run.failed, run.summary) == (False, ("fine",), "ran out of time")
