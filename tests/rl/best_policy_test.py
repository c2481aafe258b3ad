"""Trainings with a validation corpus: the best policy is saved, not the last, and never one worse than the default."""

import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.groups import CollectionPolicy, Group, RepeatedPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.decisions.inlining import PROBLEM as INLINING
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.history import load_history
from compiler_opt.evaluation.plots import training_curve
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.best_policy import BEST_POLICY_DIR, KEPT_DEFAULT, VALIDATION
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.pipeline import PipelineSettings, train
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.rl.unfinished_policy import UNFINISHED
from compiler_opt.tensorflow_loading import load_tensorflow
from tests.small_corpus import make_corpus, make_small_corpus

load_tensorflow()
from compiler_opt.rl import training_loop  # noqa: E402

pytestmark = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)

_QUANTILES = np.arange(-5.0, 60.0)
_BIG = """
int get(int);
static int much(int x) { for (int i = 0; i < x; i++) x += get(x) * get(i + x) - get(x - i) / 3; return x; }
int NAME(int y) { return much(y) + much(y + 1) + much(y + 2) + much(y + 3); }
"""


def _decider(action: int | None) -> NetworkWeights:
    """Always takes the same action; None takes the default's decisions."""
    names = tuple(FEATURES)
    bias = np.array([0, 1] if action else [1, 0], np.float32)
    margin = ALWAYS_DEFAULT if action is None else 0.0
    kernels = (np.zeros((3 * len(names), 2), np.float32),)
    return NetworkWeights(names, (_QUANTILES,) * len(names), kernels, (bias,), margin=margin)


class _Scripted(Algorithm):
    """Has one policy after the other, whatever it learns."""

    description = "scripted"

    def __init__(self, run: TrainingRun, policies: Sequence[NetworkWeights]):
        self._run = run
        self._policies = policies
        self._iteration = 0

    def collection_policy(self) -> CollectionPolicy:
        policy = INLINING.decision.policy(_decider(0), temperature=1.0)
        return RepeatedPolicy(policy, 2, self._run.rollout_settings())

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del groups, rng, progress
        if self._iteration + 1 == len(self._policies):
            raise KeyboardInterrupt
        self._iteration += 1
        return {}

    def policy(self) -> NetworkWeights:
        return self._policies[self._iteration]

    def state(self) -> dict[str, int]:
        return {"iteration": self._iteration}

    def restore(self, state: dict[str, int]) -> None:  # type: ignore[override]
        self._iteration = state["iteration"]


@dataclasses.dataclass
class _Training:
    root_dir: Path
    corpus: Corpus
    validation: Corpus
    toolchain: Toolchain

    def run(self, policies: Sequence[NetworkWeights], num_iterations: int) -> NetworkWeights:
        config = TrainingConfig(
            num_iterations=num_iterations, num_modules=2, rollouts_per_module=2, validation_iterations=2
        )
        self.root_dir.mkdir(exist_ok=True)
        with WorkerPool(self.toolchain, INLINING, 2) as pool:
            quantiles = dict.fromkeys(FEATURES, _QUANTILES)
            run = TrainingRun(
                self.root_dir,
                self.corpus,
                self.toolchain,
                INLINING,
                pool,
                quantiles,
                config,
                NetworkConfig(()),
                validation=self.validation,
            )
            return training_loop.train(run, _Scripted(run, policies))


@pytest.fixture
def training(toolchain: Toolchain, tmp_path: Path) -> _Training:
    clang = str(toolchain.clang)
    for name in ("corpus", "validation"):
        (tmp_path / name).mkdir()
    corpus = make_small_corpus(tmp_path / "corpus", clang)
    sources = {f"{name}/{name}.c": _BIG.replace("NAME", name) for name in ("one", "two")}
    return _Training(tmp_path / "run", corpus, make_corpus(tmp_path / "validation", clang, sources), toolchain)


