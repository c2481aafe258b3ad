"""Each algorithm trains on a real corpus by its gin file, and an interrupted run ends as if it had not been."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from tests import programs
from tests.small_corpus import make_busy_corpus, make_small_corpus

_INLINING, _EVICTION, _PRIORITY = "inlining", "regalloc_eviction", "regalloc_priority"
_RECURRENT = ("network.lstm_units=8", "network.lstm_steps=8")
_DOUBLE = ("dqn.discount=0.9", "dqn.double=True")


class _Runs:
    """Runs on the corpus of one problem."""

    def __init__(self, directory: Path, problem: str):
        self._directory, self._problem = directory, problem
        (directory / "corpus").mkdir()
        make = make_small_corpus if problem == _INLINING else make_busy_corpus
        make(directory / "corpus", "clang-22")
        names = problems.load(problem).decision.feature_names
        save_vocabulary(directory / "vocabulary", {name: np.arange(-5.0, 60.0) for name in names})

    def train(self, algorithm: str, *bindings: str, status: int = 0) -> str:
        """Standard error."""
        settings = (
            "train_eval.num_iterations=3",
            "train_eval.num_modules=3",
            "train_eval.rollouts_per_module=2",
            *bindings,
        )
        result = programs.run(
            "compiler_opt/rl/train_locally.py",
            f"--compile_task={self._problem}",
            f"--output_dir={self._directory / algorithm}",
            f"--data_path={self._directory / 'corpus'}",
            f"--vocab_path={self._directory / 'vocabulary'}",
            f"--gin_files=gin_configs/{self._problem}/{algorithm}_nn_agent.gin",
            *(f"--gin_bindings={setting}" for setting in settings),
            "--clang_path=clang-22",
            "--num_workers=1",
            timeout_s=1000,
        )
        assert result.returncode == status, result.stderr
        return result.stderr


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> _Runs:
    return _Runs(tmp_path, request.param)


def _slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("runs", "algorithm", "bindings", "metric"),
    [
        (_PRIORITY, "reinforce", (), "loss"),
        _slow(_INLINING, "es", ("es.noise=0.5",), "gradient_norm"),
        _slow(_EVICTION, "dqn", (*_DOUBLE, "dqn.steps=10"), "loss"),
        _slow(_INLINING, "bc_max", ("bc_max.clone_every=2", "bc_max.num_epochs=3"), "improved"),
        _slow(_EVICTION, "bc_max", ("bc_max.clone_every=1", "bc_max.num_epochs=2"), "improved"),
        _slow(_PRIORITY, "bc_max", ("bc_max.clone_every=1", "bc_max.num_epochs=2"), "improved"),
        _slow(_INLINING, "dqn", ("dqn.max_decisions=30",), "loss"),
        _slow(_INLINING, "reinforce", ("advantages.kind='moving_average'",), "loss"),
        _slow(_EVICTION, "reinforce", (), "loss"),
        _slow(_EVICTION, "es", ("es.modules_per_direction=3", "es.optimizer='plain'", "es.noise=0.5"), "gradient_norm"),
        _slow(_PRIORITY, "es", ("train_eval.rollouts_per_module=4", "es.optimizer='momentum'"), "gradient_norm"),
        _slow(_INLINING, "es", ("train_eval.rollouts_per_module=4", "es.optimizer='trust_region'"), "directions"),
        _slow(_PRIORITY, "ppo", ("ppo.kl_target=0.01",), "kl_weight"),
        _slow(_INLINING, "ppo", ("novelty.weight=0.5",), "novelty"),
        _slow(_INLINING, "ppo", (*_RECURRENT, "ppo.max_decisions=20"), "loss"),
        _slow(_INLINING, "dqn", (*_RECURRENT, *_DOUBLE, "dqn.steps=10", "dqn.max_decisions=30"), "loss"),
        _slow(_INLINING, "es", (*_RECURRENT, "es.noise=0.5"), "gradient_norm"),
    ],
    indirect=["runs"],
)
def test_it_trains_and_resumes(
    runs: _Runs, algorithm: str, bindings: tuple[str, ...], metric: str, tmp_path: Path
) -> None:
    runs.train(algorithm, *bindings)
    root = tmp_path / algorithm
    whole, history = NetworkWeights.load(root / "policy"), (root / "history.jsonl").read_text()
    entries = [json.loads(line) for line in history.splitlines()]
    assert [entry["iteration"] for entry in entries] == [1, 2, 3]
    assert all(entry["failures"] == 0 and np.isfinite(entry[metric]) for entry in entries)
    card = ModelCard.load(root / "policy")
    assert card is not None and card.algorithm
    if "bc_max.clone_every=2" in bindings:
        # Keeping the policy after each iteration clones nothing.
        state = json.loads((root / "checkpoints" / "000003" / "state.json").read_text())
        assert state["algorithm"]["num_clones"] == 1
    # As if the run had been killed in its last iteration, when all but the checkpoint was written.
    shutil.rmtree(root / "checkpoints" / "000003")
    shutil.rmtree(root / "policy")
    assert "resuming after iteration 2" in runs.train(algorithm, *bindings)
    again = NetworkWeights.load(root / "policy")
    for one, other in zip(whole.kernels, again.kernels, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert (whole.lstm is not None) == ("network.lstm_units=8" in bindings)
    last = json.loads((root / "history.jsonl").read_text().splitlines()[-1])
    assert last[metric] == pytest.approx(entries[-1][metric], rel=1e-4)
    assert last["reward_mean"] == pytest.approx(entries[-1]["reward_mean"])
