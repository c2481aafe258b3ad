"""`--json` and `--quiet` of commands that compile: what they print where."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.inlining_networks import never_inline
from tests.optimize import speed_programs
from tests.small_corpus import make_small_corpus

CLANG = "clang-22"


@pytest.fixture(name="place", scope="module")
def place_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    make_small_corpus(place, CLANG)
    never_inline(place / "policy")
    return place


def run(place: Path, tool: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    flags = (f"--data_path={place}", f"--clang_path={CLANG}", "--num_workers=2")
    result = programs.run(f"compiler_opt.tools.{tool}", *flags, *arguments)
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.ci
@pytest.mark.parametrize(
    ("tool", "arguments", "file", "text"),
    [
        ("explain", ("--policy_path={}/policy", "--output_dir={}/out"), "summary.json", "largest change first"),
        ("corpus_stats", ("--output_dir={}/out",), "statistics.json", "levels: -Oz 4"),
    ],
)
def test_json_is_what_the_file_has(tool: str, arguments: tuple[str, ...], file: str, text: str, place: Path) -> None:
    result = run(place, tool, "--json", *(argument.format(place) for argument in arguments))
    assert json.loads(result.stdout) == json.loads((place / "out" / file).read_text())
    assert text in result.stderr


@pytest.mark.slow
def test_json_of_a_faster_program(tmp_path: Path) -> None:
    commands = speed_programs.database(tmp_path / "source")
    result = programs.run(
        "compiler_opt.tools.optimize",
        "--json",
        "--objective=speed",
        "--benchmark=linked/bench 50",
        "--minutes=0",
        f"--compile_commands={commands}",
        f"--link_command={speed_programs.link_command()}",
        f"--output_dir={tmp_path / 'out'}",
        f"--clang_path={CLANG}",
        "--num_workers=2",
        timeout_s=550,
    )
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "out" / "report" / "summary.json").read_text())
    assert printed["metric"] == "instructions" and printed["steps"]
    assert "Kept" in result.stderr and "== 4/7 Options" in result.stderr


def test_quiet_json_is_all(place: Path) -> None:
    result = run(place, "corpus_stats", "--json", "--quiet")
    assert json.loads(result.stdout)["num_modules"] == 4
    assert result.stderr == ""


def test_quiet_keeps_the_result(place: Path) -> None:
    told, quiet = (run(place, "corpus_stats", *flags) for flags in ((), ("--quiet",)))
    assert (quiet.stdout, quiet.stderr) == (told.stdout, "")


def test_json_of_a_command_that_fails(tmp_path: Path) -> None:
    result = programs.run("compiler_opt.tools.corpus_stats", "--json", f"--data_path={tmp_path / 'none'}")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("error: ")