@pytest.mark.slow
def test_the_best_policy_is_saved_across_an_interruption(training: _Training, caplog: pytest.LogCaptureFixture) -> None:
    always, default = _decider(1), _decider(None)
    caplog.set_level(logging.INFO, "compiler_opt")
    # Validated are the policies after iterations 0, 2 and 3, the end; inlining four calls of `much` is worst.
    training.run([always, default, default, always], 2)
    assert NetworkWeights.load(training.root_dir / BEST_POLICY_DIR).metadata[VALIDATION]["iteration"] == 2
    saved = training.run([always, default, default, always], 3)
    assert saved.metadata[VALIDATION]["iteration"] == 2 and saved.metadata["iterations"] == 2
    assert saved.metadata[VALIDATION]["mean of projects"] == 0.0
    assert NetworkWeights.load(training.root_dir / "policy").checksum() == default.checksum()
    lines = [json.loads(line) for line in (training.root_dir / "history.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1, 2, 3]
    assert ["validation_mean" in line for line in lines] == [True, False, True, True]
    assert lines[2]["validation_by_project"] == {"one": 0.0, "two": 0.0}
    assert lines[0]["validation_mean"] == lines[3]["validation_mean"] > 0.1
    history = load_history(training.root_dir)
    assert history.validation[0].compiles[0] == 0
    assert history.validation[0].values == (lines[0]["validation_mean"], 0.0, lines[3]["validation_mean"])
    curve = training_curve(history)
    assert curve is not None and "validation, mean of projects" in curve
    assert "validation after iteration 2: linked text +0.00% in the mean of 2 projects" in caplog.text


@pytest.mark.slow
def test_a_run_that_is_worse_than_the_default_keeps_it(training: _Training, caplog: pytest.LogCaptureFixture) -> None:
    saved = training.run([_decider(1), _decider(1)], 1)
    assert saved.margin == ALWAYS_DEFAULT
    assert "WORSE THAN THE DEFAULT: the best policy of this run, of iteration 0, changes the linked text" in caplog.text
    written = training.root_dir / "policy"
    assert NetworkWeights.load(written).margin == ALWAYS_DEFAULT
    card = (written / "MODEL_CARD.md").read_text()
    assert f"| {KEPT_DEFAULT.replace('_', ' ')} | the best policy of this run" in card
    assert (written / "model.tflite").exists()


@pytest.mark.ci
def test_an_interrupted_run_keeps_the_best_policy(training: _Training, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "compiler_opt")
    always, default = _decider(1), _decider(None)
    # Validated are the policies after iterations 0 and 2.
    for policies, how_far, validated in (([always, always], 1, 0), ([always, always, default, always], 3, 2)):
        told = f"{how_far} of 5 iterations; the policy is in {training.root_dir / 'policy'}, the best one on the valid"
        with pytest.raises(KeyboardInterrupt, match=told):
            training.run(policies, 5)
        weights = NetworkWeights.load(training.root_dir / "policy")
        assert weights.margin == ALWAYS_DEFAULT and weights.metadata[VALIDATION]["iteration"] == validated
        assert weights.metadata[UNFINISHED] == f"{validated} of 5 iterations"
    assert caplog.text.count("WORSE THAN THE DEFAULT") == 1 and caplog.text.count("saving the best policy") == 1


@pytest.mark.slow
def test_a_damaged_or_other_best_policy_is_not_trusted(training: _Training, caplog: pytest.LogCaptureFixture) -> None:
    training.run([_decider(None)] * 2, 1)
    (training.root_dir / BEST_POLICY_DIR / "network.npz").write_bytes(b"PK")
    training.run([_decider(None)] * 3, 2)
    assert (training.root_dir / f"{BEST_POLICY_DIR}.damaged").is_dir()
    one = training.validation.select(projects=["one"])
    dataclasses.replace(training, validation=one).run([_decider(1)] * 4, 3)
    assert "was validated on another corpus" in caplog.text
    assert NetworkWeights.load(training.root_dir / BEST_POLICY_DIR).metadata[VALIDATION]["mean of projects"] > 0


def test_validation_modules_are_not_trained_on(training: _Training, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"expected modules that are not trained on, found plain/data\.c\.o and 3 others"
    ):
        train(
            tmp_path / "run",
            training.corpus,
            INLINING,
            training.toolchain,
            PipelineSettings().starting_from(_saved(tmp_path / "start")),
            validation=training.corpus,
        )


def _saved(directory: Path) -> Path:
    directory.mkdir()
    dataclasses.replace(_decider(1), metadata={"problem": "inlining"}).save(directory)
    return directory
