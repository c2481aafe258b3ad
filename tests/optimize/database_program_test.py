"""A build's compile and link commands, run again in another folder."""

import json
import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.program import EMBED_BITCODE, Compilers, Kind, Variant, training_objects
from compiler_opt.optimize.target_sizes import measure
from tests.small_project import make_small_project

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
    program.build(variant, lambda done, total: progress.append((done, total)))
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


PRECOMPILED = {
    "by its name": "-include-pch all.h.pch",
    "by its header": "-include all.h",
    "as by CMake": "-Xclang -include-pch -Xclang all.h.pch -Xclang -include -Xclang all.h",
}


@pytest.mark.parametrize("use", PRECOMPILED.values(), ids=PRECOMPILED.keys())
def test_a_precompiled_header_of_another_level(use: str, toolchain: Toolchain, tmp_path: Path) -> None:
    """clang refuses it, so its text is compiled."""
    (tmp_path / "all.h").write_text("#pragma once\n#ifdef __OPTIMIZE_SIZE__\nint small();\n#endif\n")
    (tmp_path / "main.cpp").write_text("int small() { return 0; }\nint main() { return small(); }\n")
    make_header = [str(toolchain.tool("clang++")), "-O3", "-x", "c++-header", "-c", "all.h", "-o", "all.h.pch"]
    subprocess.run(make_header, cwd=tmp_path, check=True)
    entries = [
        {"directory": ".", "file": "all.h", "arguments": make_header},
        {"directory": ".", "file": "main.cpp", "command": f"g++ -O3 -Werror {use} -c main.cpp -o main.o"},
    ]
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps(entries))
    program = DatabaseProgram(path, ["g++ main.o -o main"], 1)
    variant = Variant(tmp_path / "copy", compilers(toolchain), ("-Oz", "-Wmissing-prototypes"))
    program.prepare(variant)
    program.build(variant, lambda done, total: None)
    assert [source.object.name for source in program.sources(variant)] == ["main.o"]


def test_a_precompiled_header_that_nothing_makes(tmp_path: Path) -> None:
    entry = {"directory": ".", "file": "main.cpp", "command": "g++ -include-pch gone.pch -c main.cpp"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    with pytest.raises(ConfigError, match=r"main.cpp: .* the precompiled header .*gone.pch, which no entry"):
        DatabaseProgram(tmp_path / "compile_commands.json", ["g++ main.o -o main"], 1)


def test_modules_are_left_alone(tmp_path: Path) -> None:
    """Their files would be written into the user's build."""
    entry = {"directory": ".", "file": "a.cppm", "command": "clang++ -fmodule-output=a.pcm -c a.cppm -o a.o"}
    other = {"directory": ".", "file": "b.cpp", "command": "clang++ -fmodule-file=a=a.pcm -c b.cpp -o b.o"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry, other]))
    with pytest.raises(ConfigError, match=r"b.cpp: is compiled with C\+\+ modules, .* --build_dir"):
        DatabaseProgram(tmp_path / "compile_commands.json", ["clang++ a.o b.o -o app"], 1)


def test_commands_as_builds_record_them(database: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    """Launchers of several words, response files, a working directory, further outputs, and objects nothing links."""
    folder = database.parent
    (folder / "objects.rsp").write_text("obj/draw.o 'lib/libshapes.a'")
    (folder / "flags.rsp").write_text("-DNAME='it\\'s' -MJ out.json -MMD -MFout.d")
    entries = json.loads(database.read_text())
    start = f"env -u X A=1 B=2 nice -n 5 ccache g++ -O3 -working-directory={folder} -Wp,-MMD,out.d @flags.rsp"
    entries[3]["command"] = f"{start} -c draw.cpp -o obj/draw.o"
    entries.append({"directory": str(folder), "file": "broken.cpp", "command": "g++ -c broken.cpp -o obj/broken.o"})
    entries.append(entries[0])
    database.write_text(json.dumps(entries))
    before = sorted(folder.rglob("*"))
    links = (LINKS[0], ": && cd . && env A=1 g++ @objects.rsp -o draw && :")
    program = DatabaseProgram(database, links, 2)
    assert program.compilers() == ("g++", "gcc")
    assert "Left out: 1 objects that no --link_command uses (broken.o)." in program.notes("-Oz")
    variant = Variant(tmp_path / "out" / "copy", compilers(toolchain), ("-Oz",))
    program.prepare(variant)
    program.build(variant, lambda done, total: None)
    assert [source.object.name for source in program.sources(variant)] == ["area.o", "edge.o", "list.o", "draw.o"]
    assert [target.uses for target in program.targets(variant)] == [(), ("libshapes.a",)]
    assert sorted(folder.rglob("*")) == before


def test_sources_of_one_name_are_two(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    entries = [{"directory": name, "file": "a.c", "command": "cc -c a.c"} for name in ("one", "two")]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    program = DatabaseProgram(tmp_path / "compile_commands.json", ["cc one/a.o two/a.o -o app"], 1)
    variant = Variant(tmp_path / "copy", Compilers(Path("cc"), Path("c++"), Path("ar")), ())
    for name in ("one", "two"):
        (tmp_path / "copy/objects" / name).mkdir(parents=True)
        (tmp_path / "copy/objects" / name / "a.o").touch()
    assert len({source.key for source in program.sources(variant)}) == 2


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


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], r"compiles no C or C\+\+ source; there"),
        ([{"file": "a.c", "command": "clang-cl /c a.c /Foa.obj"}], r"but has 1 entries of clang-cl, .*\(/c /Fo\)"),
    ],
)
def test_a_database_without_sources(entries: list[dict[str, str]], message: str, tmp_path: Path) -> None:
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    with pytest.raises(ConfigError, match=message):
        DatabaseProgram(tmp_path / "compile_commands.json", LINKS, 1)
