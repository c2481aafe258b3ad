"""A CMake project, built in another folder with another compiler and other options."""

import dataclasses
from pathlib import Path

import pytest

from compiler_opt.corpus.builds.database import read_database
from compiler_opt.deploy.cmake_toolchain import cmake_toolchain
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.cmake_program import CMakeProgram
from compiler_opt.optimize.program import EMBED_BITCODE, Compilers, Kind, Variant
from compiler_opt.optimize.target_sizes import measure
from tests.small_project import configure, make_small_project

_OTHERS = [pytest.param(each, marks=pytest.mark.slow) for each in ("Unix Makefiles", "Ninja Multi-Config")]


@pytest.fixture(params=[pytest.param("Ninja"), *_OTHERS])
def build_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A user's build folder."""
    return configure(
        make_small_project(tmp_path / "source"), tmp_path / "user", "-G", request.param, "-DCMAKE_CXX_STANDARD=17"
    )


def variant(toolchain: Toolchain, folder: Path, *options: str) -> Variant:
    return Variant(folder, Compilers(toolchain.clang, toolchain.tool("clang++"), toolchain.tool("llvm-ar")), options)


def nothing(done: int, total: int) -> None:
    pass


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.mark.ci
def test_a_copy_of_the_build(build_dir: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    before = files(build_dir), files(tmp_path / "source")
    program = CMakeProgram(build_dir, 2)
    assert program.name == "shapes"
    assert "compiled at -Oz" in program.notes("-Oz")[0]
    copy = variant(toolchain, tmp_path / "out" / "copy", "-Oz", *EMBED_BITCODE)
    program.prepare(copy)
    progress: list[tuple[int, int]] = []
    program.build(copy, lambda done, total: progress.append((done, total)))
    assert progress[-1][0] == progress[-1][1]
    assert (files(build_dir), files(tmp_path / "source")) == before  # the user's folders are left alone

    targets = {target.name: target for target in program.targets(copy)}
    assert {name: target.kind for name, target in targets.items()} == {
        "shapes": Kind.STATIC,
        "draw": Kind.EXECUTABLE,
        "shapes_test": Kind.EXECUTABLE,
    }  # `unbuilt` is not built by default
    assert targets["draw"].uses == ("shapes",)
    assert [target.name for target in targets.values() if target.installed] == ["shapes"]
    assert program.test_programs(copy) == {"shapes_test"}
    assert program.test_suite(copy) is not None

    sources = {source.object.name: source for source in program.sources(copy)}
    assert {source.target for source in sources.values()} == {"shapes", "draw", "shapes_test"}
    assert len(sources) == 5
    commands = (copy.folder / "compile_commands.json").read_text()
    # The project asks for -O1 and the build type for -O3: ours comes last.
    assert commands.count("-O1") == commands.count("-Oz -Xclang -fembed-bitcode=all -o ") >= 5
    assert "-std=" in commands  # the user's setting

    lld = toolchain.tool("ld.lld")
    sizes = {size.name: size for size in measure(program, copy, copy, lld)}
    assert {name: size.role for name, size in sizes.items()} == {
        "shapes": "main",
        "draw": "main",
        "shapes_test": "test",
    }
    assert sizes["draw"].default_bytes == sizes["draw"].optimized_bytes == read_parts(copy.folder / "draw").total
    members = [source.object.path for source in sources.values() if source.target == "shapes"]
    together = sum(read_parts(each).total for each in members)
    assert 0 < sizes["shapes"].default_bytes < together  # `often` is in two of them


@pytest.mark.ci
def test_an_installed_program_that_a_test_runs_is_a_main_target(toolchain: Toolchain, tmp_path: Path) -> None:
    source = make_small_project(tmp_path / "source")
    with (source / "CMakeLists.txt").open("a") as lists:
        lists.write("add_test(NAME drawing COMMAND draw 5)\ninstall(TARGETS draw)\n")
    program = CMakeProgram(configure(source, tmp_path / "user"), 2)
    copy = variant(toolchain, tmp_path / "copy", "-Oz")
    program.prepare(copy)
    program.build(copy, nothing)
    assert program.test_programs(copy) == {"draw", "shapes_test"}
    sizes = measure(program, copy, copy, toolchain.tool("ld.lld"))
    assert {size.name: size.role for size in sizes} == {"shapes": "main", "draw": "main", "shapes_test": "test"}


@pytest.mark.ci
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_options_reach_compiler_and_linker_as_they_are(generator: str, tmp_path: Path, toolchain: Toolchain) -> None:
    user = configure(make_small_project(tmp_path / "source"), tmp_path / "user", "-G", generator)
    program = CMakeProgram(user, 2)
    options = variant(toolchain, tmp_path / "copy", "-O1", f"-I{tmp_path / 'a folder'}")
    copy = dataclasses.replace(options, link_options=(f"-Wl,-Map={tmp_path / 'a map'}",))
    program.prepare(copy)
    program.build(copy, nothing)
    assert (tmp_path / "a map").is_file()
    assert "a folder" in (copy.folder / "compile_commands.json").read_text()


TOOLCHAIN_FILES = {
    "by name": "set(CMAKE_C_COMPILER gcc)\nset(CMAKE_CXX_COMPILER g++)\nset(CMAKE_AR /usr/bin/ar)\n",
    "by path, in the cache": 'set(CMAKE_CXX_COMPILER /usr/bin/g++ CACHE STRING "" FORCE)\n',
    "as deploy writes it": cmake_toolchain("", [("Oz",)]),
}


@pytest.mark.ci
@pytest.mark.parametrize("text", TOOLCHAIN_FILES.values(), ids=TOOLCHAIN_FILES.keys())
def test_a_toolchain_file_that_sets_compilers(text: str, tmp_path: Path, toolchain: Toolchain) -> None:
    """The copy has other compilers, and everything else of the file; it may lie in the build folder."""
    file = tmp_path / "user/share/mlgo/toolchain.cmake"
    file.parent.mkdir(parents=True)
    (tmp_path / "user/bin").mkdir()
    for name in ("mlgo-clang", "mlgo-clang++"):
        (tmp_path / "user/bin" / name).symlink_to("/usr/bin/cc" if name == "mlgo-clang" else "/usr/bin/c++")
    file.write_text(f"{text}add_compile_definitions(OF_THE_FILE)\n")
    source = make_small_project(tmp_path / "source")
    user = configure(source, tmp_path / "user", f"-DCMAKE_TOOLCHAIN_FILE={file}", "-G", "Ninja")
    program = CMakeProgram(user, 2)
    assert [Path(name).is_file() for name in program.compilers()] == [True, True]
    copy = variant(toolchain, tmp_path / "copy", "-Oz")
    program.prepare(copy)
    commands = read_database(copy.folder / "compile_commands.json").commands
    assert {command.words[0] for command in commands} == {str(toolchain.clang), str(toolchain.tool("clang++"))}
    assert all("-DOF_THE_FILE" in command.words for command in commands)
    assert f" {toolchain.tool('llvm-ar')} " in f" {(copy.folder / 'CMakeFiles/rules.ninja').read_text()} "


@pytest.mark.ci
def test_an_interrupted_build_continues(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    program = CMakeProgram(configure(make_small_project(tmp_path / "source"), tmp_path / "user"), 1)
    # The user's build was configured without it, so copies are, too.
    monkeypatch.setenv("CMAKE_TOOLCHAIN_FILE", "/no/such/file")
    copy = variant(toolchain, tmp_path / "copy", "-Oz")
    program.prepare(copy)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.build(copy, interrupt)
    program.prepare(copy)
    program.build(copy, nothing)
    assert {target.name for target in program.targets(copy)} == {"shapes", "draw", "shapes_test"}


@pytest.mark.ci
def test_a_failed_build_names_the_error(tmp_path: Path, toolchain: Toolchain) -> None:
    source = make_small_project(tmp_path / "source")
    program = CMakeProgram(configure(source, tmp_path / "user"), 1)
    copy = variant(toolchain, tmp_path / "copy", "-Oz")
    (source / "area.cpp").write_text("int area( {}\n")
    program.prepare(copy)
    with pytest.raises(ConfigError, match=r"the build failed: .*area.cpp:1:\d+: error: .*see .*copy-build.log"):
        program.build(copy, nothing)
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.14)\nproject(x)\nfind_package(Nowhere REQUIRED)\n"
    )
    with pytest.raises(
        ConfigError, match=r"cannot configure it: CMake Error at CMakeLists.txt:3 .*see .*configure.log"
    ):
        program.prepare(variant(toolchain, tmp_path / "other", "-Oz"))


@pytest.mark.ci
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add_custom_target(nothing)", "has no C or C[+][+] source; there is nothing to optimise"),
        ("set(CMAKE_CXX_COMPILER /usr/bin/g++)\nadd_library(a area.cpp)", "compiles .*area.cpp with /usr/bin/g"),
    ],
)
def test_projects_that_cannot_be_optimised(text: str, message: str, tmp_path: Path, toolchain: Toolchain) -> None:
    source = make_small_project(tmp_path / "source")
    (source / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.14)\nproject(x)\n{text}\n")
    program = CMakeProgram(configure(source, tmp_path / "user"), 1)
    with pytest.raises(ConfigError, match=message):
        program.prepare(variant(toolchain, tmp_path / "copy", "-Oz"))
