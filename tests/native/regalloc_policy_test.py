"""Register-allocation policies in C++: the same decisions as numpy for any features, and no out-of-bounds access."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.rules import rebuilt_choices
from compiler_opt.llvm.training_log import record_dtype
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.continuous import ContinuousPolicy
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.masked_categorical import MaskedCategorical, MaskedCategoricalPolicy
from compiler_opt.spaces.native import native_blob
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, ordered
from compiler_opt.tensor_spec import TensorSpec
from tests.native.cpp import build, run_driver
from tests.real_observations import Decisions

_DRIVER = Path(__file__).with_name("regalloc_policy_driver.cpp")
_EVICTION, _PRIORITY = problems.load("regalloc_eviction"), problems.load("regalloc_priority")
_INTEGERS = ("mask", "is_free", "is_hint", "is_local", "max_stage", "min_stage", "nr_rematerializable")
_ODD = np.array([0.0, -0.0, np.inf, np.nan, 3e38, 1e-40, 1.0, -1.0], "f4")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build([_DRIVER], tmp_path_factory.mktemp("driver") / "driver", "g++", *options)


def _weights(features: Sequence[str], values: np.ndarray, num_outputs: int, seed: int) -> NetworkWeights:
    """Random weights, with the quantiles of the columns of `values` `[T, F]`."""
    rng = np.random.default_rng(seed)
    sizes = (3 * len(features), 12, 8, num_outputs)
    finite = np.nan_to_num(values.astype("f8"), posinf=float(np.finfo("f4").max))
    return NetworkWeights(
        tuple(features),
        tuple(np.quantile(column, np.linspace(0, 1, 30), method="inverted_cdf") for column in finite.T),
        tuple(rng.normal(0, np.sqrt(2 / rows), (rows, width)).astype("f4") for rows, width in pairwise(sizes)),
        tuple(rng.normal(0, 0.3, size).astype("f4") for size in sizes[1:]),
    )


def _decisions(num_candidates: int, count: int, seed: int) -> tuple[list[TensorSpec], np.ndarray]:
    """Features of evictions, with special floating-point values among them, and default decisions."""
    rng = np.random.default_rng(seed)
    names = (signature.MASK, *signature.FEATURES, signature.PROGRESS, signature.PLUGIN_DEFAULT)
    specs = []
    for name in names:
        whole = name in (*_INTEGERS, signature.PLUGIN_DEFAULT)
        shape = (1,) if name in (signature.PROGRESS, signature.PLUGIN_DEFAULT) else (1, num_candidates)
        specs.append(TensorSpec(name, np.dtype("i8" if whole else "f4"), shape))
    records = np.zeros(count, record_dtype(tuple(specs)))
    for spec in specs:
        shape = records[spec.name].shape
        if spec.dtype.kind == "i":
            records[spec.name] = rng.integers(0, 4, shape)
        else:
            # Many values are equal, as in compilers.
            usual = rng.choice(rng.lognormal(0, 3, 9).astype("f4"), shape)
            records[spec.name] = np.where(rng.random(shape) < 0.2, rng.choice(_ODD, shape), usual)
    records[signature.MASK] = rng.random(records[signature.MASK].shape) < 0.4
    records[signature.PLUGIN_DEFAULT] = rng.integers(0, num_candidates, records[signature.PLUGIN_DEFAULT].shape)
    return specs, records


def _arguments(specs: Sequence[TensorSpec]) -> list[str]:
    return [f"{spec.name}:{'i' if spec.dtype.kind == 'i' else 'f'}:{spec.num_elements}" for spec in specs]


@pytest.mark.parametrize("num_candidates", [2, 7, 33])
def test_evictions_equal_numpys(num_candidates: int, driver: Path, tmp_path: Path) -> None:
    assert isinstance(_EVICTION.decision.action_space, MaskedCategorical)
    inputs = _EVICTION.decision.action_space.inputs
    specs, records = _decisions(num_candidates, 300, num_candidates)
    features = {spec.name: records[spec.name] for spec in specs}
    values, legal = inputs.values(features), inputs.legal(features)
    weights = _weights(_EVICTION.decision.feature_names, values.reshape(-1, values.shape[-1]), 1, 1)
    (tmp_path / "blob").write_bytes(_EVICTION.decision.native_form(weights))
    (tmp_path / "observations").write_bytes(records.tobytes())
    # The default decision comes last; it is not a feature of the compiler.
    printed = run_driver(
        driver, "choose_candidate", tmp_path / "blob", tmp_path / "observations", *_arguments(specs[:-1])
    )
    found = np.array(printed, np.int64)
    scores = outputs(weights, QuantileEncoder(weights.quantiles).ranks(values))[..., 0]
    scores = np.where(legal, scores, -np.inf)
    some = legal.any(axis=-1)
    assert (found[~some] == num_candidates - 1).all()
    assert legal[some, found[some]].all()
    # If two scores differ by rounding errors only, either candidate is right.
    np.testing.assert_allclose(scores[some, found[some]], scores[some].max(axis=-1), rtol=1e-4, atol=1e-4)
    assert (found[some] == scores[some].argmax(axis=-1)).mean() > 0.98
    assert isinstance(_EVICTION.decision.policy(weights), MaskedCategoricalPolicy)


@pytest.mark.parametrize("num_candidates", [2, 7, 33])
def test_the_rebuilt_default_equals_pythons(num_candidates: int, driver: Path, tmp_path: Path) -> None:
    specs, records = _decisions(num_candidates, 2000, num_candidates)
    rng = np.random.default_rng(num_candidates)
    for spec in specs:
        if spec.name in ("is_free", "is_hint", "is_local"):
            records[spec.name] = rng.random(records[spec.name].shape) < 0.1
        elif spec.name in ("nr_urgent", "nr_broken_hints"):
            records[spec.name] = rng.integers(0, 3, records[spec.name].shape)
        elif spec.name == "use_def_density":
            records[spec.name] = np.abs(records[spec.name])
    _check_rebuilt(specs, records, driver, tmp_path)


@pytest.mark.ci
def test_the_rebuilt_default_equals_pythons_on_real_decisions(
    evictions: Decisions, driver: Path, tmp_path: Path
) -> None:
    specs = [*evictions.header.features, TensorSpec(signature.PLUGIN_DEFAULT, np.dtype("i8"), (1,))]
    records = np.zeros(len(evictions.records), record_dtype(tuple(specs)))
    for name in evictions.header.names:
        records[name] = evictions.records[name]
    assert len(records) > 1000
    _check_rebuilt(specs, records, driver, tmp_path)


def _check_rebuilt(specs: Sequence[TensorSpec], records: np.ndarray, driver: Path, directory: Path) -> None:
    """The observations end with the plugin's default, which is not used."""
    (directory / "observations").write_bytes(records.tobytes())
    printed = run_driver(driver, "rebuilt_default", "-", directory / "observations", *_arguments(specs[:-1]))
    expected = rebuilt_choices({spec.name: records[spec.name] for spec in specs[:-1]})
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(np.array(printed, np.int64), expected)


