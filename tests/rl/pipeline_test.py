"""The whole pipeline as one call: which steps there are, and in what order. `docs/api.md` runs it to the end."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl import pipeline
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.pipeline import PipelineSettings, PipelineStep
from compiler_opt.rl.unfinished_policy import save_unfinished_policy
from tests.probed import probed


def _steps(root_dir: Path, **training: str) -> Sequence[PipelineStep]:
    steps: list[PipelineStep] = []
    pipeline.run(
        root_dir,
        Corpus(root_dir, ()),
        problems.load("regalloc_eviction"),
        probed("clang-22"),
        PipelineSettings(training=TrainingConfig(**training)),  # type: ignore[arg-type]
        do_step=steps.append,
    )
    return steps


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, ["trace", "vocabulary", "warm start", "training"]),
        ({"warmstart_policy_dir": "elsewhere"}, ["training"]),
        # Flips start from the compiler's own decisions, not from a clone.
        ({"algorithm": "flips"}, ["trace", "vocabulary", "training"]),
    ],
)
def test_steps(tmp_path: Path, training: dict[str, str], expected: list[str]) -> None:
    assert [step.name for step in _steps(tmp_path, **training)] == expected


def test_steps_whose_output_is_there_are_done(tmp_path: Path) -> None:
    assert [step.name for step in _steps(tmp_path) if step.is_done] == []
    (tmp_path / "default_trace.tfrecord.meta.json").touch()
    (tmp_path / "vocabulary").mkdir()
    assert [step.name for step in _steps(tmp_path) if step.is_done] == ["trace"]
    (tmp_path / "vocabulary" / "f.buckets").touch()
    policy = NetworkWeights.keeping_default("callee_users")
    save_unfinished_policy(tmp_path / "warm_start", policy, "1 of 2 epochs")
    assert [step.name for step in _steps(tmp_path) if step.is_done] == ["trace", "vocabulary"]
    policy.save(tmp_path / "warm_start" / "policy")
    # Only training itself knows where it was interrupted.
    assert [step.name for step in _steps(tmp_path) if step.is_done] == ["trace", "vocabulary", "warm start"]


def test_an_unknown_algorithm_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'unheard_of'"):
        _steps(tmp_path, algorithm="unheard_of")


def test_one_seed_for_all_steps() -> None:
    settings = PipelineSettings().with_seed(7)
    assert (settings.cloning.seed, settings.training.seed) == (7, 7)
    assert dataclasses.replace(settings.training, seed=1) == TrainingConfig()


@pytest.mark.parametrize(
    ("problem", "algorithm", "words"),
    [
        ("inlining", "flips", "expected 0 with train_eval.algorithm = 'flips', which learns from single decisions"),
        ("inlining", "bc_max", "expected 0 with train_eval.algorithm = 'bc_max'"),
        ("regalloc_priority", "ppo", "expected 0 for regalloc_priority, found 8; only policies with binary actions"),
    ],
)
def test_a_recurrent_network_is_refused_where_nothing_can_train_it(
    problem: str, algorithm: str, words: str, tmp_path: Path
) -> None:
    settings = PipelineSettings(network=NetworkConfig(lstm_units=8), training=TrainingConfig(algorithm=algorithm))
    corpus = Corpus(tmp_path, ())
    with pytest.raises(ConfigError, match=f"network.lstm_units: {words}"):
        pipeline.train(tmp_path / "run", corpus, problems.load(problem), probed("clang-22"), settings)
    assert not (tmp_path / "run").exists()
