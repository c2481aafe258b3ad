"""The comparison of trainings as a user runs it: two algorithms, two seeds, interrupted and resumed."""

import csv
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.evaluation.comparison import BEGIN, END
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.problems.inlining import FEATURES
from tests import programs
from tests.small_corpus import SOURCES, make_corpus, make_small_corpus

_TOOL = "compiler_opt/tools/compare_trainers.py"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_algorithms_interrupted_and_resumed(tmp_path: Path) -> None:
    for name in ("corpus", "validation"):
        (tmp_path / name).mkdir()
    make_small_corpus(tmp_path / "corpus", "clang-22")
    sources = {f"held/{Path(name).name}": text for name, text in SOURCES.items()}
    make_corpus(tmp_path / "validation", "clang-22", sources)
    save_vocabulary(tmp_path / "vocabulary", {name: np.arange(-5.0, 60.0) for name in FEATURES})
    document, output = tmp_path / "page.md", tmp_path / "out"
    document.write_text(f"{BEGIN}\n{END}\n")

    def flags(compiles: int) -> list[str]:
        return [
            f"--data_path={tmp_path / 'corpus'}",
            f"--validation_path={tmp_path / 'validation'}",
            f"--vocab_path={tmp_path / 'vocabulary'}",
            "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
            "--gin_files=gin_configs/inlining/es_nn_agent.gin",
            "--gin_bindings=train_eval.num_modules=2",
            "--gin_bindings=train_eval.rollouts_per_module=2",
            "--seeds=1,2",
            f"--compiles={compiles}",
            "--validate_every=4",
            "--clang_path=clang-22",
            "--num_workers=2",
            f"--output_dir={output}",
            f"--document={document}",
        ]

    with programs.start(_TOOL, *flags(12)) as program:
        while not (output / "ppo" / "seed-2").exists():
            assert not program.wait(0.1), program.stderr()
        os.kill(program.pid, signal.SIGINT)
        assert program.result(timeout_s=300).returncode == 130
    assert _states(output) == [("complete", "1"), ("unfinished", "2"), ("unfinished", "1"), ("unfinished", "2")]
    before_ns = (output / "ppo" / "seed-1.log").stat().st_mtime_ns

    result = programs.run(_TOOL, *flags(12), timeout_s=3000)
    assert result.returncode == 0, result.stderr
    assert "run 1 of 4" not in result.stdout and "run 2 of 4: ppo, seed 2" in result.stdout
    assert (output / "ppo" / "seed-1.log").stat().st_mtime_ns == before_ns
    assert [state for state, _ in _states(output)] == ["complete"] * 4
    with (output / "curves.csv").open() as file:
        points = [(row["algorithm"], row["seed"], int(row["compiles"])) for row in csv.DictReader(file)]
    for name in ("ppo", "es"):
        for seed in ("1", "2"):
            # 4 compiles in an iteration, as three of the four modules have decisions and two are drawn.
            assert [compiles for *run, compiles in points if run == [name, seed]] == [0, 4, 8, 12]
    with (output / "runs.csv").open() as file:
        assert all(float(row["cpu_s"]) > 0 and float(row["validation_mean"]) < 1 for row in csv.DictReader(file))
    assert len(re.findall(r"^\| (ppo|es) \| complete \| [12] \|", document.read_text(), re.MULTILINE)) == 4

    refused = programs.run(_TOOL, *flags(16))
    assert refused.returncode == 2
    assert "train_eval.max_compiles was '12', and is '16' now" in refused.stderr


def _states(output: Path) -> list[tuple[str, str]]:
    with (output / "runs.csv").open() as file:
        return [(row["state"], row["seed"]) for row in csv.DictReader(file)]
