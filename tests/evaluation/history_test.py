"""Reading the history of a training."""

import json
import os
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.comparison import read_run
from compiler_opt.evaluation.history import Curve, load_history, read_entries, smoothed

ENTRIES = [
    {"iteration": 1, "compiles": 100, "reward_mean": 0.01, "reward_by_project": {"a": 0.02, "b": 0.0}},
    {"iteration": 2, "compiles": 200, "reward_mean": 0.03, "reward_by_project": {"a": 0.04}},
]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_curves(tmp_path: Path) -> None:
    write(tmp_path / "history.jsonl", "".join(json.dumps(entry) + "\n" for entry in ENTRIES))
    history = load_history(tmp_path)
    assert history == load_history(tmp_path / "history.jsonl")
    assert history.reward == Curve("mean", (100, 200), (0.01, 0.03))
    assert history.projects == (Curve("a", (100, 200), (0.02, 0.04)), Curve("b", (100,), (0.0,)))


def test_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "h.jsonl", json.dumps(ENTRIES[0]) + '\n{"iteration": 2, "comp')
    assert load_history(path).reward.values == (0.01,)


def test_values_that_are_no_numbers_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "h.jsonl", '{"iteration": 1, "compiles": 1, "reward_mean": NaN, "reward_by_project": 7}\n')
    history = load_history(path)
    assert (history.reward.values, history.projects) == ((), ())


@pytest.mark.parametrize("value", ["1" + "0" * 400, "9" * 5000, "1e308", "-1e999", "[" * 200 + "]" * 200])
@pytest.mark.parametrize("key", ["iteration", "compiles", "failures", "collect_cpu_s", "validation_mean"])
def test_numbers_of_any_size_are_no_traceback(key: str, value: str, tmp_path: Path) -> None:
    """They are skipped, alone or with their line."""
    intact = '{"iteration": 1, "compiles": 5, "validation_mean": 0.5}\n'
    odd = f'{{"iteration": 2, "compiles": 7, "failures": 2, "{key}": {value}}}\n'
    write(tmp_path / "history.jsonl", intact + odd * 2)
    [curve] = load_history(tmp_path).validation
    assert curve.values == (0.5,)
    run = read_run("ppo", 0, tmp_path)
    assert run.validation.values == (0.5,) and run.failures in (0, 4) and run.cpu_s == 0


def test_a_history_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.jsonl")
    assert read_entries(tmp_path / "history.jsonl") == ([], 1)
    with pytest.raises(ConfigError, match="expected JSON objects"):
        load_history(tmp_path)


@pytest.mark.parametrize("text", ["nonsense\n{}\n", "[1]\n", '{"iteration": 1, "compiles": "many"}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="expected JSON objects with the numbers 'iteration' and 'compiles'"):
        load_history(write(tmp_path / "h.jsonl", text))


def test_a_missing_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the training log"):
        load_history(tmp_path)


def test_smoothing_is_the_mean_of_the_last_points() -> None:
    curve = Curve("x", (1, 2, 3, 4), (1.0, 2.0, 6.0, 7.0))
    assert smoothed(curve, 2).values == (1, (1 + 2) / 2, (2 + 6) / 2, (6 + 7) / 2)
    assert smoothed(curve, 1).values == curve.values
