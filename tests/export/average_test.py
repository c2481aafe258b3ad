"""The mean of policies: its logits in every form, and policies that have none."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.export.average import MEAN_OF, average_policies, save_average
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from tests.native.cpp import DRIVER, build, driver_logits

_FEATURES = ("callsite_cost", "node_count", "edge_count")


def _save(directory: Path, seed: int, hidden: tuple[int, ...] = (8, 4), **changes: object) -> NetworkWeights:
    rng, sizes = np.random.default_rng(seed), (3 * len(_FEATURES), *hidden, 2)
    weights = NetworkWeights(
        _FEATURES,
        (np.arange(-3.0, 9.0),) * len(_FEATURES),
        tuple(rng.normal(size=shape).astype("f4") for shape in itertools.pairwise(sizes)),
        tuple(rng.normal(size=size).astype("f4") for size in sizes[1:]),
        {"problem": "inlining", "seed": seed, "iterations": 9},
    )
    weights = dataclasses.replace(weights, **changes)  # type: ignore[arg-type]
    directory.mkdir()
    weights.save(directory)
    return weights


@pytest.mark.parametrize("hidden", [((8, 4), (16, 3), (1, 5)), ((), (), ())], ids=str)
def test_it_has_the_mean_of_the_logits(hidden: tuple[tuple[int, ...], ...], tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    policies = [_save(folder, number, hidden[number], margin=0.5) for number, folder in enumerate(folders)]
    mean = average_policies(folders)
    features = np.stack(np.meshgrid(*[np.arange(-4, 10)] * 3), axis=-1).reshape(-1, 3)
    by_name = {name: features[:, index] for index, name in enumerate(_FEATURES)}
    expected = np.mean([BinaryPolicy(policy).logits(by_name) for policy in policies], axis=0)
    np.testing.assert_allclose(BinaryPolicy(mean).logits(by_name), expected, rtol=1e-4, atol=1e-4)
    driver = build([DRIVER], tmp_path / "driver", "clang++-22", "-O2")
    np.testing.assert_allclose(driver_logits(driver, mean, features, tmp_path), expected, rtol=1e-4, atol=1e-4)
    assert mean.margin == 0
    assert mean.metadata["iterations"] == 9 and "seed" not in mean.metadata
    assert mean.metadata[MEAN_OF] == [policy.checksum() for policy in policies]


@pytest.mark.ci
def test_it_is_saved_in_all_forms(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for number, folder in enumerate(folders):
        _save(folder, number)
    weights = save_average(folders, tmp_path / "mean")
    assert NetworkWeights.load(tmp_path / "mean").checksum() == weights.checksum()
    assert {"saved_model.pb", "model.tflite", "network.mlgo"} <= {path.name for path in (tmp_path / "mean").iterdir()}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"quantiles": (np.arange(5.0),) * 3}, "vocabularies differ"),
        ({"hidden": (8,)}, "numbers of layers differ"),
        ({"hidden": (1020, 4)}, "1028 units in a layer together; expected at most 1024"),
        ({"metadata": {"problem": "regalloc_priority"}}, "expected policies for one problem"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_policies_without_a_mean(other: dict[str, object], reason: str, tmp_path: Path) -> None:
    _save(tmp_path / "a", 1)
    _save(tmp_path / "b", 2, **other)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=reason):
        average_policies([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(PolicyError, match="expected at least two policies, found 1"):
        average_policies([tmp_path / "a"])
