"""What is kept of compilations: that of a success repeats it, that of a failure says why; no more than is allowed."""

import dataclasses
import shlex
import subprocess
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.compilation_files import COMMAND_FILE, FULL_FILE, INPUT_FILE, CompilationFiles
from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")
_CHANNEL = RolloutSettings(backend="channel")


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


def test_the_command_repeats_the_compilation(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    [module] = [module for module in corpus.modules if module.name.endswith("list.c.o")]
    kept, scratch = CompilationFiles(tmp_path / "kept", 1_000_000), tmp_path / "scratch"
    scratch.mkdir()
    plain = rollout(module, None, _INLINING, toolchain, scratch=scratch, compilation_files=kept)
    assert plain.failure is None and not list(scratch.iterdir())
    place = tmp_path / "kept" / module.name / "compiler-0"
    assert (place / INPUT_FILE).read_bytes() == module.bitcode_path.read_bytes()
    lines = (place / COMMAND_FILE).read_text().splitlines()
    assert lines[0] == f"module: {module.name}"
    [command] = [line for line in lines if " -cc1 " in line]
    assert lines[lines.index(command) + 1].startswith("exit status 0, ")
    again = tmp_path / "again.o"
    words = [str(again) if word == str(scratch / "module.o") else word for word in shlex.split(command)]
    assert str(again) in words
    subprocess.run(words, check=True)
    assert again.read_bytes() == (place / "module.o").read_bytes()
    assert not (tmp_path / "kept" / FULL_FILE).exists()


def test_each_compilation_has_its_folder(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module, kept = corpus.modules[0], CompilationFiles(tmp_path / "kept", 1_000_000)
    for policy in (DefaultPolicy(_INLINING), ConstantPolicy(0, "a/b c")):
        for _ in range(2):
            result = rollout(module, policy, _INLINING, toolchain, seed=7, settings=_CHANNEL, compilation_files=kept)
            assert result.failure is None
    folders = sorted(path.name for path in (tmp_path / "kept" / module.name).iterdir())
    assert folders == ["a_b_c-7", "a_b_c-7-2", "default-7", "default-7-2"]
    for folder in folders:
        assert (tmp_path / "kept" / module.name / folder / "module.o").is_file()


def test_a_failure_says_why(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module = dataclasses.replace(corpus.modules[0], root=tmp_path)
    broken = module.bitcode_path
    broken.parent.mkdir()
    broken.write_bytes(b"BC\xc0\xde no bitcode at all")
    module.command_path.write_bytes(corpus.modules[0].command_path.read_bytes())
    kept = CompilationFiles(tmp_path / "kept", 1_000_000)
    result = rollout(module, None, _INLINING, toolchain, compilation_files=kept)
    assert result.failure is not None
    place = tmp_path / "kept" / module.name / "compiler-0"
    text = (place / COMMAND_FILE).read_text()
    assert "\nfailure: " in text and "\nexit status 1, " in text and "\nstderr:\n" in text and "error: " in text
    assert (place / INPUT_FILE).read_bytes() == broken.read_bytes()
    assert not (place / "module.o").exists()


def test_the_disk_does_not_fill_up(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    """There is room for one compilation, also for later users of the folder."""
    module, limit = corpus.modules[0], 2 * corpus.modules[0].bitcode_path.stat().st_size
    for seed in range(3):
        kept = CompilationFiles(tmp_path / "kept", limit)
        assert rollout(module, None, _INLINING, toolchain, seed=seed, compilation_files=kept).failure is None
    assert [path.name for path in (tmp_path / "kept" / module.name).iterdir()] == ["compiler-0"]
    assert (tmp_path / "kept" / FULL_FILE).read_text().endswith(f"their files may take {limit} bytes together.\n")
    sizes = [path.stat().st_size for path in (tmp_path / "kept" / module.name).rglob("*") if path.is_file()]
    assert sum(sizes) <= limit + 4096  # The text of the command is small, and not counted.
