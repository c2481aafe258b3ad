import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds import database
from compiler_opt.corpus.builds.database import objects_of_database, read_database
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.errors import CorpusError


def write_database(path: Path, entries: Any) -> Path:
    path.write_text(json.dumps(entries))
    return path


def test_forms_of_entries(tmp_path: Path) -> None:
    entries = [
        {"directory": "/b", "file": "a.c", "command": "ccache clang -c a.c -o 'x y/a.o'"},
        {"directory": "/b", "file": "b.c", "arguments": ["clang", "-c", "b.c", "-ob.o"]},
        {"directory": "/b", "file": "c.c", "arguments": ["clang", "-c", "sub/c.c"]},
        {"directory": "/b", "file": "d.c", "output": "d.o", "command": "whatever"},
        {"directory": "/b", "file": "e.c", "command": "clang -E e.c -o e.i"},
        {"directory": "/b", "file": "a.c", "command": "clang -c a.c -o ./z/../x\\ y/a.o"},
        {"directory": "rel", "file": "f.c", "command": "clang -c f.c -o f.o"},
        {"directory": "/b", "file": "g.c", "command": "clang -o first.o --compile g.c --output=g.o"},
        {"directory": "/b", "file": "h.c", "command": "clang -c -S h.c -o h.s"},
        # As by CMake 3.31.
        {"directory": "/b/sub", "file": "j.c", "output": "sub/j.o", "command": "clang -c j.c -o j.o"},
        {"file": "i.c", "arguments": ["distcc", "clang", "-c", "i.c", "-o", "x\ny.o"]},
    ]
    objects = objects_of_database(write_database(tmp_path / "compile_commands.json", entries)).objects
    assert list(objects) == [
        ObjectFile(Path("/b/x y/a.o"), "x y/a.o"),
        ObjectFile(Path("/b/b.o"), "b.o"),
        ObjectFile(Path("/b/c.o"), "c.o"),
        ObjectFile(Path("/b/d.o"), "d.o"),
        ObjectFile(tmp_path / "rel/f.o", "f.o"),
        ObjectFile(Path("/b/g.o"), "g.o"),
        ObjectFile(Path("/b/sub/j.o"), "j.o"),
        ObjectFile(tmp_path / "x\ny.o", "x\ny.o"),
    ]


def test_names_are_relative_to_the_base_folder(tmp_path: Path) -> None:
    entries = [
        {"directory": "/b/x", "file": "a.c", "command": "clang -c a.c -o a.o"},
        {"directory": "/b/y", "file": "a.c", "command": "clang -c a.c -o a.o"},
    ]
    path = write_database(tmp_path / "compile_commands.json", entries)
    assert [item.name for item in objects_of_database(path, Path("/b")).objects] == ["x/a.o", "y/a.o"]
    with pytest.raises(CorpusError, match=r"/b/x/a.o and /b/y/a.o would both be module a.o; .* --obj_base_dir"):
        objects_of_database(path)
    with pytest.raises(CorpusError, match=r"/b/y/a.o is outside of /b/x; .* --obj_base_dir"):
        objects_of_database(path, Path("/b/x"))


def test_what_makes_no_object_is_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "link.rsp").write_text("-o app a.o")
    made = {
        database.LINKS: {
            "app": ": && clang++ -O3 a.o -o app && :",
            "with.rsp": "g++ @link.rsp",
            "libx.a": ": && cmake -E rm -f libx.a && llvm-ar-22 qc libx.a a.o && llvm-ranlib-22 libx.a && :",
            "part.o": "ld.lld -r a.o b.o -o part.o",
            "whole.o": "clang -r a.o b.o -o whole.o",
            "at once": "clang a.c -o 'at once'",
        },
        database.PHONY: {"all": "", "alias.o": ""},
        database.NO_COMPILATION: {"g.c": "cp s.c g.c", "sub/x": "cd sub && cmake -E touch x", "x.gz": "gzip -c a.c"},
        database.NO_OBJECT: {
            "a.i": "env A=1 clang -E a.c -o a.i",
            "a.s": "clang -c -S a.c -o a.s",
            "a.plist": "clang --analyze -c a.c",
        },
        database.HEADERS: {
            "x.pch": "clang++ -Xclang -emit-pch -x c++-header -o x.pch -c x.cxx",
            "y.gch": "g++ y.h -o y.gch",
        },
        database.FRONT_END: {"b.o": "clang-22 -cc1 -triple x -emit-obj -o b.o -x c b.c"},
        database.CLANG_CL: {"a.obj": "clang-cl /c /Foa.obj a.c", "b.obj": "ccache clang --driver-mode=cl /c b.c"},
    }
    entries = [
        {"file": file, "directory": ".", "output": output, "command": command}
        for commands in made.values()
        for output, command in commands.items()
        for file in ["y.h" if output == "y.gch" else "a.o" if "a.o" in command else "a.c"]
    ]
    entries.append({"file": "a.c", "directory": ".", "command": "cmake -E env A=1 nice clang -c a.c -o a.o"})
    build = objects_of_database(write_database(tmp_path / "compile_commands.json", entries))
    assert [item.name for item in build.objects] == ["a.o"]
    outputs = {reason: [Path(name).name for name in names] for reason, names in build.skipped.items()}
    assert outputs == {reason: [Path(name).name for name in names] for reason, names in made.items()}


