"""The comparison of trainings: figures from histories, and no run left out of tables, curves and pages."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.comparison import (
    BEGIN,
    COMPLETE,
    END,
    FAILED,
    SEARCH,
    UNFINISHED,
    Comparison,
    RunResult,
    State,
    read_run,
    write,
)
from compiler_opt.report.formatting import MINUS


def _run(
    folder: Path, name: str, seed: int, values: list[float], state: State = COMPLETE, reason: str = ""
) -> RunResult:
    """A run that is validated every 100 compiles, before the first one, too."""
    root = folder / name / str(seed)
    root.mkdir(parents=True)
    lines = [{"iteration": 0, "compiles": 0, "validation_mean": 0.0, "validation_total": 0.0, "validation_s": 3.0}]
    for number, value in enumerate(values, 1):
        costs = {"failures": 1, "collect_cpu_s": 2.0, "learn_cpu_s": 0.5}
        lines.append({"iteration": 2 * number - 1, "compiles": 100 * number - 50, "reward_mean": 0.1, **costs})
        changes = {"validation_mean": value, "validation_total": value / 2}
        lines.append({"iteration": 2 * number, "compiles": 100 * number, "reward_mean": 0.1, **costs, **changes})
    (root / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(name, seed, root, state, reason)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    runs = [
        _run(tmp_path, "ppo", 1, [-0.01, -0.03]),
        _run(tmp_path, "ppo", 2, [-0.02, -0.01]),
        _run(tmp_path, "ppo", 3, [-0.5], FAILED, "killed by SIGKILL | *"),
        _run(tmp_path, "es", 1, [-0.01, -0.025]),
        RunResult("dqn", 1, UNFINISHED),
    ]
    return Comparison(runs, "linked text", 200, {"Compiler": "clang 22"})


def test_a_run_is_read_from_its_history(tmp_path: Path) -> None:
    run = _run(tmp_path, "ppo", 1, [-0.03, -0.01])
    assert (run.last, run.best, run.compiles, run.failures, run.cpu_s) == (-0.01, -0.03, 200, 4, 10.0)
    assert run.validation.compiles == (0, 100, 200) and run.together.values == (0.0, -0.015, -0.005)
    (tmp_path / "ppo" / "1" / "history.jsonl").write_text('{"iteration": 1}\n')
    damaged = read_run("ppo", 1, tmp_path / "ppo" / "1")
    assert damaged.last is None and "expected JSON objects" in damaged.reason


def test_the_summary_is_over_complete_runs(comparison: Comparison) -> None:
    es, ppo, dqn = (list(map(str, row)) for row in comparison.summary().rows)
    assert es[:6] == ["es", "1 of 1", f"{MINUS}2.50%", "\N{EN DASH}", f"{MINUS}2.50%", f"{MINUS}2.50%"]
    # -3% and -1%: the sample's standard deviation is the square root of 2 * 0.01 ** 2.
    assert ppo[:6] == ["ppo", "2 of 3", f"{MINUS}2.00%", "1.41%", f"{MINUS}3.00%", f"{MINUS}1.00%"]
    assert ppo[6:] == [f"{MINUS}2.50%", "200", "10 s"]
    assert dqn[:3] == ["dqn", "0 of 1", "\N{EN DASH}"]


def test_runs_as_json(comparison: Comparison) -> None:
    found = json.loads(json.dumps(comparison.to_json()))
    assert (found["measure"], found["compiles"], found["provenance"]) == ("linked text", 200, {"Compiler": "clang 22"})
    ends = [(run["algorithm"], run["seed"], run["state"], run["validation_mean"]) for run in found["runs"]]
    assert ends[0] == ("ppo", 1, COMPLETE, -0.03) and ends[-1] == ("dqn", 1, UNFINISHED, None)


def test_the_headline_names_the_winner(comparison: Comparison, tmp_path: Path) -> None:
    # The one run of es ends at -2.5%, those of ppo, which are complete, at -3% and -1%.
    assert comparison.headline() == (
        f"es ends best, at {MINUS}2.50% linked text, before ppo, at {MINUS}2.00%; their runs overlap"
    )
    runs = [_run(tmp_path, name, 9, [end]) for name, end in (("a", -0.03), ("b", -0.01), (SEARCH, -0.2))]
    headline = dataclasses.replace(comparison, runs=runs).headline()
    assert headline == f"a ends best, at {MINUS}3.00% linked text, before b, at {MINUS}1.00%"
    level = [runs[0], dataclasses.replace(runs[0], algorithm="c")]
    assert dataclasses.replace(comparison, runs=level).headline().startswith("a and c end best, both at")
    assert dataclasses.replace(comparison, runs=runs[:1]).headline() == f"a ends best, at {MINUS}3.00% linked text"
    assert dataclasses.replace(comparison, runs=comparison.runs[-1:]).headline() == "No training is complete"


def test_every_run_is_written(comparison: Comparison, tmp_path: Path) -> None:
    page = write(comparison, tmp_path / "out").read_text()
    with (tmp_path / "out" / "runs.csv").open() as file:
        rows = [(row["algorithm"], row["seed"], row["state"], row["validation_mean"]) for row in csv.DictReader(file)]
    assert rows == [
        ("ppo", "1", "complete", "-0.030000"),
        ("ppo", "2", "complete", "-0.010000"),
        ("ppo", "3", "failed", "-0.500000"),
        ("es", "1", "complete", "-0.025000"),
        ("dqn", "1", "unfinished", ""),
    ]
    with (tmp_path / "out" / "curves.csv").open() as file:
        points = [(row["algorithm"], row["seed"], row["compiles"]) for row in csv.DictReader(file)]
    assert points.count(("ppo", "3", "100")) == 1 and len(points) == 3 + 3 + 2 + 3
    text = (tmp_path / "out" / "comparison.md").read_text()
    assert r"killed by SIGKILL \| \*" in text and "| dqn | unfinished | 1 |" in text
    assert "killed by SIGKILL | *" in page and "unfinished" in page
    plot = (tmp_path / "out" / "curves.svg").read_text()
    assert plot.startswith("<?xml") and "dqn (no complete run)" in plot and "var(--" not in plot
    # Nothing overlaps: no bands, but an end of each run that was validated.
    assert "PolyCollection" not in plot and "each run&#39;s end" in plot.replace("'", "&#39;")
    assert "es ends best, at" in page


def test_searches_are_said_to_be_no_policies(comparison: Comparison, tmp_path: Path) -> None:
    assert "no policy" not in comparison.caption()
    searched = dataclasses.replace(comparison, runs=[*comparison.runs, _run(tmp_path, SEARCH, 1, [-0.05, -0.06])])
    assert "no policy, but a mark of what is possible" in searched.caption()
    assert str(searched.summary().rows[0][0]) == SEARCH
    page = write(searched, tmp_path / "out").read_text()
    for text in (page, (tmp_path / "out" / "comparison.md").read_text()):
        assert "no policy, but a mark of what is possible" in text


def test_a_document_gets_the_result_between_its_lines(comparison: Comparison, tmp_path: Path) -> None:
    document = tmp_path / "algorithms.md"
    document.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\n# After\n")
    for _ in range(2):
        write(comparison, tmp_path / "out", document)
    text = document.read_text()
    assert text.startswith(f"# Before\n\n{BEGIN}\n") and text.endswith(f"{END}\n\n# After\n")
    assert "old" not in text and text.count("| es | 1 of 1 |") == 1 and "](algorithms.svg)" in text
    assert (tmp_path / "algorithms.svg").is_file()


@pytest.mark.parametrize("text", ["", f"{BEGIN}", f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"])
def test_a_document_without_a_place_is_left_alone(comparison: Comparison, tmp_path: Path, text: str) -> None:
    document = tmp_path / "page.md"
    document.write_text(text)
    with pytest.raises(ConfigError, match="expected the lines"):
        write(comparison, tmp_path / "out", document)
    assert document.read_text() == text and not (tmp_path / "out").exists()
