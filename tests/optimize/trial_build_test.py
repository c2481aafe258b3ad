"""Objects that are replaced in a finished build, and linked again by its own tool."""

import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import probe
from compiler_opt.optimize import steps
from compiler_opt.optimize.cmake_program import CMakeProgram
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.program import Program, Variant
from compiler_opt.optimize.trial_build import TrialBuild
from tests.optimize.speed_programs import database, link_command

_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(work LANGUAGES C)
add_library(work STATIC work.c)
add_executable(bench bench.c)
target_link_libraries(bench work)
"""


def check(program: Program, bench: str, module: str, tmp_path: Path) -> None:
    compilers = steps.plain_compilers(probe("clang-22"))
    default = Variant(tmp_path / "out" / "build-default", compilers, ("-O2",))
    program.prepare(default)
    program.build(default, lambda done, total: None)
    other = tmp_path / "other.c"
    other.write_text(
        "unsigned work(unsigned n) { return n; } unsigned often(unsigned x) { return x; }"
        "unsigned once(unsigned x) { return x; }"
    )
    replacement = tmp_path / "other.o"
    subprocess.run(["clang-22", "-c", str(other), "-o", str(replacement)], check=True)

    def printed(folder: Path) -> bytes:
        return subprocess.run([folder / bench], check=True, capture_output=True).stdout

    plain = printed(default.folder)
    trial = TrialBuild(program, default, Variant(tmp_path / "out" / "build-trial", compilers, ("-O2",)))
    trial.link({module: replacement})
    assert printed(trial.folder) not in (plain, b"")
    trial.link({})
    assert printed(trial.folder) == plain
    with pytest.raises(ConfigError, match="expected an object for the module nothing, found none"):
        trial.link({"nothing": replacement})
    replacement.write_bytes(b"this is no object")
    with pytest.raises(ConfigError, match=r"linking failed|build failed"):
        trial.link({module: replacement})


def test_a_program_of_commands(tmp_path: Path) -> None:
    path = database(tmp_path / "source")
    check(DatabaseProgram(path, [link_command()], 2), "linked/bench", "bench/work.o", tmp_path)


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_a_cmake_build(tmp_path: Path, generator: str) -> None:
    database(tmp_path / "source")
    (tmp_path / "source" / "CMakeLists.txt").write_text(_CMAKE)
    clang = shutil.which("clang-22")
    command = ["cmake", "-G", generator, "-S", str(tmp_path / "source"), "-B", str(tmp_path / "build")]
    subprocess.run([*command, f"-DCMAKE_C_COMPILER={clang}"], check=True, capture_output=True)
    check(CMakeProgram(tmp_path / "build", 2), "bench", "bench/CMakeFiles/work.dir/work.c.o", tmp_path)
