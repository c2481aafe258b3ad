"""A short run of all fuzzing targets; `python -m benchmarks.fuzz` is the long one."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fuzz import native, readers
from tests.fuzz.seeds import seeds as make_seeds

_NATIVE_INPUTS = 1500
_READER_INPUTS = 300
_MIN_COVERAGE = {
    "command_line": 450,
    "configuration": 400,
    "decision_file": 90,
    "elf_file": 300,
    "policy_network": 300,
}


@pytest.fixture(scope="module")
def clang() -> Path:
    found = shutil.which("clang-22")
    assert found is not None, "clang-22 is not installed; ./run_tests.sh installs what the tests need"
    return Path(found)


@pytest.fixture(scope="module")
def program(clang: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native.build(clang, tmp_path_factory.mktemp("fuzzers") / "fuzzers", optimisation="-O0")


@pytest.fixture(scope="module")
def seeds(clang: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[bytes]]:
    return make_seeds(clang, tmp_path_factory.mktemp("seeds"))


@pytest.mark.ci
@pytest.mark.parametrize("target", native.TARGETS)
def test_cpp_parsers_are_memory_safe(target: str, program: Path, tmp_path: Path) -> None:
    kept = native.unpack(target, tmp_path / "corpus")
    fuzzed = native.run(
        program, target, tmp_path / "corpus", tmp_path, inputs=kept + _NATIVE_INPUTS, seed=1, timeout_s=300
    )
    assert fuzzed.finding == ""
    assert fuzzed.inputs >= kept + _NATIVE_INPUTS
    # The kept inputs are valid and reach the code behind the first checks.
    assert fuzzed.coverage >= _MIN_COVERAGE[target]


def test_a_program_that_fails_is_a_finding(program: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    fuzzed = native.run(program, "none", tmp_path / "corpus", tmp_path, inputs=1, seed=1, timeout_s=300)
    assert "expected --target=NAME" in fuzzed.finding


@pytest.mark.parametrize("name", readers.READERS)
def test_python_readers_read_or_refuse(name: str, seeds: Mapping[str, list[bytes]], tmp_path: Path) -> None:
    fuzzed = readers.run(name, readers.READERS[name], seeds[name], tmp_path, inputs=_READER_INPUTS, seed=1)
    assert fuzzed.finding == ""
    assert 0 < fuzzed.coverage < _READER_INPUTS
    for seed in seeds[name]:
        if name != "remarks":  # Its decisions would be needed to read all of it.
            readers.READERS[name](seed)


@pytest.mark.parametrize("error", [IndexError("out of range"), ValueError("two\nlines"), AssertionError()])
def test_another_error_is_a_finding(error: Exception, tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        if len(data) != 3:
            raise error

    fuzzed = readers.run("example", read, [b"abc"], tmp_path, inputs=100, seed=1)
    assert fuzzed.finding.startswith(type(error).__name__)
    (kept,) = tmp_path.iterdir()
    assert len(kept.read_bytes()) != 3
