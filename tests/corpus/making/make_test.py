"""Loose bitcode files become a corpus that compiles."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import make
from compiler_opt.corpus.making.writing import MadeCorpus
from compiler_opt.errors import ConfigError, CorpusError, OutputError

OPTIONS = ("-cc1", "-Oz", "-funwind-tables=2")


@pytest.fixture(name="loose")
def loose_fixture(tmp_path: Path) -> Path:
    """A folder with two modules, and files that only look like modules."""
    folder = tmp_path / "loose"
    (folder / "lib" / "deep er").mkdir(parents=True)
    (folder / "x.c").write_text("int f(int x) { return x * 3; }")
    for name in ("a.bc", "lib/deep er/b.o.bc"):
        command = ["clang-22", "-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "x.c", "-o", name]
        subprocess.run(command, cwd=folder, check=True)
    return folder


def spoil(folder: Path) -> None:
    (folder / "no.bc").write_text("calculator script")
    (folder / "cut.bc").write_bytes((folder / "a.bc").read_bytes()[:300])
    (folder / "a.thinlto.bc").write_bytes((folder / "a.bc").read_bytes())
    outside = folder.parent / "outside.bc"
    outside.write_bytes((folder / "a.bc").read_bytes())
    (folder / "out.bc").symlink_to(outside)
    (folder / "hangs.bc").symlink_to("nowhere")


def made(folder: Path, output: Path, overwrite: bool = False) -> MadeCorpus:
    return make.make(make.find_bitcode(folder, output), folder, output, OPTIONS, overwrite=overwrite)


def test_modules_get_the_options(loose: Path, tmp_path: Path) -> None:
    result = made(loose, tmp_path / "corpus")
    assert result == MadeCorpus(("a", "lib/deep er/b.o"), ())
    assert (tmp_path / "corpus" / "a.cmd").read_bytes() == b"-cc1\0-Oz\0-funwind-tables=2\0"
    assert (tmp_path / "corpus" / "a.bc").read_bytes() == (loose / "a.bc").read_bytes()
    description = json.loads((tmp_path / "corpus" / "corpus_description.json").read_text())
    assert description["modules"] == ["a", "lib/deep er/b.o"] and description["has_thinlto"] is False
    corpus = Corpus.load(tmp_path / "corpus")
    assert corpus.compiler is not None and corpus.compiler["version"][0] == 22
    for module in corpus.modules:
        command = compile_command("clang-22", module.options(), module.bitcode_path, tmp_path / "x.o")
        subprocess.run(command, check=True)
        assert (tmp_path / "x.o").stat().st_size > 0


def test_files_that_are_not_modules_are_reported(loose: Path, tmp_path: Path) -> None:
    spoil(loose)
    result = made(loose, tmp_path / "corpus")
    assert result.modules == ("a", "lib/deep er/b.o")
    reasons = {path.name: reason for path, reason in result.failures}
    assert reasons.keys() == {"no.bc", "cut.bc", "a.thinlto.bc", "out.bc", "hangs.bc"}
    assert "expected LLVM bitcode" in reasons["no.bc"]
    assert "truncated" in reasons["cut.bc"]
    assert "ThinLTO index" in reasons["a.thinlto.bc"]
    assert "is a link that leaves the folder" in reasons["out.bc"]
    assert all("\n" not in reason and str(loose) in reason for reason in reasons.values())


def test_an_input_without_modules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot be read .*--input_dir"):
        make.find_bitcode(tmp_path / "none", tmp_path / "corpus")
    with pytest.raises(CorpusError, match="none of 0 files"):
        make.make([], tmp_path, tmp_path / "corpus", OPTIONS)
    assert not (tmp_path / "corpus").exists()


def test_an_existing_corpus_is_overwritten_only_on_request(loose: Path) -> None:
    output = loose / "corpus"
    made(loose, output)
    with pytest.raises(OutputError, match="is not empty; give another --output_dir, or --overwrite"):
        made(loose, output)
    (loose / "a.bc").unlink()
    # The corpus may be inside the input folder; it is not its own input.
    assert made(loose, output, overwrite=True).modules == ("lib/deep er/b.o",)
    assert len(Corpus.load(output).modules) == 1
    with pytest.raises(OutputError, match="is the folder of the bitcode files"):
        made(loose, loose, overwrite=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "start with '-cc1', found nothing"),
        ("-Oz", "start with '-cc1'"),
        ("-cc1 '-Oz", "No closing quotation"),
        ("-cc1 -load evil.so", "'-load'"),
        ("-cc1 -triple", "takes a value"),
    ],
)
def test_unusable_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make.parse_args(text)
    assert str(error.value).startswith(f"--default_args={text}: ") and message in str(error.value)


@given(st.text(max_size=30))
def test_any_options_are_words_or_refused(text: str) -> None:
    try:
        assert make.parse_args(f"-cc1 {text}")[0] == "-cc1"
    except ConfigError as error:
        assert "--default_args" in str(error)
