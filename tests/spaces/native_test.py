"""The native form: limits, and a network whose quantiles are hard to compare."""

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.native import embedded_source, native_blob
from tests.native.cpp import COMPILERS, DRIVER, build, driver_logits
from tests.real_observations import weights_for


def _with_shape(num_features: int, *widths: int) -> NetworkWeights:
    sizes = (3 * num_features, *widths)
    return NetworkWeights(
        tuple(f"f{index}" for index in range(num_features)),
        (np.zeros(1),) * num_features,
        tuple(np.zeros(shape, np.float32) for shape in itertools.pairwise(sizes)),
        tuple(np.zeros(width, np.float32) for width in widths),
    )


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (_with_shape(513, 2), "1 to 512 features for the native form, found 513"),
        (_with_shape(1, *[2] * 17), "1 to 16 layers for the native form, found 17"),
        (_with_shape(1, 1025, 2), "1 to 1024 units in a layer for the native form, found 1025"),
        (
            NetworkWeights(("a\0b",), (np.zeros(1),), (np.zeros((3, 2)),), (np.zeros(2),)),
            "not the name of a feature",
        ),
        (NetworkWeights(("",), (np.zeros(1),), (np.zeros((3, 2)),), (np.zeros(2),)), "not the name of a feature"),
        (NetworkWeights(("a",), (np.zeros(1),), (np.full((3, 2), 3e38),), (np.zeros(2),)), "overflows"),
    ],
)
def test_networks_beyond_the_limits_are_refused(weights: NetworkWeights, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        native_blob(weights)


def test_quantiles_at_the_ends_of_64_bits(tmp_path: Path) -> None:
    limits = np.iinfo(np.int64)
    columns = (np.array([-1e300, -3.5, 0.0, 1e300]), np.array([float(limits.min), 2.0, 2.0**62, 2.0**63]))
    names = ("f0", "f1")
    shape = weights_for({name: np.arange(2) for name in names}, hidden=(4,))
    weights = NetworkWeights(names, columns, shape.kernels, shape.biases)
    values = [limits.min, -4, -3, -1, 0, 1, 2, 2**62 - 1, 2**62, limits.max]
    features = np.array(list(itertools.product(values, values)))
    # The reference compares Python's integers, which have any size.
    positions = np.array(
        [
            [
                sum(int(np.ceil(quantile)) <= int(value) for quantile in column) / 4
                for value, column in zip(row, columns, strict=True)
            ]
            for row in features
        ]
    )
    inputs = np.stack([positions, np.sqrt(positions), np.square(positions)], axis=-1).reshape(len(features), -1)
    expected = np.maximum(inputs @ shape.kernels[0] + shape.biases[0], 0) @ shape.kernels[1] + shape.biases[1]
    driver = build([DRIVER], tmp_path / "driver", "clang++-22", "-O2")
    np.testing.assert_allclose(driver_logits(driver, weights, features, tmp_path), expected, atol=1e-5)


def test_the_same_policy_gives_the_same_bytes() -> None:
    assert native_blob(_with_shape(3, 5, 2)) == native_blob(_with_shape(3, 5, 2))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_embedded_policy_is_its_bytes(compiler: str, tmp_path: Path) -> None:
    blob = native_blob(weights_for({"f0": np.arange(9)}))
    (tmp_path / "blob.cpp").write_text(embedded_source(blob, "some_policy"))
    (tmp_path / "main.cpp").write_text(
        """
#include "policy_network.h"
#include <cstdio>
extern "C" const unsigned char some_policy[];
extern "C" const std::size_t some_policy_size;
int main() {
  compiler_opt::PolicyNetwork network;
  if (network.load(some_policy, some_policy_size) != nullptr) return 1;
  return std::fwrite(some_policy, 1, some_policy_size, stdout) == some_policy_size ? 0 : 1;
}
"""
    )
    program = build([tmp_path / "main.cpp", tmp_path / "blob.cpp"], tmp_path / "main", compiler)
    assert subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout == blob
