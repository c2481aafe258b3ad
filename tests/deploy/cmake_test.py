"""CMake projects that need more of a toolchain than its compiler."""

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from compiler_opt.deploy.cmake_toolchain import cmake_toolchain
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.toolchain import deployed_clang, find_clang
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN

MODULE = f"module;\n#include <cstddef>\nexport module lean;\nexport {{\n{LEAN.replace('static ', '')}\n}}\n"
MAIN = "#include <cstddef>\nimport lean;\nint main() { return unit() + flat() == cube(); }\n"


# Of the environment of these tests, even where that is not activated: Debian 12 has one that knows no modules.
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "cmake"


def configure(compiler: Compiler, project: Path, text: str) -> str:
    """What CMake says."""
    (project / "CMakeLists.txt").write_text(text)
    command = [CMAKE, "-B", "build", "-G", "Ninja", "-DCMAKE_C_FLAGS=-Oz", "-DCMAKE_CXX_FLAGS=-Oz"]
    command += [f"-DCMAKE_C_COMPILER={compiler.driver}", f"-DCMAKE_CXX_COMPILER={compiler.cpp_driver}"]
    result = run(command, project)
    assert result.returncode == 0, result.stderr
    return result.stdout


def build_and_run(project: Path) -> None:
    result = run(["ninja", "-C", "build"], project)
    assert (result.returncode, "mlgo: " in result.stdout) == (0, False), result.stdout
    assert run(["build/program"], project).returncode == 0


@pytest.mark.ci
def test_interprocedural_optimization(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "lean.cpp").write_text(LEAN)
    (tmp_path / "main.cpp").write_text(MAIN.replace("import lean;", "int unit(), flat(), cube();"))
    said = configure(
        compiler,
        tmp_path,
        """cmake_minimum_required(VERSION 3.16)
project(ipo C CXX)
include(CheckIPOSupported)
check_ipo_supported(LANGUAGES C CXX)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
add_library(lean STATIC lean.cpp)
add_executable(program main.cpp)
target_link_libraries(program lean)
message(STATUS "tools: ${CMAKE_CXX_COMPILER_AR} ${CMAKE_C_COMPILER_RANLIB}")
""",
    )
    tools = [str(compiler.prefix / "bin" / f"mlgo-llvm-{tool}-{compiler.major}") for tool in ("ar", "ranlib")]
    assert f"-- tools: {' '.join(tools)}\n" in said
    build_and_run(tmp_path)


TWO_LANGUAGES = """cmake_minimum_required(VERSION 3.16)
project(two C CXX)
add_library(both OBJECT lean.c fat.cpp)
"""


