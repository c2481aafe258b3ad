"""Network, linear stage and calibration: against other implementations, and on made-up data."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import save_arrays
from compiler_opt.cost_models.ir2native import evaluation
from compiler_opt.cost_models.ir2native.calibration import calibration_factor, folds, project_sums
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.cost_models.ir2native.linear import fit_linear, is_additive, predict_linear
from compiler_opt.cost_models.ir2native.model import KINDS, Ir2NativeModel
from compiler_opt.cost_models.ir2native.network import FeedForwardNetwork, NetworkSettings
from compiler_opt.cost_models.ir2native.training import TrainingSettings, row_weights, train
from compiler_opt.cost_models.trees import TreeSettings
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.toolchain import Toolchain
from tests.cost_models.ir2native.samples import made_up
from tests.probed import probed

SETTINGS = TrainingSettings(
    TreeSettings(iterations=40, leaf_rows=5), NetworkSettings((16,), epochs=15, batch=64), min_functions=5, folds=2
)


def test_a_network_predicts_as_keras_would() -> None:
    rng = np.random.default_rng(0)
    weights = (rng.normal(size=(4, 8)), rng.normal(size=(8, 1)))
    network = FeedForwardNetwork(rng.normal(size=4), np.array([1.0, 2.0, 0.5, 0.0]), weights, (np.ones(8), np.zeros(1)))
    row = rng.normal(size=4)
    hidden = [
        max(0.0, 1.0 + sum((row[i] - network.mean[i]) * network.scale[i] * weights[0][i, j] for i in range(4)))
        for j in range(8)
    ]
    assert network.predict(row[None])[0] == pytest.approx(
        sum(h * w for h, w in zip(hidden, weights[1][:, 0], strict=True))
    )
    restored = FeedForwardNetwork.from_arrays(network.arrays(), 4)
    assert (restored.predict(row[None]) == network.predict(row[None])).all()
    with pytest.raises(ValueError, match="expected mean"):
        FeedForwardNetwork.from_arrays(network.arrays(), 5)
    with pytest.raises(ValueError, match="layers"):
        FeedForwardNetwork.from_arrays({}, 4)


def test_the_linear_stage_finds_the_bytes() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, (2000, 4)).astype(float)
    x[:, 0] = 1
    y = x @ [5.0, 3.0, 0.0, 7.0]
    found = fit_linear(x, y, np.ones(2000), prior_rows=1e-3)
    assert found == pytest.approx([5, 3, 0, 7], abs=0.05)
    # Ten times as large as all that was seen.
    assert predict_linear(found, np.array([[1, 200.0, 0, 0]]))[0] == pytest.approx(605, rel=0.01)


def test_what_is_rare_has_few_bytes() -> None:
    x = np.ones((1000, 2))
    x[1:, 1] = 0
    y = np.full(1000, 10.0)
    y[0] = 200.0
    assert fit_linear(x, y, np.ones(1000))[1] < 40


def test_frames_have_no_bytes() -> None:
    assert is_additive(["tok.add", "op", "fn.frame_bytes", "prop.Uses", "live.int.saved"]).tolist() == [1, 1, 0, 0, 1]


def test_the_factor_makes_sums_unbiased() -> None:
    rng = np.random.default_rng(0)
    projects = np.repeat(np.array(["a", "b", "c"]), 500)
    actual = np.exp(rng.normal(3, 1, 1500))
    predicted = actual * np.exp(rng.normal(-0.2, 0.5, 1500))
    names, totals = project_sums(actual, projects)
    _, sums = project_sums(predicted, projects)
    factor = calibration_factor(sums, totals)
    assert names == ["a", "b", "c"] and (factor * sums / totals).mean() == pytest.approx(1)
    with pytest.raises(ConfigError, match="found none"):
        calibration_factor(np.zeros(2), np.zeros(2))


def test_folds_hold_each_project_once() -> None:
    parts = folds(["a", "b", "a", "c", "d"], 3, 0)
    assert sorted(name for part in parts for name in part) == ["a", "b", "c", "d"] and len(parts) == 3
    assert folds(["a", "a"], 5, 0) == [{"a"}]


def test_copies_count_once_and_projects_by_their_root() -> None:
    symbols, sizes = ["f", "f", "g", "h", "x"], np.array([4, 4, 4, -1, 8])
    weights = row_weights(symbols, sizes, np.array(["p", "p", "p", "p", "q"]), 0.5)
    # Project p has two functions, f and g.
    assert weights == pytest.approx([0.5 / 2**0.5, 0.5 / 2**0.5, 1 / 2**0.5, 0, 1])


@pytest.fixture(scope="module", name="newest")
def newest_fixture() -> Toolchain:
    return probed("clang-22")


@pytest.fixture(scope="module", name="model")
def model_fixture(newest: Toolchain) -> Ir2NativeModel:
    return train(made_up(), newest, SETTINGS, {"made": "up"})


@pytest.mark.ci
def test_a_tiny_training_learns(model: Ir2NativeModel) -> None:
    """Sizes that are halved where `c` is set: the linear stage cannot know, its corrections do."""
    other = made_up(seed=1)
    errors = {kind: evaluation.measure(other, sizes) for kind, sizes in model.predict_all(other).items()}
    assert errors["trees"].median_error.value < 0.10 and errors["mean"].median_error.value < 0.12
    assert errors["network"].median_error.value < errors["linear"].median_error.value > 0.15
    assert all(abs(each.mean_bias.value) < 0.05 for each in errors.values())
    assert errors["trees"].unseen == 0 and errors["trees"].unseen_median_error is None
    assert evaluation.measure(other, model.predict(other), seen=model.seen).unseen == 0
    assert evaluation.measure(other, model.predict(other), seen=model.seen[:0]).unseen == 6 * 3 * 25


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(model: Ir2NativeModel, newest: Toolchain) -> None:
    again = train(made_up(), newest, SETTINGS, {"made": "up"})
    for kind in KINDS:
        assert (again.predict(made_up(), kind) == model.predict(made_up(), kind)).all()


def test_a_model_is_the_same_after_saving(model: Ir2NativeModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    restored = Ir2NativeModel.load(tmp_path / "model")
    assert (restored.predict(made_up()) == model.predict(made_up())).all()
    assert restored.about["made"] == "up" and restored.chosen == "mean"


def test_damaged_models_are_refused_by_name(model: Ir2NativeModel, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(PolicyError, match=r"model\.json: no such file"):
        Ir2NativeModel.load(folder)
    model.save(folder)
    content = (folder / "model.npz").read_bytes()
    for damaged in (content[:-30], b"", content[:400] + b"?" + content[401:]):
        (folder / "model.npz").write_bytes(damaged)
        with pytest.raises(PolicyError, match=r"model\.npz: damaged") as error:
            Ir2NativeModel.load(folder)
        assert "\n" not in str(error.value)
    save_arrays(folder / "model.npz", {"coefficients": np.zeros(3)})
    with pytest.raises(PolicyError, match="checksum"):
        Ir2NativeModel.load(folder)
    description = (folder / "model.json").read_text()
    (folder / "model.json").write_text(description.replace("columns", "colours"))
    with pytest.raises(PolicyError, match=r"model\.json: damaged: "):
        Ir2NativeModel.load(folder)


def test_a_model_is_for_one_compiler(model: Ir2NativeModel, newest: Toolchain) -> None:
    model.check(newest)
    with pytest.raises(PolicyError, match="the model is for LLVM 22"):
        model.check(dataclasses.replace(newest, version=(19, 1, 7)))


def test_too_little_to_learn_from(newest: Toolchain) -> None:
    with pytest.raises(ConfigError, match="at least 20 functions"):
        train(Dataset([]), newest, SETTINGS, {})
    with pytest.raises(ConfigError, match="two projects"):
        train(made_up(projects=1), newest, SETTINGS, {})


def test_errors_are_those_of_counting_by_hand() -> None:
    data = made_up(projects=2, modules=1, functions=3)
    actual = data.bytes().astype(float)
    predicted = np.where(actual > 0, actual * 1.1, 4.0)
    errors = evaluation.measure(data, predicted)
    assert errors.median_error.value == pytest.approx(0.1)
    first = errors.projects[0]
    total = data.totals()[0]
    assert (first.functions, first.vanished, first.modules) == (3, 1, 1)
    # What vanishes is predicted, and is in no object.
    assert first.bias == pytest.approx((1.1 * total + 4) / total - 1)
    assert len(evaluation.table(errors).lines()) > 3 and "worst project" in evaluation.summary(errors)[0]
