"""The comparison of trainings as a user runs it: two algorithms and a search, two seeds, interrupted and resumed."""

import csv
import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.evaluation.comparison import BEGIN, COMPLETE, END, SEARCH
from compiler_opt.policies.vocabulary import save_vocabulary
from tests import programs
from tests.small_corpus import SOURCES, make_corpus, make_small_corpus

_TOOL = "compiler_opt/tools/compare_trainers.py"


def _make_inputs(folder: Path) -> None:
    for name in ("corpus", "validation"):
        (folder / name).mkdir(parents=True)
    make_small_corpus(folder / "corpus", "clang-22")
    sources = {f"held/{Path(name).name}": text for name, text in SOURCES.items()}
    make_corpus(folder / "validation", "clang-22", sources)
    save_vocabulary(folder / "vocabulary", {name: np.arange(-5.0, 60.0) for name in FEATURES})


def _flags(folder: Path, compiles: int, *others: str) -> list[str]:
    return [
        f"--data_path={folder / 'corpus'}",
        f"--validation_path={folder / 'validation'}",
        f"--vocab_path={folder / 'vocabulary'}",
        "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
        "--gin_bindings=train_eval.num_modules=2",
        "--gin_bindings=train_eval.rollouts_per_module=2",
        f"--compiles={compiles}",
        "--validate_every=4",
        "--clang_path=clang-22",
        "--num_workers=2",
        f"--output_dir={folder / 'out'}",
        *others,
    ]


@pytest.mark.slow
def test_complete_runs_are_known_on_another_machine_and_a_search_joins_them(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    _make_inputs(here)
    stopped = programs.run(_TOOL, *_flags(here, 28, "--seeds=1", "--minutes=0.05"))
    assert stopped.returncode == 1 and "not done after 0.05 minutes" in stopped.stdout, stopped.stderr
    record = json.loads((here / "out" / "ppo" / "seed-1.json").read_text())
    assert str(tmp_path) not in json.dumps(record["settings"])
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("out"))
    shutil.rmtree(here)
    kept = there / "out" / "ppo"
    (kept / "seed-1").mkdir(parents=True)
    (kept / "seed-1.json").write_text(json.dumps({**record, "state": COMPLETE, "reason": ""}))
    (kept / "seed-1" / "history.jsonl").write_text('{"iteration": 7, "compiles": 28, "validation_mean": 0.5}\n')

    result = programs.run(_TOOL, *_flags(there, 28, "--seeds=1", "--search"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "run 1 of 2" not in result.stdout and f"run 2 of 2: {SEARCH}, seed 1" in result.stdout
    with (there / "out" / "runs.csv").open() as file:
        trained, searched = csv.DictReader(file)
    assert (trained["algorithm"], trained["validation_mean"]) == ("ppo", "0.500000")
    assert (searched["algorithm"], searched["state"]) == (SEARCH, COMPLETE)
    # Of the validation corpus's four modules; more where decisions are dropped when they are linked.
    assert 20 <= int(searched["compiles"]) <= 36 and float(searched["validation_mean"]) <= 0
    assert "no policy, but a mark of what is possible" in (there / "out" / "comparison.md").read_text()

    log = there / "out" / SEARCH / "seed-1.log"
    log.unlink()
    again = programs.run(_TOOL, *_flags(there, 28, "--seeds=1", "--search"))
    assert again.returncode == 0 and not log.exists(), again.stderr
    few = programs.run(_TOOL, *_flags(there, 12, "--search", f"--output_dir={tmp_path / 'few'}"))
    assert few.returncode == 2 and "--compiles: with --search expected at least 20, 5 for each module" in few.stderr


def test_the_earlier_spelling_of_the_limit(tmp_path: Path) -> None:
    both = programs.run(_TOOL, *_flags(tmp_path, 28, "--max_hours=2", "--minutes=120"))
    assert both.returncode == 2 and "error: --max_hours: is the earlier spelling of --minutes" in both.stderr
    noted = programs.run(_TOOL, *_flags(tmp_path, 28, "--max_hours=2"))
    assert noted.stderr.startswith("note: --max_hours=2 is --minutes=120\n") and noted.returncode == 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_algorithms_and_a_search_interrupted_and_resumed(tmp_path: Path) -> None:
    _make_inputs(tmp_path)
    document, output = tmp_path / "page.md", tmp_path / "out"
    document.write_text(f"{BEGIN}\n{END}\n")

    def flags(compiles: int) -> list[str]:
        others = ["--gin_files=gin_configs/inlining/es_nn_agent.gin", f"--document={document}"]
        return _flags(tmp_path, compiles, "--search", "--seeds=1,2", *others)

    with programs.start(_TOOL, *flags(20)) as program:
        while not (output / "ppo" / "seed-2").exists():
            assert not program.wait(0.1), program.stderr()
        os.kill(program.pid, signal.SIGINT)
        stopped = program.result(timeout_s=300)
        assert stopped.returncode == 130
        assert stopped.stderr.endswith("interrupted: 1 of 6 runs complete; the same command resumes\n")
    assert _states(output) == [("complete", "1"), *[("unfinished", seed) for seed in "21212"]]
    before_ns = (output / "ppo" / "seed-1.log").stat().st_mtime_ns

    with programs.start(_TOOL, *flags(20)) as program:
        while not list((output / SEARCH / "seed-1").glob("*")):
            assert not program.wait(0.05), program.stderr()
        os.kill(program.pid, signal.SIGINT)
        assert program.result(timeout_s=300).returncode == 130
    assert [state for state, _ in _states(output)] == ["complete"] * 4 + ["unfinished"] * 2

    result = programs.run(_TOOL, *flags(20), timeout_s=3000)
    assert result.returncode == 0, result.stderr
    assert "run 4 of 6" not in result.stdout and f"run 5 of 6: {SEARCH}, seed 1" in result.stdout
    assert (output / "ppo" / "seed-1.log").stat().st_mtime_ns == before_ns
    assert [state for state, _ in _states(output)] == ["complete"] * 6
    with (output / "curves.csv").open() as file:
        points = [(row["algorithm"], row["seed"], int(row["compiles"])) for row in csv.DictReader(file)]
    for name in ("ppo", "es"):
        for seed in ("1", "2"):
            # 4 compiles in an iteration, as three of the four modules have decisions and two are drawn.
            assert [compiles for *run, compiles in points if run == [name, seed]] == [0, 4, 8, 12, 16, 20]
    with (output / "runs.csv").open() as file:
        assert all(float(row["cpu_s"]) > 0 and float(row["validation_mean"]) < 1 for row in csv.DictReader(file))
    rows = rf"^\| (ppo|es|{re.escape(SEARCH)}) \| complete \| [12] \|"
    assert len(re.findall(rows, document.read_text(), re.M)) == 6

    refused = programs.run(_TOOL, *flags(24))
    assert refused.returncode == 2
    assert "train_eval.max_compiles was '20', and is '24' now" in refused.stderr


def _states(output: Path) -> list[tuple[str, str]]:
    with (output / "runs.csv").open() as file:
        return [(row["state"], row["seed"]) for row in csv.DictReader(file)]
