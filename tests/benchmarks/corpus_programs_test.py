"""The benchmark programs, and how they are linked with a project's objects."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.corpus_programs import ProgramSource, compile_objects, programs_of
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.ready_made import manifest
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.llvm.toolchain import probe
from tests.small_corpus import make_corpus

CLANG = "/usr/bin/clang-22"
PROGRAMS = sorted((Path(__file__).parents[2] / "benchmarks" / "programs").glob("*.c*"))
ANSWER = "int answer(void) { return 42; }\nint main(void) { return 1; }\n"
ASKS = '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%d\\n", answer()); return 0; }\n'


def test_links_a_program_with_the_objects_of_its_project(tmp_path: Path) -> None:
    toolchain = probe(CLANG)
    (tmp_path / "corpus").mkdir()
    make_corpus(tmp_path / "corpus", CLANG, {"deep/thought.c": ANSWER})
    modules = Corpus.load(str(tmp_path / "corpus")).modules
    objects = compile_objects(modules, toolchain, tmp_path / "objects", ["-fbasic-block-address-map"])
    (tmp_path / "deep_asks.c").write_text(ASKS)
    source = ProgramSource(tmp_path / "deep_asks.c")
    assert (source.project, source.name) == ("deep", "deep_asks")
    # The corpus has a main of its own; the program's is the one that runs.
    source.link(objects, toolchain, tmp_path / "program", ["-Wl,--build-id"])
    assert subprocess.run([tmp_path / "program"], capture_output=True, check=True).stdout == b"42\n"
    before = [path.stat().st_mtime_ns for path in objects]
    again = compile_objects(modules, toolchain, tmp_path / "objects", ["-fbasic-block-address-map"])
    assert [path.stat().st_mtime_ns for path in again] == before
    (tmp_path / "deep_asks.c").write_text("int main(void) { return x; }")
    with pytest.raises(CompileError, match=r"deep_asks\.c: "):
        source.link(objects, toolchain, tmp_path / "program")


def test_a_corpus_without_their_projects_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path, CLANG, {"deep/thought.c": ANSWER})
    with pytest.raises(ConfigError, match="holds none of the projects of"):
        programs_of(Corpus.load(str(tmp_path)))


def test_programs_are_chosen_by_name(tmp_path: Path) -> None:
    make_corpus(tmp_path, CLANG, {"h3/cells.c": ANSWER})
    corpus = Corpus.load(str(tmp_path))
    assert [program.name for program in programs_of(corpus)] == ["h3_cells", "h3_disk", "h3_polygon"]
    assert [program.name for program in programs_of(corpus, ["h3_disk"])] == ["h3_disk"]
    with pytest.raises(ConfigError, match="--program=h3_cell: expected different ones of h3_cells, h3_disk"):
        programs_of(corpus, ["h3_cell"])


def test_eight_projects_of_the_test_split_have_programs_half_of_them_in_cpp() -> None:
    languages = {project.name: project.language for project in manifest.load().split("test")["test"]}
    projects = {ProgramSource(path).project for path in PROGRAMS} & languages.keys()
    assert min(sum(languages[name] == language for name in projects) for language in ("c", "c++")) >= 4


@pytest.mark.slow
def test_each_program_compiles_without_warnings() -> None:
    assert len({ProgramSource(path).project for path in PROGRAMS}) >= 15
    result = subprocess.run([CLANG, "-Wall", "-Wextra", "-fsyntax-only", *PROGRAMS], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