def test_the_same_object_twice_is_one_module(tmp_path: Path) -> None:
    """As two recorders, a repeated build or a linked folder give it; the last command made the file."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    entries = [
        {"directory": ".", "file": "sub/a.c", "command": "clang -O1 -c sub/a.c -o sub/a.o"},
        {"directory": "sub", "file": "a.c", "command": "clang -O2 -c a.c"},
        {"directory": ".", "file": "sub/a.c", "command": "cd link && clang -O3 -c a.c"},
    ]
    path = write_database(tmp_path / "compile_commands.json", entries)
    build = objects_of_database(path, tmp_path)
    assert [item.path.resolve() for item in build.objects] == [tmp_path / "sub/a.o"]
    assert len(build.skipped[database.REPEATED]) == 2
    assert [command.words[1] for command in read_database(path).commands] == ["-O3"]
    assert len(objects_of_database(path).objects) == 1


@pytest.mark.parametrize("option", ["-working-directory={}", "-working-directory {}", "-working-directory=/x @file"])
def test_objects_are_in_clang_s_working_directory(option: str, tmp_path: Path) -> None:
    (tmp_path / "wd").mkdir()
    (tmp_path / "wd/a.c").write_text("int a(void) { return 1; }\n")
    (tmp_path / "file").write_text(f"-working-directory={tmp_path / 'wd'}")
    command = ["clang-22", *option.format(tmp_path / "wd").split(), "-c", "a.c", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    entries = [{"directory": str(tmp_path), "file": "a.c", "arguments": command}]
    path = write_database(tmp_path / "compile_commands.json", entries)
    assert [*objects_of_database(path).objects] == [ObjectFile(tmp_path / "wd/a.o", "wd/a.o")]
    assert (tmp_path / "wd/a.o").is_file()
    (found,) = read_database(path).commands
    assert (found.directory, found.source) == (tmp_path, tmp_path / "wd/a.c")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON"),
        (b"{}", "expected a list, found {}; give the compile_commands.json"),
        (b"[1]", "entry 0: expected a mapping, found 1"),
        (b'[{"file": "a.c", "directory": "/"}]', "entry 0: expected 'command' or 'arguments'"),
        (b'[{"file": "a.c", "command": "clang \'"}]', "cannot be split into words"),
        (b'[{"file": "a.c", "arguments": ["clang", 1]}]', "entry 0: arguments: expected str, found 1"),
        (b'[{"file": "a.c", "directory": "/b", "command": "clang -c a.c -o ../a.o"}]', "is outside of /b"),
        (
            b'[{"file": "a.c", "directory": 3, "command": "clang -c a.c"}]',
            "entry 0: directory: expected str | None, found 3",
        ),
        (b'[{"file": "a.c", "arguments": ["clang", "-c", "-o", "a\\u0000.o"]}]', "the object: expected a path"),
        (b'[{"file": "a.c", "arguments": ["clang", "-c", "-o", "a\\ud800.o"]}]', "characters that none can have"),
        (b'[{"file": "a.c", "directory": "/b", "arguments": ["clang", "-c", "-o", "../\\n"]}]', "is outside of /b"),
        (b"[" * 100_000, "expected JSON"),
    ],
)
def test_databases_that_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "compile_commands.json"
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        objects_of_database(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot be read .*CMAKE_EXPORT_COMPILE_COMMANDS"):
        objects_of_database(tmp_path / "compile_commands.json")


entry_values = st.one_of(st.none(), st.integers(), st.text(max_size=20), st.lists(st.text(max_size=8), max_size=4))

entry_objects = st.dictionaries(st.sampled_from(["directory", "file", "command", "arguments", "output"]), entry_values)


@given(st.lists(entry_objects, max_size=3))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_database_is_refused_in_one_line_or_gives_names_that_stay_inside(tmp_path: Path, entries: Any) -> None:
    path = write_database(tmp_path / "compile_commands.json", entries)
    try:
        objects = objects_of_database(path).objects
    except CorpusError as error:
        assert "\n" not in str(error)
        return
    assert all((Path("/corpus") / f"{item.name}.bc").is_relative_to("/corpus") for item in objects)
    assert all(".." not in Path(item.name).parts for item in objects)


def test_response_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("-c 'a b.c'\n@more @gone")
    (tmp_path / "more").write_text('-DX="\\"y\\"" -o "a b.o"')
    entries = [{"directory": ".", "file": "a b.c", "command": "clang @flags"}]
    (command,) = read_database(write_database(tmp_path / "compile_commands.json", entries)).commands
    assert command.output == tmp_path / "a b.o"
    assert command.words == ("clang", "-c", "a b.c", '-DX="y"', "-o", "a b.o", "@gone")


def test_a_response_file_that_names_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("-c @more")
    (tmp_path / "more").write_text("@flags")
    entries = [{"directory": ".", "file": "a.c", "command": "clang @flags"}]
    with pytest.raises(CorpusError, match=r"entry 0: @flags includes itself, by way of 2 files; fix the files"):
        objects_of_database(write_database(tmp_path / "compile_commands.json", entries))
