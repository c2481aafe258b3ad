import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds.database import objects_of_database
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.extract import extract
from compiler_opt.corpus.making.writing import MadeCorpus
from compiler_opt.errors import CorpusError, OutputError

SOURCES = {
    "lib/list.c": "int length(const char *s) { int n = 0; while (*s++) n++; return n; }\n",
    "lib/sum.cc": "template <class T> T add(T a, T b) { return a + b; }\nint sum(int a, int b) { return add(a, b); }\n",
    "main.cc": "int sum(int, int);\nint main() { return sum(1, 2); }\n",
}


@pytest.fixture(name="build", scope="module")
def build_fixture(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built project: sources, `out/` with objects that embed bitcode, and `compile_commands.json`."""
    root = tmp_path_factory.mktemp("build")
    entries = []
    for source, text in SOURCES.items():
        (root / source).parent.mkdir(exist_ok=True)
        (root / source).write_text(text)
        target = f"out/{source}.o"
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        command = [clang_path, "-Oz", f"-DNAME={source}", "-Xclang", "-fembed-bitcode=all", "-c", source, "-o", target]
        subprocess.run(command, cwd=root, check=True)
        entries.append({"directory": str(root), "file": source, "command": " ".join(command)})
    (root / "compile_commands.json").write_text(json.dumps(entries))
    return root


def write_database(path: Path, entries: Any) -> Path:
    path.write_text(json.dumps(entries))
    return path


def run(build: Path, output: Path, **options: Any) -> MadeCorpus:
    return extract(objects_of_database(build / "compile_commands.json").objects, output, **options)


def test_a_build_in_clang_s_working_directory(clang_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "wd"
    folder.mkdir()
    (folder / "sum.cc").write_text(SOURCES["lib/sum.cc"])
    start = f"cmake -E env A=1 nice -n 5 {clang_path} -Oz -working-directory={folder}"
    command = f"{start} -Xclang -fembed-bitcode=all -c sum.cc -o sum.o"
    subprocess.run(command.split()[7:], cwd=tmp_path, check=True)
    write_database(tmp_path / "compile_commands.json", [{"directory": ".", "file": "sum.cc", "command": command}])
    assert run(tmp_path, tmp_path / "corpus").modules == ("wd/sum.o",)
    (module,) = Corpus.load(tmp_path / "corpus").modules
    again = compile_command(clang_path, module.options(), module.bitcode_path, tmp_path / "again.o")
    subprocess.run(again, cwd=tmp_path, check=True)
    plain = [clang_path, "-Oz", "-c", "sum.cc", "-o", str(tmp_path / "plain.o")]
    subprocess.run(plain, cwd=folder, check=True)
    assert (tmp_path / "again.o").read_bytes() == (tmp_path / "plain.o").read_bytes()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_build_becomes_a_corpus_that_rebuilds_it(
    build: Path, clang_path: str, tmp_path: Path, num_workers: int
) -> None:
    extraction = run(build, tmp_path / "corpus", num_workers=num_workers)
    assert extraction == MadeCorpus(("out/lib/list.c.o", "out/lib/sum.cc.o", "out/main.cc.o"), ())
    corpus = Corpus.load(tmp_path / "corpus")
    assert tuple(module.name for module in corpus.modules) == extraction.modules
    assert corpus.compiler_version() is not None
    assert f"-{(corpus.compiler_version() or (0,))[0]}" in clang_path
    for module in corpus.modules:
        source = module.name.removeprefix("out/").removesuffix(".o")
        plain = [clang_path, "-Oz", f"-DNAME={source}", "-c", source, "-o", str(tmp_path / "plain.o")]
        subprocess.run(plain, cwd=build, check=True)
        again = compile_command(clang_path, module.options(), module.bitcode_path, tmp_path / "again.o")
        subprocess.run(again, check=True)
        assert (tmp_path / "again.o").read_bytes() == (tmp_path / "plain.o").read_bytes()


def test_llvm_objcopy_reads_the_same(build: Path, clang_path: str, tmp_path: Path) -> None:
    objcopy = Path(clang_path).resolve().with_name("llvm-objcopy")
    run(build, tmp_path / "own")
    run(build, tmp_path / "objcopy", llvm_objcopy=objcopy)
    files = sorted(path.relative_to(tmp_path / "own") for path in (tmp_path / "own").rglob("*.o.*"))
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "own" / file).read_bytes() == (tmp_path / "objcopy" / file).read_bytes()


def test_other_byte_orders_and_widths(clang_path: str, tmp_path: Path) -> None:
    objects = []
    for target in (
        "aarch64-linux-gnu",
        "armv7-linux-gnueabihf",
        "s390x-linux-gnu",
        "mips-linux-gnu",
        "riscv64-linux-gnu",
        "powerpc64-linux-gnu",
    ):
        command = [clang_path, f"--target={target}", "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", "-x", "c", "-"]
        path = tmp_path / f"{target}.o"
        subprocess.run([*command, "-o", str(path)], input=b"int twice(int x) { return x * 2; }", check=True)
        objects.append(ObjectFile(path, path.name))
    assert len(extract(objects, tmp_path / "corpus").modules) == 6
    for module in Corpus.load(tmp_path / "corpus").modules:
        subprocess.run(compile_command(clang_path, module.options(), module.bitcode_path, "/dev/null"), check=True)


def test_the_command_filter_is_tried_on_each_option(build: Path, tmp_path: Path) -> None:
    extraction = run(build, tmp_path / "one", cmd_filter="^NAME=lib/")
    assert (extraction.modules, extraction.filtered) == (("out/lib/list.c.o", "out/lib/sum.cc.o"), 1)
    assert run(build, tmp_path / "two", cmd_filter="^-Oz$").filtered == 0
    with pytest.raises(CorpusError, match="drops all 3 modules"):
        run(build, tmp_path / "three", cmd_filter="^-O2$")
    with pytest.raises(CorpusError, match="is not a regular expression"):
        run(build, tmp_path / "four", cmd_filter="(")


def test_objects_without_a_module_are_named_and_left_out(build: Path, clang_path: str, tmp_path: Path) -> None:
    plain, text = tmp_path / "plain.o", tmp_path / "text.o"
    subprocess.run([clang_path, "-c", "-x", "c", "-", "-o", str(plain)], input=b"int x;", check=True)
    text.write_text("no object")
    bad = [ObjectFile(plain, "plain.o"), ObjectFile(text, "text.o"), ObjectFile(tmp_path / "gone.o", "gone.o")]
    good = objects_of_database(build / "compile_commands.json").objects
    extraction = extract([*bad, *good], tmp_path / "corpus", num_workers=2)
    assert len(extraction.modules) == 3
    assert [path for path, _ in extraction.failures] == [plain, text, tmp_path / "gone.o"]
    assert "has no section .llvmbc and .llvmcmd; compile with -Xclang -fembed-bitcode=all" in extraction.failures[0][1]
    assert "expected an ELF object" in extraction.failures[1][1]
    assert "No such file" in extraction.failures[2][1]
    with pytest.raises(CorpusError, match=r"none of the 3 objects holds a module; the first: .*plain"):
        extract(bad, tmp_path / "none")
    assert not (tmp_path / "none" / "corpus_description.json").exists()


def link_together(clang_path: str, target: Path, objects: Iterable[Path]) -> Path:
    linker = Path(clang_path).resolve().with_name("ld.lld")
    subprocess.run([str(linker), "-r", "-o", str(target), *map(str, objects)], check=True)
    return target


def test_an_object_linked_of_several_becomes_several_modules(build: Path, clang_path: str, tmp_path: Path) -> None:
    run(build, tmp_path / "single")
    joined = link_together(clang_path, tmp_path / "joined.o", sorted((build / "out" / "lib").glob("*.o")))
    extraction = extract([ObjectFile(joined, "joined.o")], tmp_path / "corpus")
    assert extraction.modules == ("joined.o.0", "joined.o.1")
    for module, single in (("joined.o.0", "list.c"), ("joined.o.1", "sum.cc")):
        for suffix in ("bc", "cmd"):
            whole = (tmp_path / "single" / "out" / "lib" / f"{single}.o.{suffix}").read_bytes()
            assert (tmp_path / "corpus" / f"{module}.{suffix}").read_bytes() == whole
    # The filter applies to each of them.
    filtered = extract([ObjectFile(joined, "joined.o")], tmp_path / "filtered", cmd_filter="^NAME=lib/sum")
    assert (filtered.modules, filtered.filtered) == (("joined.o.1",), 1)


def test_linked_objects_of_which_some_have_no_commands_are_named(build: Path, clang_path: str, tmp_path: Path) -> None:
    lonely = tmp_path / "lonely.o"
    command = [clang_path, "-Xclang", "-fembed-bitcode=bitcode", "-c", "-x", "c", "-", "-o", str(lonely)]
    subprocess.run(command, input=b"int lonely;", check=True)
    joined = link_together(clang_path, tmp_path / "joined.o", [build / "out" / "main.cc.o", lonely])
    with pytest.raises(CorpusError, match=r"holds 2 pieces of bitcode and 1 command lines \(ld -r\); give the objects"):
        extract([ObjectFile(joined, "joined.o")], tmp_path / "corpus")


def test_modules_of_one_object_do_not_take_the_names_of_others(build: Path, clang_path: str, tmp_path: Path) -> None:
    joined = link_together(clang_path, tmp_path / "joined.o", sorted((build / "out" / "lib").glob("*.o")))
    objects = [ObjectFile(joined, "joined.o"), ObjectFile(build / "out" / "main.cc.o", "joined.o.1")]
    extraction = extract(objects, tmp_path / "corpus")
    assert extraction.modules == ("joined.o.1",)
    assert "holds several modules, but joined.o.1 is another object's name" in extraction.failures[0][1]


def test_nothing_is_written_through_symlinks_in_the_output(build: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(OutputError, match=r"is a link that leaves"):
        run(build, tmp_path / "corpus", overwrite=True)
    assert not any((tmp_path / "outside").iterdir())


def test_a_name_too_long_for_a_file_is_left_out(build: Path, tmp_path: Path) -> None:
    objects = [ObjectFile(build / "out" / "main.cc.o", name) for name in ("m.o", "n" * 255)]
    extraction = extract(objects, tmp_path / "corpus")
    assert extraction.modules == ("m.o",)
    assert "its name is too long for a file" in extraction.failures[0][1]


def test_a_folder_that_is_not_empty_needs_overwrite(build: Path, tmp_path: Path) -> None:
    run(build, tmp_path)
    with pytest.raises(OutputError, match="is not empty"):
        run(build, tmp_path)
    run(build, tmp_path, overwrite=True)
    assert len(Corpus.load(tmp_path).modules) == 3


def test_an_output_that_cannot_be_written(build: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        run(build, tmp_path / "file" / "corpus")


def test_paths_that_are_not_utf8(build: Path, clang_path: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\n.o")
    (tmp_path / name).write_bytes((build / "out" / "main.cc.o").read_bytes())
    entry = {"directory": str(tmp_path), "file": "x.c", "arguments": ["clang", "-c", "x.c", "-o", "NAME"]}
    data = json.dumps([entry]).encode().replace(b"NAME", b"caf\xe9\\n.o")
    (tmp_path / "compile_commands.json").write_bytes(data)
    extract(objects_of_database(tmp_path / "compile_commands.json").objects, tmp_path / "corpus")
    assert [module.name for module in Corpus.load(tmp_path / "corpus").modules] == [name]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_damaged_objects_are_refused_or_extracted(
    build: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray((build / "out" / "main.cc.o").read_bytes())
    del content[data.draw(st.integers(1, len(content))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "m.o").write_bytes(content)
    try:
        extract([ObjectFile(folder / "m.o", "m.o")], folder / "corpus")
    except CorpusError as error:
        assert "\n" not in str(error)
        assert not (folder / "corpus" / "corpus_description.json").exists()
    else:
        Corpus.load(folder / "corpus")
