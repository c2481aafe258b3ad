import json
import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.description import Corpus
from tests import programs


def extract_ir(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return programs.run("compiler_opt.tools.extract_ir", *arguments)


@pytest.fixture(name="database")
def database_fixture(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text("int a(int x) { return x + 1; }\n")
    command = ["clang-22", "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", "a.c", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    plain = ["clang-22", "-Oz", "-c", "a.c", "-o", "plain.o"]
    subprocess.run(plain, cwd=tmp_path, check=True)
    entries = [{"directory": str(tmp_path), "file": "a.c", "arguments": each} for each in (command, plain)]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    return tmp_path / "compile_commands.json"


def test_a_database(database: Path, tmp_path: Path) -> None:
    result = extract_ir("--input", str(database), "--input_type=json", f"--output_dir={tmp_path / 'corpus'}")
    assert result.returncode == 0, result.stderr
    assert "1 modules of 2 objects (0 left out by --cmd_filter, 1 without a usable module)" in result.stdout
    assert f"left out: {tmp_path / 'plain.o'}: has no section .llvmbc" in result.stdout
    assert [module.name for module in Corpus.load(tmp_path / "corpus").modules] == ["a.o"]


def test_all_options(database: Path, tmp_path: Path) -> None:
    result = extract_ir(
        f"--input={database}",
        f"--output_dir={tmp_path / 'corpus'}",
        "--num_workers=2",
        "--llvm_objcopy_path=llvm-objcopy-22",
        f"--obj_base_dir={tmp_path.parent}",
        "--cmd_filter=^-Oz$",
        "--cmd_section_name=.llvmcmd",
        "--bitcode_section_name=.llvmbc",
    )
    assert result.returncode == 0, result.stderr
    assert [module.name for module in Corpus.load(tmp_path / "corpus").modules] == [f"{tmp_path.name}/a.o"]


def test_each_type_of_input(database: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    shutil.copy(database.parent / "a.o", build)
    (build / "README").touch()
    (build / "link.params").write_text("a.o /usr/lib/crt1.o")
    (build / "aquery.json").write_text('{"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "a.o"]}]}')
    for kind, name, skipped in (
        ("params", "link.params", f"skipped: 1 inputs outside of {build} (/usr/lib/crt1.o)"),
        ("bazel_aquery", "aquery.json", ""),
        ("directory", ".", "skipped: 3 files that are not objects ("),
    ):
        output = f"--output_dir={tmp_path / kind}"
        base = f"--obj_base_dir={build}"
        result = extract_ir(f"--input={build / name}", f"--input_type={kind}", base, output, "--verbosity=info")
        assert result.returncode == 0, result.stderr
        assert skipped in result.stdout
        assert "1 modules of 1 objects" in result.stdout
        assert [module.name for module in Corpus.load(tmp_path / kind).modules] == ["a.o"]


NINJA = """rule cc
  command = env A=1 clang-22 -Oz -Xclang -fembed-bitcode=all -c $in -o $out
rule link
  command = : && clang-22 $in -o $out && :
rule archive
  command = : && rm -f $out && llvm-ar-22 qc $out $in && :
rule part
  command = ld.lld-22 -r $in -o $out
build a.o: cc a.c
build main.o: cc main.c
build liba.a: archive a.o
build both.o: part a.o main.o
build app: link main.o liba.a
build all: phony app both.o
"""


def test_what_ninja_lists_besides_compilations(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(NINJA)
    (tmp_path / "a.c").write_text("int a(int x) { return x + 1; }\n")
    (tmp_path / "main.c").write_text("int a(int); int main(void) { return a(1); }\n")
    subprocess.run(["ninja", "all"], cwd=tmp_path, check=True, capture_output=True)
    listed = subprocess.run(["ninja", "-t", "compdb"], cwd=tmp_path, check=True, capture_output=True).stdout
    (tmp_path / "compdb.json").write_bytes(listed)
    result = extract_ir(f"--input={tmp_path / 'compdb.json'}", f"--output_dir={tmp_path / 'corpus'}")
    assert result.returncode == 0, result.stderr
    assert [module.name for module in Corpus.load(tmp_path / "corpus").modules] == ["a.o", "main.o"]
    assert result.stdout.splitlines() == [
        "skipped: 3 entries that link (liba.a, both.o, app)",
        "skipped: 1 entries without a command (all)",
        f"{tmp_path / 'corpus'}: 2 modules of 2 objects (0 left out by --cmd_filter, 0 without a usable module)",
    ]


def test_verbosity_error_hides_what_is_left_out(database: Path, tmp_path: Path) -> None:
    result = extract_ir(f"--input={database}", f"--output_dir={tmp_path / 'corpus'}", "--verbosity=ERROR")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert "1 without a usable module" in result.stdout


def test_links_with_thinlto(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    save = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files"]
    subprocess.run(["clang-22", "-O2", "-flto=thin", "-c", "a.c"], cwd=tmp_path, check=True)
    subprocess.run(["clang-22", "-O2", "-flto=thin", "-fuse-ld=lld", "a.o", *save], cwd=tmp_path, check=True)
    corpus = tmp_path / "corpus"
    result = extract_ir(f"--obj_base_dir={tmp_path}", "--thinlto_build=local", f"--output_dir={corpus}")
    assert result.returncode == 0, result.stderr
    assert "1 modules of 1 that were linked" in result.stdout
    assert sorted(path.name for path in corpus.iterdir()) == ["a.o.bc", "a.o.thinlto.bc", "corpus_description.json"]
