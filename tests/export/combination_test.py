"""Several policies in one: exactly the chosen one's outputs in every form, and policies that cannot be combined."""

import dataclasses
import importlib
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError
from compiler_opt.export.combination import COMBINED_OF, RULED, RULES, combine_policies, save_combination
from compiler_opt.policies.joined import gated_network
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from tests.native.cpp import DRIVER, build, driver_logits

tf: Any = importlib.import_module("tensorflow")

_ADVICE = "inlining_decision"
_FEATURES = ("callsite_cost", "node_count", "edge_count")


def _network(
    seed: int, hidden: tuple[int, ...], features: tuple[str, ...] = _FEATURES, num_outputs: int = 2
) -> NetworkWeights:
    rng, sizes = np.random.default_rng(seed), (3 * len(features), *hidden, num_outputs)
    return NetworkWeights(
        features,
        (np.sort(np.concatenate([np.arange(-30.0, 34.0), np.full(3, 5.0)])),) * len(features),
        tuple(rng.normal(size=shape).astype("f4") for shape in itertools.pairwise(sizes)),
        tuple(rng.normal(size=size).astype("f4") for size in sizes[1:]),
        {"problem": "inlining", "seed": seed, "iterations": 9},
    )


def _save(directory: Path, weights: NetworkWeights) -> Path:
    directory.mkdir()
    weights.save(directory)
    return directory


def _observations(count: int, num_features: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-35, 38, (count, num_features))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([DRIVER], tmp_path_factory.mktemp("driver") / "driver", "clang++-22", "-O2")


@pytest.mark.parametrize("chooser", ["node_count", "callee_users"])
@pytest.mark.parametrize("hidden", [((8, 4), (16, 3), (1, 5)), ((8,), (16, 8, 4), (5, 3)), ((7,), (7,), (9,))], ids=str)
def test_the_native_form_is_exact(
    hidden: tuple[tuple[int, ...], ...], chooser: str, driver: Path, tmp_path: Path
) -> None:
    """Whether the networks observe the feature or not."""
    networks = [_network(seed, sizes) for seed, sizes in enumerate(hidden)]
    folders = [_save(tmp_path / str(number), network) for number, network in enumerate(networks)]
    combined = combine_policies(folders, chooser, [-2, 5])
    assert combined.features == (_FEATURES if chooser in _FEATURES else (*_FEATURES, chooser))
    observations = _observations(10_000, len(combined.features))
    values = observations[:, combined.features.index(chooser)]
    chosen = (values >= -2).astype(int) + (values >= 5)
    assert set(values[chosen == 1]) == set(range(-2, 5))
    three = np.ascontiguousarray(observations[:, :3])
    alone = np.stack([driver_logits(driver, network, three, tmp_path) for network in networks])
    expected = alone[chosen, np.arange(len(chosen))]
    np.testing.assert_array_equal(driver_logits(driver, combined, observations, tmp_path), expected)
    # NumPy may add in another order.
    by_name = dict(zip(combined.features, observations.T, strict=True))
    np.testing.assert_allclose(BinaryPolicy(combined).logits(by_name), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("problem", "num_outputs"), [("regalloc_eviction", 1), ("regalloc_priority", 2)])
def test_the_register_allocator(problem: str, num_outputs: int) -> None:
    names = problems.load(problem).decision.feature_names
    networks = [_network(seed, (6, 5), names, num_outputs) for seed in range(2)]
    combined = gated_network(networks, names[1], [3])
    problems.load(problem).decision.policy(combined)
    ranks = QuantileEncoder(combined.quantiles).ranks(_observations(2000, len(names)))
    low, high = (outputs(network, ranks) for network in networks)
    expected = np.where(_observations(2000, len(names))[:, 1:2] >= 3, high, low)
    assert not np.allclose(low, high)
    np.testing.assert_allclose(outputs(combined, ranks), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.ci
def test_it_is_saved_in_all_forms(tmp_path: Path) -> None:
    networks = [_network(seed, (8, 4)) for seed in range(2)]
    folders = [_save(tmp_path / str(number), network) for number, network in enumerate(networks)]
    weights = save_combination(folders, "callee_users", [7], tmp_path / "both")
    assert NetworkWeights.load(tmp_path / "both").checksum() == weights.checksum()
    assert weights.metadata["iterations"] == 9 and "seed" not in weights.metadata
    assert weights.metadata[COMBINED_OF] == [network.checksum() for network in networks]
    assert weights.metadata["method"] == "2 policies, by callee_users at 7"
    observations = _observations(200, 4)
    by_name = dict(zip(weights.features, observations.T, strict=True))
    logits = [BinaryPolicy(network).logits(by_name) for network in networks]
    expected = np.where(observations[:, 3] < 7, logits[0].argmax(axis=1), logits[1].argmax(axis=1))
    model = tf.saved_model.load(str(tmp_path / "both"))  # Its variables live as long as it does.
    signature = model.signatures["action"]
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}
    found = [
        int(
            signature(**{name: tf.constant(each[row : row + 1]) for name, each in by_name.items()}, **others)[_ADVICE][
                0
            ]
        )
        for row in range(50)
    ]
    assert found == expected[:50].tolist()
    with warnings.catch_warnings():
        # That it moves to another package.
        warnings.simplefilter("ignore", UserWarning)
        interpreter = tf.lite.Interpreter(model_content=(tmp_path / "both" / "model.tflite").read_bytes())
    run = interpreter.get_signature_runner("action")
    found = [
        int(run(**{name: each[row : row + 1] for name, each in by_name.items()})[_ADVICE][0]) for row in range(200)
    ]
    assert found == expected.tolist()


