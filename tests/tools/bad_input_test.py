"""Mistakes of users at all entry points that can receive them: the cases are in `bad_input/`.

Each time: exit status 2, nothing on stdout, one line that names the file and says what to do, no traceback; no output,
no folder for it, and nothing in the temporary folder. That a full disk leaves the last checkpoint is shown in
tests/rl/training_test.py.

Which compiler it is makes no difference to a mistake, so all of this is done with the older one.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compiler_opt.commands import module_of
from compiler_opt.files import exclusive_directory
from tests import programs
from tests.tools.bad_input import blocks, builds, corpora, policies, settings
from tests.tools.bad_input.mistake import GOOD, Mistake
from tests.tools.bad_input.place import make_place

MISTAKES = (*settings.MISTAKES, *corpora.MISTAKES, *builds.MISTAKES, *policies.MISTAKES, *blocks.MISTAKES)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with good and bad input, which mistakes must not change."""
    place = tmp_path_factory.mktemp("place")
    make_place(place)
    # The tests are the other process that works in this one.
    with exclusive_directory(place / "held", "--output_dir"):
        yield place


def run(place: Path, temporary: Path, tool: str, flags: Mapping[str, str | None]) -> "subprocess.CompletedProcess[str]":
    arguments = (f"--{name}={value}" for name, value in flags.items() if value is not None)
    return programs.run(module_of(tool), *arguments, cwd=place, environment={"TMPDIR": str(temporary)})


def files(folder: Path) -> dict[str, int]:
    """Everything in a folder, with the modification times of files."""
    return {
        str(path.relative_to(folder)): 0 if path.is_dir() else path.lstat().st_mtime_ns
        for path in sorted(folder.rglob("*"))
    }


def cases() -> Iterator[object]:
    """Each mistake at each of its entry points; all but one of them, another one each time, are slow."""
    for number, mistake in enumerate(MISTAKES):
        for index, tool in enumerate(mistake.tools):
            marks = () if index == number % len(mistake.tools) else (pytest.mark.slow,)
            yield pytest.param(tool, mistake, id=f"{tool}: {mistake.name}", marks=marks)


@pytest.mark.parametrize(("tool", "mistake"), [*cases()])
def test_a_mistake_is_one_line_and_leaves_nothing(tool: str, mistake: Mistake, place: Path, tmp_path: Path) -> None:
    before = files(place)
    result = run(place, tmp_path, tool, {**GOOD[tool], **mistake.flags})
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    assert result.stderr.count("error: ") == 1
    for word in mistake.words:
        assert word in message
    assert files(place) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_is_the_mistake_that_fails(place: Path, tmp_path: Path) -> None:
    """Without a mistake, the quick tools succeed."""
    for tool in (
        "doctor",
        "extract_ir",
        "evaluate",
        "explain",
        "combine_training_corpus",
        "corpus_stats",
        "cost_model blocks",
        "cost_model profile",
    ):
        result = run(place, tmp_path, tool, GOOD[tool])
        assert result.returncode == 0, result.stderr
    assert (place / "out" / "corpus" / "corpus_description.json").is_file()
    assert (place / "out" / "results" / "report.html").is_file()
    assert (place / "out" / "explanation" / "report.html").is_file()
    (place / "together" / "corpus_description.json").unlink()
    shutil.rmtree(place / "out")