def test_mean_actions_equal_numpys(driver: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    dtype = np.dtype([("li_size", "<i8"), ("stage", "<i8"), ("weight", "<f4"), ("default", "<i8")])
    records = np.zeros(500, dtype)
    records["li_size"], records["stage"] = rng.integers(0, 1 << 20, 500), rng.integers(0, 5, 500)
    records["weight"] = np.where(rng.random(500) < 0.3, rng.choice(_ODD, 500), rng.lognormal(0, 3, 500))
    columns = np.stack([records[name].astype("f8") for name in _PRIORITY.decision.feature_names], axis=-1)
    weights = _weights(_PRIORITY.decision.feature_names, columns, 2, 2)
    (tmp_path / "blob").write_bytes(_PRIORITY.decision.native_form(weights))
    (tmp_path / "observations").write_bytes(records.tobytes())
    specs = ["li_size:i:1", "stage:i:1", "weight:f:1"]
    found = run_driver(driver, "mean_action", tmp_path / "blob", tmp_path / "observations", *specs)
    policy = _PRIORITY.decision.policy(weights)
    assert isinstance(policy, ContinuousPolicy)
    expected = policy.means({name: records[name] for name in _PRIORITY.decision.feature_names})
    np.testing.assert_allclose(np.array(found, "f8"), expected, rtol=1e-4, atol=1e-4)
    assert len(set(found)) > 50


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        (["weight:f:1"], "it needs the input li_size, which this compiler does not compute"),
        (["li_size:i:1", "stage:i:5", "weight:f:1"], "it needs the input stage, which this compiler does not compute"),
        (["mask:i:33", "use_def_density:f:33"], "the compiler does not compute use_def_density and nr_broken_hints"),
        (["mask:i:33", "use_def_density:f:33", "nr_broken_hints:f:33"], "the network is for another problem"),
    ],
)
def test_a_policy_that_does_not_fit_is_rejected(specs: list[str], reason: str, driver: Path, tmp_path: Path) -> None:
    weights = _weights(_PRIORITY.decision.feature_names, np.arange(60.0).reshape(20, 3), 2, 1)
    (tmp_path / "blob").write_bytes(_PRIORITY.decision.native_form(weights))
    (tmp_path / "observations").write_bytes(b"")
    [message] = run_driver(driver, "mean_action", tmp_path / "blob", tmp_path / "observations", *specs)
    assert message.startswith(reason)


def test_ordered_keeps_the_order() -> None:
    values = np.array([-np.inf, -3e38, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1.5, 3e38, np.inf])
    assert (np.diff(ordered(values)) > 0).all()
    assert ordered(np.array([-0.0])) == ordered(np.array([0.0]))


def test_the_native_form_depends_on_the_features_type() -> None:
    weights = _weights(_PRIORITY.decision.feature_names, np.arange(60.0).reshape(20, 3), 2, 1)
    assert native_blob(weights) != native_blob(weights, of_integers=False)
