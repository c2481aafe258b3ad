"""Learning from flips: of a known rule, and as a user starts it."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.flip_store import Flips, FlipStore
from compiler_opt.errors import ConfigError
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.algorithms.flips import ALGORITHM
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.decisions.inlining import FEATURES  # noqa: E402
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkConfig, NetworkWeights  # noqa: E402
from compiler_opt.rl.algorithms.flips import FlipsConfig  # noqa: E402
from compiler_opt.rl.algorithms.flips.learner import Samples, SavingsLearner  # noqa: E402
from compiler_opt.spaces.binary import BinaryPolicy  # noqa: E402
from compiler_opt.spaces.heads.categorical import BinaryHead  # noqa: E402
from tests import programs  # noqa: E402
from tests.small_corpus import make_small_corpus  # noqa: E402

_FEATURES = ("a", "b")


def _flips(count: int, project: str, seed: int) -> Flips:
    """Inlining saves 4 bytes for each unit of `b`; half of the flips are from 1 to 0."""
    rng = np.random.default_rng(seed)
    observations, actions = rng.integers(-10, 10, (count, 2)), rng.integers(0, 2, count)
    saved = 4.0 * observations[:, 1] * np.where(actions == 1, 1, -1) + rng.normal(0, 10, count)
    return Flips(
        "inlining",
        "22.1.8",
        "default",
        _FEATURES,
        ("m",),
        (project,),
        observations,
        actions,
        1 - actions,
        saved,
        np.full(count, np.nan),
        np.zeros(count, np.int32),
    )


def test_it_learns_what_inlining_saves() -> None:
    head = BinaryHead(dict.fromkeys(_FEATURES, np.arange(-10.0, 10.0)))
    config = FlipsConfig(num_epochs=30, networks=2, minibatch_size=128, bytes_per_logit=10.0)
    samples = Samples.of([_flips(3000, "p", 1)], config)
    weights, metrics = SavingsLearner(head, "decision", NetworkConfig((16,), ()), config).learn(samples, seed=3)
    new = _flips(500, "p", 2).observations
    logits = BinaryPolicy(weights).logits({name: new[:, index] for index, name in enumerate(_FEATURES)})
    expected = 4.0 * new[:, 1]
    assert np.corrcoef(10 * (logits[:, 1] - logits[:, 0]), expected)[0, 1] > 0.98
    assert np.abs(10 * (logits[:, 1] - logits[:, 0]) - expected).mean() < 5
    assert metrics["saved_correlation"] > 0.7 and metrics["distilled_correlation"] > 0.98


def test_projects_and_large_gains_are_balanced() -> None:
    parts = [_flips(10, "p", 1), _flips(30, "q", 2)]
    samples = Samples.of(parts, FlipsConfig(project_balance=1.0, largest_gain_bytes=20.0, bytes_per_logit=10.0))
    np.testing.assert_allclose(samples.weights[[0, 10]], [2, 2 / 3], rtol=1e-6)
    assert len(samples) == 40 and samples.weights.mean() == pytest.approx(1.0)
    assert np.abs(samples.saved).max() == 1.0
    first = parts[0]
    wanted = np.clip(first.gains * np.where(first.actions == 1, 1, -1), -20, 20) / 20
    np.testing.assert_allclose(samples.saved[:10], wanted, rtol=1e-6)


def test_other_problems_are_refused() -> None:
    from types import SimpleNamespace
    from typing import Any, cast

    context = cast(Any, SimpleNamespace(problem=problems.load("regalloc_eviction")))
    with pytest.raises(ConfigError, match="regalloc_eviction: flips are for inlining for size"):
        ALGORITHM.build(context, AlgorithmConfigs())


class _Runs:
    """Trainings on a small corpus, as a user starts them."""

    def __init__(self, place: Path):
        self.place = place
        (place / "corpus").mkdir()
        make_small_corpus(place / "corpus", "clang-22")
        save_vocabulary(place / "vocabulary", {name: np.arange(-5.0, 60.0) for name in FEATURES})

    def train(self, name: str, iterations: int, *more: str) -> tuple[list[dict[str, float]], NetworkWeights]:
        """Its history and its policy."""
        result = programs.run(
            "compiler_opt/rl/train_locally.py",
            f"--output_dir={self.place / name}",
            f"--data_path={self.place / 'corpus'}",
            f"--vocab_path={self.place / 'vocabulary'}",
            "--clang_path=clang-22",
            "--num_workers=1",
            "--gin_files=gin_configs/inlining/flips_nn_agent.gin",
            f"--gin_bindings=train_eval.num_iterations={iterations}",
            "--gin_bindings=flips.learn_every=2",
            "--gin_bindings=flips.num_epochs=2",
            "--gin_bindings=flips.networks=1",
            *(f"--gin_bindings=flips.{binding}" for binding in more),
        )
        assert result.returncode == 0, result.stderr
        history = self.place / name / "history.jsonl"
        lines = history.read_text().splitlines() if history.exists() else []
        return [json.loads(line) for line in lines], NetworkWeights.load(self.place / name / "policy")

    @property
    def learning_from_the_first(self) -> tuple[str, str]:
        return "first_samples=10", f"stores=('{self.place / 'run' / 'flips'}',)"


@pytest.mark.slow
def test_from_flips_to_a_policy(tmp_path: Path) -> None:
    runs = _Runs(tmp_path)
    # Too few flips: the default decides.
    history, weights = runs.train("run", 1)
    assert weights.margin == ALWAYS_DEFAULT
    assert history[0]["flips"] > 5 and history[0]["reward_mean"] == 0
    # It goes on with them.
    history, weights = runs.train("run", 2, "first_samples=10")
    assert weights.margin == 0
    assert history[1]["samples"] == history[0]["flips"] + history[1]["flips"]
    [flips, _] = FlipStore(tmp_path / "run" / "flips").read("inlining", FEATURES)
    assert flips.base == "default" and set(flips.projects) == {"plain", "shapes"}
    # Another one compiles nothing.
    history, weights = runs.train("learned", 0, *runs.learning_from_the_first)
    assert not history and weights.margin == 0 and weights.metadata["compiles"] == 0
    assert not (tmp_path / "learned" / "flips").exists()


@pytest.mark.slow
def test_another_run_learns_from_them_too(tmp_path: Path) -> None:
    """It decides by what it has learned."""
    runs = _Runs(tmp_path)
    runs.train("run", 2)
    history, _ = runs.train("other", 3, *runs.learning_from_the_first)
    assert history[1]["samples"] > history[0]["flips"] + history[1]["flips"]
    bases = {each.base for each in FlipStore(tmp_path / "other" / "flips").read("inlining", FEATURES)}
    assert len(bases) == 2 and "default" in bases
