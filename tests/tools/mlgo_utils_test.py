"""Commands for corpora of google/ml-compiler-opt's demos, and `--nocheck`, with the input of LLVM's own tests."""

import json
import shlex
import struct
import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.command_lines.driver_options import to_cc1
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import CorpusError
from tests import programs

CLANG = "/usr/bin/clang-22"
SOURCE = "static int twice(int x) { return 2 * x; } int NAME(int x) { return twice(x) + twice(x + 1); }"
DRIVER_OPTIONS = ["-fPIC", "-no-canonical-prefixes", "-O2", "-nostdlib++", "--sysroot=/path/to/sysroot", "-c"]
"""Those of the demo, without its -mllvm options, which need --trust_corpus."""


def run(tool: str, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Stdout and stderr of one of our tools."""
    result = programs.run(f"compiler_opt.tools.{tool}", *arguments)
    assert result.returncode == status, result.stderr
    return result.stdout, result.stderr


def names_of(corpus: Path) -> list[str]:
    return [module.name for module in Corpus.load(corpus).modules]


@pytest.mark.ci
def test_the_demos_extract_the_modules_that_their_filters_keep(tmp_path: Path) -> None:
    entries = []
    for level in ("O0", "O2", "O3", "Os", "Oz"):
        (tmp_path / f"{level}.c").write_text(SOURCE.replace("NAME", level))
        arguments = [CLANG, f"-{level}", "-Xclang", "-fembed-bitcode=all", "-c", f"{level}.c", "-o", f"{level}.o"]
        subprocess.run(arguments, cwd=tmp_path, check=True)
        entries.append({"directory": str(tmp_path), "file": f"{level}.c", "command": shlex.join(arguments)})
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    for name, pattern, kept in (
        ("inlining", "^-O2|-Os|-Oz$", ["O2.o", "Os.o", "Oz.o"]),
        ("regalloc", "^-O2|-O3", ["O2.o", "O3.o"]),
    ):
        run(
            "extract_ir",
            f"--cmd_filter={pattern}",
            f"--input={tmp_path / 'compile_commands.json'}",
            "--input_type=json",
            "--llvm_objcopy_path=/usr/bin/llvm-objcopy-22",
            f"--output_dir={tmp_path / name}",
        )
        assert names_of(tmp_path / name) == kept


@pytest.fixture(scope="module", name="link")
def link_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a local ThinLTO link."""
    root = tmp_path_factory.mktemp("link")
    (root / "a.c").write_text(SOURCE.replace("NAME", "a"))
    (root / "main.c").write_text("int a(int); int main(int n, char **v) { return a(n) + a(n + 1); }")
    for name in ("a", "main"):
        subprocess.run(
            [CLANG, "-O2", "-fPIC", "-flto=thin", "-c", f"{name}.c", "-o", f"{name}.o"], cwd=root, check=True
        )
    save = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files"]
    command = [CLANG, "-O2", "-flto=thin", "-fuse-ld=lld", *save, "-Wl,--lto-O2", "a.o", "main.o", "-o", "program"]
    subprocess.run(command, cwd=root, check=True)
    return root


@pytest.mark.ci
def test_a_thinlto_corpus_compiles_with_options_of_the_driver(link: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    _, said = run(
        "extract_ir",
        "--cmd_filter=^-O2|-O3",
        "--llvm_objcopy_path=/usr/bin/llvm-objcopy-22",
        f"--output_dir={corpus}",
        "--thinlto_build=local",
        f"--obj_base_dir={link}",
    )
    assert "note: --cmd_filter keeps all modules: those of --thinlto_build=local have no options" in said
    assert names_of(corpus) == ["a.o", "main.o"]

    description = json.loads((corpus / "corpus_description.json").read_text())
    objects = {}
    for name, options in (("ours", description["global_command_override"]), ("theirs", DRIVER_OPTIONS)):
        (corpus / "corpus_description.json").write_text(json.dumps(description | {"global_command_override": options}))
        for module in Corpus.load(corpus).modules:
            target = tmp_path / f"{name}.o"
            command = compile_command(CLANG, module.options(CLANG), module.bitcode_path, target)
            assert f"-fthinlto-index={corpus / module.name}.thinlto.bc" in command
            subprocess.run(command, check=True)
            objects[name, module.name] = text_bytes(target)
    plain = tmp_path / "plain.o"
    index = f"-fthinlto-index={corpus / 'a.o'}.thinlto.bc"
    extra = ["-x", "ir", str(corpus / "a.o.bc"), index, "-mllvm", "-thinlto-assume-merged", "-o", str(plain)]
    subprocess.run([CLANG, *DRIVER_OPTIONS, *extra], check=True)
    assert objects["theirs", "a.o"] == text_bytes(plain)
    assert objects["ours", "a.o"] > 0

    out, _ = run("corpus_stats", f"--data_path={corpus}", f"--clang_path={CLANG}", "--decisions")
    assert "levels: -O2 2" in out


def text_bytes(path: Path) -> int:
    """What llvm-size calls text."""
    output = subprocess.run(["llvm-size-22", path], capture_output=True, text=True, check=True).stdout
    return int(output.splitlines()[1].split()[0])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["<UNSPECIFIED>"], "global_command_override: is <UNSPECIFIED>; write the options of the build"),
        (["-O2", "-fplugin=x.so"], "'-load' is not an option that a corpus may use"),
        (["-O2", "@file"], "'@file' is not an option of clang's driver that a corpus may use"),
        (["-O2", "-mllvm", "@file"], "'-mllvm @file' is not an option of clang's driver that a corpus may use"),
        (["-O2", "--config=x"], "'--config=x' is not an option of clang's driver"),
        (["-O2", "-B/bin"], "'-B/bin' is not an option of clang's driver"),
        (["-O2", "-mllvm"], "'-mllvm' is the last option, but takes a value"),
        (["-O2", "-fno-such-thing"], "unknown argument"),
    ],
)
def test_driver_options_that_a_corpus_may_not_use(options: list[str], complaint: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    subprocess.run([CLANG, "-emit-llvm", "-c", "x.c", "-o", "x.bc"], cwd=tmp_path, check=True)
    description = {"global_command_override": options, "has_thinlto": False, "modules": ["x"]}
    (tmp_path / "corpus_description.json").write_text(json.dumps(description))
    [module] = Corpus.load(tmp_path).modules
    with pytest.raises(CorpusError) as caught:
        compile_command(CLANG, module.options(CLANG), module.bitcode_path, tmp_path / "x.o")
    assert complaint in str(caught.value)


def test_driver_options_are_passed_on_as_they_are() -> None:
    """The driver prints them quoted, not as Python's shlex reads them."""
    option = "-fdebug-compilation-dir=/a$b\"c\\d 'e'"
    assert option in to_cc1(CLANG, ("-O2", option), has_index=False, trusted=True)


def test_make_corpus_without_checks(tmp_path: Path) -> None:
    (tmp_path / "in" / "lib").mkdir(parents=True)
    for name in ("test1.bc", "lib/test2.bc"):
        (tmp_path / "in" / name).touch()
    flags = [f"--input_dir={tmp_path / 'in'}", f"--output_dir={tmp_path / 'out'}", "--default_args=-test --more"]
    run("make_corpus", *flags, status=2)
    _, said = run("make_corpus", *flags, "--nocheck")
    assert said.count("warning: --nocheck: takes any *.bc files and any --default_args as they are") == 1
    assert json.loads((tmp_path / "out/corpus_description.json").read_text()) == {
        "global_command_override": ["-test", "--more"],
        "has_thinlto": False,
        "modules": ["lib/test2", "test1"],
    }
    assert (tmp_path / "out/test1.bc").read_bytes() == (tmp_path / "out/lib/test2.bc").read_bytes() == b""
    with pytest.raises(CorpusError):
        Corpus.load(tmp_path / "out")


def test_combine_training_corpus_without_checks(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / f"subcorpus{number}"
        folder.mkdir()
        description = {"has_thinlto": False, "modules": [f"test{number}.o"]}
        (folder / "corpus_description.json").write_text(json.dumps(description))
    run("combine_training_corpus", f"--root_dir={tmp_path}", status=2)
    _, said = run("combine_training_corpus", f"--root_dir={tmp_path}", "--nocheck")
    assert said.count("warning: --nocheck: takes descriptions as they are") == 1
    combined = json.loads((tmp_path / "corpus_description.json").read_text())
    assert combined["modules"] == ["subcorpus1/test1.o", "subcorpus2/test2.o"]
    assert combined["has_thinlto"] is False


def test_extract_ir_without_checks(link: Path, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "x.c").write_text("int x;")
    (tmp_path / "code").write_bytes(struct.pack("B", 0x55))
    (tmp_path / "options").write_bytes(struct.pack("B", 0xFF))
    for name in ("test1.o", "test2.o"):
        target = tmp_path / "build" / name
        subprocess.run([CLANG, "-c", tmp_path / "x.c", "-o", target], check=True)
        sections = [f"--add-section=.llvmbc={tmp_path / 'code'}", f"--add-section=.llvmcmd={tmp_path / 'options'}"]
        subprocess.run(["llvm-objcopy-22", *sections, target], check=True)
    flags = [f"--input={tmp_path / 'build'}", "--input_type=directory", f"--output_dir={tmp_path / 'out'}"]
    run("extract_ir", *flags, "--llvm_objcopy_path=llvm-objcopy-22", status=2)
    _, said = run("extract_ir", *flags, "--llvm_objcopy_path=llvm-objcopy-22", "--nocheck")
    assert said.count("warning: --nocheck: takes any contents of the sections") == 1
    description = json.loads((tmp_path / "out/corpus_description.json").read_text())
    assert description == {"has_thinlto": False, "modules": ["test1.o", "test2.o"]}
    assert (tmp_path / "out/test1.o.bc").read_bytes() == b"\x55"
    assert (tmp_path / "out/test1.o.cmd").read_bytes().rstrip(b"\0") == b"\xff"

    local = ["--thinlto_build=local", f"--obj_base_dir={link}", f"--output_dir={tmp_path / 'local'}", "--nocheck"]
    run("extract_ir", *local)
    description = json.loads((tmp_path / "local/corpus_description.json").read_text())
    assert description["global_command_override"] == ["<UNSPECIFIED>"]
    assert description["has_thinlto"] is True
    assert sorted(description["modules"]) == ["a.o", "main.o"]
    assert (tmp_path / "local/a.o.bc").read_bytes() == (link / "a.o.3.import.bc").read_bytes()
    assert (tmp_path / "local/a.o.thinlto.bc").read_bytes() == (link / "a.o.thinlto.bc").read_bytes()
