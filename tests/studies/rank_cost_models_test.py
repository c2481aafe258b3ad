"""Ranks builds of a small program as a user does."""

import csv
import json
import re
from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.model import ThroughputModel, network_of, new_description
from tests import programs
from tests.measure.running import PROGRAM, built

CLANG = "/usr/bin/clang-22"
OPTIONS = ("-fbasic-block-address-map", *FLAGS[1:])
LEARNED = ("learned (own)", "learned + runtime (own)", "learned (matched)", "learned + runtime (matched)")


def make_builds(folder: Path) -> None:
    """Three builds that do the same, and three that cannot be compared with them."""
    for variant, options in {"default": (), "level-0": ("-O0",), "level-2": ("-O2",)}.items():
        built(folder / variant, PROGRAM, *OPTIONS, *options)
    built(folder / "wrong-output", PROGRAM.replace("77", "78"), *OPTIONS)
    built(folder / "without-map", PROGRAM)
    (folder / "lacks-it").mkdir()


def save_network(folder: Path) -> None:
    """A network that has learned nothing."""
    instructions = Decoder().decode(b"\x90\xc3")
    assert instructions is not None
    vocabulary = network_of("graph").vocabulary([instructions])
    model = ThroughputModel(new_description("graph", {"units": 4, "rounds": 1}, vocabulary, "measured ns"))
    model.save(folder, {})


def run(place: Path, *further: str) -> "programs.subprocess.CompletedProcess[str]":
    arguments = (
        f"--clang_path={CLANG}",
        f"--builds_dir={place / 'builds'}",
        "--benchmark=bench 1000",
        "--benchmark=bench 3000",
        f"--output_dir={place / 'out'}",
    )
    return programs.run("studies.rank_cost_models", *arguments, *further)


@pytest.mark.slow
def test_ranks_builds_and_continues(tmp_path: Path) -> None:
    make_builds(tmp_path / "builds")
    result = run(tmp_path, "--rounds=6", *(f"--variant={name}" for name in ("level-0", "lacks-it", "wrong-output")))
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    for line in (
        r"left out bench of lacks-it: .*lacks-it/bench: cannot be read: No such file",
        r"left out bench of wrong-output: \./bench 1000: expected to print '1000 .*', found '1000 .*', in line 1",
    ):
        assert re.search(line, result.stderr), result.stderr
    assert re.search(
        r"all variants against wall time: 1 program, 2 builds; [01] of 1 pairs are decided; 95% intervals over builds\n"
        r"model +counts +Kendall's tau +pairwise accuracy\n",
        result.stdout,
    )
    save_network(tmp_path / "model")
    again = run(tmp_path, "--rounds=0", f"--model_dir={tmp_path / 'model'}")
    assert again.returncode == 0, again.stderr
    assert re.search(r"left out bench of without-map: .*: expected an address map of its blocks; compile", again.stderr)
    # A folder without the program is no variant.
    assert "lacks-it" not in again.stderr
    assert re.search(r"all variants against cycle estimate: 1 program, 3 builds; 3 of 3 pairs", again.stdout)
    assert re.search(r"\ninstructions +own +1\.00 \(1\.00 to 1\.00\) +100% \(100% to 100%\)", again.stdout)
    assert re.search(r"\nlearned \+ runtime +matched +", again.stdout)
    with (tmp_path / "out/ranking.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["default", "level-0", "level-2"]
    assert all(float(row[name]) > 0 for row in rows.values() for name in LEARNED)
    estimates = {name: float(row["cycle estimate (measured)"]) for name, row in rows.items()}
    assert estimates["level-0"] > estimates["default"]
    # Calls of `hot` are 1,000 and 3,000, and its loop runs 20 times in each.
    assert float(rows["default"]["instructions (own)"]) > 4000 * 20
    assert float(rows["default"]["instructions (matched)"]) == float(rows["default"]["instructions (own)"])
    figures = json.loads((tmp_path / "out/ranking.json").read_text())
    assert figures["commands"] == {"bench": ["./bench 1000", "./bench 3000"]}
    assert list(figures["programs"][0]["left_out"]) == ["without-map", "wrong-output"]
    (comparison,) = figures["comparisons"]
    assert (comparison["truth"], comparison["variants"], comparison["num_decided"]) == ("cycle estimate", "all", 3)
    # What was measured is kept: no program runs again.
    for variant in rows:
        (tmp_path / "builds" / variant / "bench").chmod(0o644)
    table = [path.read_text() for path in sorted((tmp_path / "out").glob("ranking.*"))]
    last = run(tmp_path, "--rounds=0", f"--model_dir={tmp_path / 'model'}", "--variant=level-0", "--variant=level-2")
    assert (last.returncode, last.stdout) == (0, again.stdout)
    assert table[0] == (tmp_path / "out/ranking.csv").read_text()


@pytest.mark.slow
def test_one_line_says_why_nothing_can_be_compared(tmp_path: Path) -> None:
    built(tmp_path / "builds/default", PROGRAM, *OPTIONS)
    built(tmp_path / "builds/wrong-output", PROGRAM.replace("77", "78"), *OPTIONS)
    result = run(tmp_path, "--rounds=0")
    assert (result.returncode, result.stdout) == (2, "")
    reason = "error: expected 2 builds of a program that print the same; left out bench of wrong-output: .*\n"
    assert re.fullmatch(reason, result.stderr)
    for flag, message in {
        "--benchmark=./bench 1000": "is there twice; leave one out",
        "--benchmark=../x": "expected a path in the folder of a variant, found ../x; leave out what is before it",
        "--rounds=3": "expected at least 6, or 0 for no wall time",
    }.items():
        wrong = run(tmp_path, flag)
        assert (wrong.returncode, wrong.stderr) == (2, f"error: {flag}: {message}\n")