@pytest.mark.parametrize(
    ("changes", "feature", "thresholds", "reason"),
    [
        (
            {},
            "number_of_moons",
            [1],
            "--feature=number_of_moons: expected a feature of inlining, one of sroa_savings, ",
        ),
        ({}, "node_count", [1, 2], "expected 1 ascending thresholds for 2 policies, found 1, 2"),
        ({}, "node_count", [], "expected 1 ascending thresholds for 2 policies, found none"),
        (
            {},
            "node_count",
            [5.5],
            "threshold 5.5 is not in their vocabulary; expected one of its quantiles, such as 5 or",
        ),
        ({"margin": 0.5}, "node_count", [1], r"their margins differ \(0, 0.5\)"),
        ({"quantiles": (np.arange(5.0),) * 3}, "node_count", [1], "vocabularies differ"),
        ({"metadata": {"problem": "regalloc_priority"}}, "node_count", [1], "expected policies for one problem"),
    ],
)
def test_policies_that_cannot_be_combined(
    changes: dict[str, object], feature: str, thresholds: list[float], reason: str, tmp_path: Path
) -> None:
    first = _save(tmp_path / "a", _network(0, (8,)))
    second = _save(tmp_path / "b", dataclasses.replace(_network(1, (8,)), **changes))  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=reason):
        combine_policies([first, second], feature, thresholds)


def test_rules_and_a_policy(tmp_path: Path) -> None:
    """Always below one value, never from another one on; between, the policy, whose margin stays."""
    trained = dataclasses.replace(_network(0, (8,)), margin=0.5)
    weights = combine_policies(["always", _save(tmp_path / "a", trained), "never"], "node_count", [3, 5])
    assert weights.margin == trained.margin
    rules = ["always if node_count < 3", "never if node_count >= 5"]
    assert weights.metadata == {**trained.metadata, RULES: rules, RULED: trained.checksum()}
    more = combine_policies([_save(tmp_path / "b", weights), "never", "always"], "edge_count", [1, 2])
    assert more.metadata[RULES] == ["never if 1 <= edge_count < 2", "always if edge_count >= 2", *rules]
    inner = combine_policies([tmp_path / "b", tmp_path / "a"], "edge_count", [4])
    conditional = [f"{rule}, where edge_count < 4" for rule in rules]
    assert inner.metadata == {**trained.metadata, RULES: conditional, RULED: trained.checksum()}
    other = _save(tmp_path / "c", dataclasses.replace(_network(1, (8,)), margin=0.5, metadata=trained.metadata))
    assert RULES not in combine_policies([tmp_path / "b", other], "edge_count", [4]).metadata
    sure = _save(tmp_path / "d", dataclasses.replace(trained, margin=32.0))
    with pytest.raises(PolicyError, match="constant policy: expected a margin below 32, found 32"):
        combine_policies(["always", sure], "node_count", [3])
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 9, 500) for name in weights.features}
    (off, on), (trained_off, trained_on) = (BinaryPolicy(each).logits(columns).T for each in (weights, trained))
    low, high = columns["node_count"] < 3, columns["node_count"] >= 5
    assert np.all(on[low] - off[low] > 20)
    assert np.all(on[high] - off[high] < -20)
    between = ~low & ~high
    np.testing.assert_allclose((on - off)[between], (trained_on - trained_off)[between], atol=1e-5)
    with pytest.raises(PolicyError, match="expected at least one trained policy, found 0"):
        combine_policies(["always", "never"], "node_count", [3])
    with pytest.raises(PolicyError, match="expected at least two policies, found 1"):
        combine_policies(["always"], "node_count", [])


def test_the_policies_that_ship_cannot_be_combined_with_each_other() -> None:
    shipped = [pretrained.folder(f"pretrained:inlining-Oz-{name}") for name in ("plugin", "portable")]
    for folders in (shipped, shipped[::-1]):
        with pytest.raises(
            PolicyError, match=r"their features differ \(\d+, such as '\w+'\); expected .* --vocab_path$"
        ):
            combine_policies(folders, "callee_basic_block_count", [8])


def test_networks_that_cannot_be_combined(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="expected networks with hidden layers"):
        gated_network([_network(0, ()), _network(1, (4,))], "node_count", [5])
    with pytest.raises(PolicyError, match="expected 2 ascending thresholds for 3 policies, found 5, 5"):
        gated_network([_network(seed, (4,)) for seed in range(3)], "node_count", [5, 5])
    folders = [_save(tmp_path / str(seed), _network(seed, (600,))) for seed in range(2)]
    with pytest.raises(PolicyError, match="2 policies have 1202 units in a layer together; expected at most 1024"):
        combine_policies(folders, "node_count", [5])
