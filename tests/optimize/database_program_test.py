"""A build's compile and link commands, run again in another folder."""

import json
from pathlib import Path

import pytest

from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.program import EMBED_BITCODE, Compilers, Kind, Variant, training_objects
from compiler_opt.optimize.results import measure
from tests.small_project import make_small_project

pytestmark = pytest.mark.either_compiler

LINKS = (
    "ar rcs lib/libshapes.a obj/area.o obj/edge.o obj/list.o",
    "g++ -flto obj/draw.o -Llib -lshapes -o draw -Wl,-s",
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The database of a build by hand, of which only the sources are left."""
    source = make_small_project(tmp_path / "source")
    entries = []
    for name in ("area.cpp", "edge.cpp", "list.c", "draw.cpp"):
        driver = "gcc" if name.endswith(".c") else "ccache g++"
        stem = name.partition(".")[0]
        command = f"{driver} -O3 -DNDEBUG -MMD -MF obj/{stem}.d -I. -c {name} -o obj/{stem}.o"
        entries.append({"directory": str(source), "file": name, "command": command})
    path = source / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def compilers(toolchain: Toolchain) -> Compilers:
    return Compilers(toolchain.clang, toolchain.tool("clang++"), toolchain.tool("llvm-ar"))


def test_the_commands_are_run_again(database: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    before = sorted(database.parent.rglob("*"))
    program = DatabaseProgram(database, LINKS, 2)
    assert (program.name, program.compilers()) == ("draw", ("g++", "gcc"))
    variant = Variant(tmp_path / "out" / "copy", compilers(toolchain), ("-Oz", *EMBED_BITCODE))
    program.prepare(variant)
    progress: list[tuple[int, int]] = []
    assert program.build(variant, lambda done, total: progress.append((done, total))).cpu_s > 0
    assert progress == [(number, 6) for number in range(1, 7)]
    assert sorted(database.parent.rglob("*")) == before

    targets = program.targets(variant)
    assert [(target.name, target.kind, target.uses) for target in targets] == [
        ("libshapes.a", Kind.STATIC, ()),
        ("draw", Kind.EXECUTABLE, ("libshapes.a",)),
    ]
    roles = {size.name: size.role for size in measure(program, variant, variant, toolchain.tool("ld.lld"))}
    assert roles == {"draw": "main", "libshapes.a": "part"}
    objects = training_objects(program.sources(variant), targets, frozenset())
    extraction = extract(objects, tmp_path / "corpus")
    assert extraction.modules == tuple(f"draw/{name}.o" for name in ("area", "draw", "edge", "list"))

    # What is there is not compiled again.
    (variant.folder / "objects" / "edge.o").unlink()
    stamp = (variant.folder / "objects" / "area.o").stat().st_mtime_ns
    program.build(variant, lambda done, total: None)
    assert (variant.folder / "objects" / "area.o").stat().st_mtime_ns == stamp
    assert (variant.folder / "objects" / "edge.o").exists()


def test_a_failed_compilation_names_the_error(database: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    (database.parent / "edge.cpp").write_text("nonsense\n")
    program = DatabaseProgram(database, LINKS, 2)
    variant = Variant(tmp_path / "copy", compilers(toolchain), ("-Oz",))
    program.prepare(variant)
    with pytest.raises(ConfigError, match=r"the build failed: .*edge.cpp:1:1: error"):
        program.build(variant, lambda done, total: None)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ((), "--compile_commands needs --link_command"),
        (("g++ 'a",), "cannot be split into words"),
        (("zip a.zip obj/area.o",), "expected a command of a compiler driver or of ar"),
        (("g++ obj/area.o",), "expected the name of its output"),
        (("g++ other/area.o -o app",), "uses no object that .* makes"),
    ],
)
def test_wrong_link_commands(links: tuple[str, ...], message: str, database: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        DatabaseProgram(database, links, 1)


def test_a_database_without_sources(tmp_path: Path) -> None:
    (tmp_path / "compile_commands.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"compiles no C or C\+\+ source"):
        DatabaseProgram(tmp_path / "compile_commands.json", LINKS, 1)