def test_the_toolchain_file(damageable: Compiler, tmp_path: Path) -> None:
    """It needs no more than the build type, and moves with the prefix."""
    moved = dataclasses.replace(damageable, prefix=damageable.prefix.with_name("elsewhere, it is"))
    damageable.prefix.rename(moved.prefix)
    toolchain = moved.prefix / "share/mlgo" / f"toolchain-{moved.major}.cmake"
    sources = {"lean.c": LEAN, "fat.cpp": FAT}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "CMakeLists.txt").write_text(TWO_LANGUAGES)
    command = [CMAKE, "-G", "Ninja", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DCMAKE_BUILD_TYPE=MinSizeRel", "-B"]
    for options, level in (
        ([], "-Oz"),
        (["-DCMAKE_C_FLAGS_MINSIZEREL=-O1", "-DCMAKE_CXX_FLAGS_MINSIZEREL=-O1"], "-O1"),
    ):
        assert run([*command, f"build{level}", *options], tmp_path).returncode == 0
        assert run(["ninja", "-C", f"build{level}"], tmp_path).returncode == 0
        for name in sources:
            compile_it = moved.with_policy if level == "-Oz" else moved.plain
            assert compile_it([level, "-DNDEBUG", "-c", name, "-o", "expected.o"], tmp_path).returncode == 0
            made = tmp_path / f"build{level}/CMakeFiles/both.dir/{name}.o"
            assert made.read_bytes() == (tmp_path / "expected.o").read_bytes(), (name, level)


def test_the_toolchain_file_yields_to_a_given_compiler(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "lean.c").write_text(LEAN)
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(one C)\n")
    toolchain = compiler.prefix / "share/mlgo" / f"toolchain-{compiler.major}.cmake"
    command = [CMAKE, "-G", "Ninja", "-B", "build", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"]
    for options, expected in (([], compiler.driver), ([f"-DCMAKE_C_COMPILER={compiler.clang}"], compiler.clang)):
        assert run([*command, *options, "--fresh"], tmp_path).returncode == 0
        (found,) = (tmp_path / "build").glob("CMakeFiles/*/CMakeCCompiler.cmake")
        assert f'set(CMAKE_C_COMPILER "{expected}")\n' in found.read_text()


def test_the_clang_of_a_deployment_is_found_and_named(compiler: Compiler, tmp_path: Path) -> None:
    """Also behind a link; optimize trains with it rather than with a compiler that has a policy."""
    (tmp_path / "clang").symlink_to(compiler.driver)
    for path in (compiler.driver, compiler.cpp_driver):
        assert deployed_clang(path) == Path(compiler.clang)
    for path in (compiler.driver, str(tmp_path / "clang")):
        with pytest.raises(ToolchainError, match=r"is a compiler with a policy.*--clang_path=/"):
            find_clang(path)
    assert deployed_clang(compiler.clang) is None


def test_toolchain_files_follow_the_levels() -> None:
    cases: list[tuple[list[tuple[str, ...]], bool]] = [
        ([("Oz",)], True),
        ([("Os", "Oz")], False),
        ([("O2", "O3")], False),
        ([("O2",), ("Oz",)], True),
        ([("Oz",), ("Os", "O2")], True),
    ]
    for levels, sets_oz in cases:
        text = cmake_toolchain("-22", levels)
        assert '/bin/mlgo-clang++-22")\n' in text
        assert ('set(CMAKE_CXX_FLAGS_MINSIZEREL "-Oz -DNDEBUG" CACHE' in text) == sets_oz, levels


def scan_deps(compiler: Compiler) -> Path:
    path = compiler.prefix / "bin" / f"mlgo-clang-scan-deps-{compiler.major}"
    assert path.exists(), f"clang-scan-deps-{compiler.major} is not installed; ./run_tests.sh installs it"
    return path


def test_modules(compiler: Compiler, tmp_path: Path) -> None:
    """As CMake builds them: asked what needs what, then compiled in that order."""
    (tmp_path / "lean.cppm").write_text(MODULE)
    (tmp_path / "main.cpp").write_text(MAIN)
    compile_it = [compiler.cpp_driver, "-Oz", "-std=c++20", "-c"]
    scan = [str(scan_deps(compiler)), "-format=p1689", "--", *compile_it]
    found = [json.loads(run([*scan, *words], tmp_path).stdout)["rules"][0] for words in (["lean.cppm"], ["main.cpp"])]
    assert [rule["provides"][0]["logical-name"] for rule in found[:1]] == ["lean"]
    assert [rule["requires"][0]["logical-name"] for rule in found[1:]] == ["lean"]
    objects = []
    for driver in (compiler.cpp_driver, compiler.clang):
        for words in ("-fmodule-output=lean.pcm lean.cppm -o lean.o", "-fmodule-file=lean=lean.pcm main.cpp -o main.o"):
            result = run([driver, *compile_it[1:], *words.split()], tmp_path)
            assert (result.returncode, result.stderr) == (0, "")
        objects.append((tmp_path / "lean.o").read_bytes())
    assert objects[0] != objects[1]
    assert run([compiler.cpp_driver, "lean.o", "main.o", "-o", "program"], tmp_path).returncode == 0
    assert run(["./program"], tmp_path).returncode == 0


def test_modules_by_cmake(compiler: Compiler, tmp_path: Path) -> None:
    scan = scan_deps(compiler)
    (tmp_path / "lean.cppm").write_text(MODULE)
    (tmp_path / "main.cpp").write_text(MAIN)
    said = configure(
        compiler,
        tmp_path,
        """cmake_minimum_required(VERSION 3.28)
project(modules CXX)
set(CMAKE_CXX_STANDARD 20)
add_executable(program main.cpp)
target_sources(program PRIVATE FILE_SET CXX_MODULES FILES lean.cppm)
message(STATUS "tool: ${CMAKE_CXX_COMPILER_CLANG_SCAN_DEPS}")
""",
    )
    assert f"-- tool: {scan}\n" in said
    build_and_run(tmp_path)
