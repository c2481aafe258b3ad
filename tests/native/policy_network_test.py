"""The C++ evaluator: the same logits as numpy with every compiler, and memory-safe for any blob and features."""

import dataclasses
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.joined import mean_network
from compiler_opt.policies.policy import uniforms
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.native import NATIVE_FILE, native_blob
from tests.native.cpp import COMPILERS, DRIVER, ONE_BY_DEFAULT, build, driver_logits, run_driver
from tests.real_observations import recurrent, weights_for

_SANITIZERS = {
    "g++": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # Clang's address sanitizer needs a library from another package; this sanitizer needs none.
    "clang++-22": ("-fsanitize=undefined", "-fsanitize-trap=all"),
}


_WITHOUT_AVX2 = "-D__builtin_cpu_supports(feature)=false"


@pytest.fixture(scope="module", params=ONE_BY_DEFAULT)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([DRIVER], tmp_path_factory.mktemp("driver") / "driver", request.param, "-O2")


@pytest.fixture(scope="module", params=["g++", pytest.param("clang++-22", marks=pytest.mark.slow)])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("driver") / "driver"
    return build([DRIVER], output, request.param, "-O1", "-g", *_SANITIZERS[request.param])


@pytest.fixture(params=["feed-forward", "recurrent"])
def small_blob(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / NATIVE_FILE
    path.write_bytes(native_blob(_small() if request.param == "feed-forward" else recurrent(_small(), 2)))
    return path


def _small(hidden: tuple[int, ...] = (5,), num_features: int = 3, seed: int = 0) -> NetworkWeights:
    columns = {f"f{index}": np.arange(20) % (5 + index) - 2 for index in range(num_features)}
    return weights_for(columns, hidden=hidden, seed=seed)


@pytest.mark.parametrize("hidden", [(), (1,), (16,), (17, 3), (64, 64), (1024, 5), (8,) * 15], ids=str)
def test_logits_equal_numpys_for_any_network_shape(driver: Path, hidden: tuple[int, ...], tmp_path: Path) -> None:
    weights = _small(hidden)
    limits = np.iinfo(np.int64)
    values = np.array([limits.min, -3, -2, -1, 0, 1, 2, 3, 4, 5, limits.max])
    features = np.stack(np.meshgrid(values, values, values), axis=-1).reshape(-1, 3)
    expected = BinaryPolicy(weights).logits({f"f{index}": features[:, index] for index in range(3)})
    np.testing.assert_allclose(driver_logits(driver, weights, features, tmp_path), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.ci
def test_all_compilers_and_cpus_give_the_same_bits(driver: Path, tmp_path: Path) -> None:
    """A CPU without AVX2 runs other code."""
    older = build([DRIVER], tmp_path / "older", "clang++-22", "-O2", _WITHOUT_AVX2)
    features = np.random.default_rng(0).integers(-4, 7, (2_000, 3))
    networks = [
        _small((64, 64)),
        mean_network([_small((64, 48), seed=seed) for seed in range(3)]),
        recurrent(_small(), 33),
    ]
    for weights in networks:
        found, expected = (driver_logits(each, weights, features, tmp_path) for each in (driver, older))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("units", "hidden"),
    [(1, ()), (3, (5,)), (16, (17, 3)), (33, (64,)), pytest.param(256, (), marks=pytest.mark.slow)],
    ids=str,
)
def test_a_recurrent_network_remembers_like_numpys(
    driver: Path, units: int, hidden: tuple[int, ...], tmp_path: Path
) -> None:
    """10,000 decisions, in modules of 400."""
    weights = recurrent(_small(hidden), units)
    features = np.random.default_rng(0).integers(-4, 7, (10_000, 3))
    modules = (
        BinaryPolicy(weights).logits({f"f{index}": part[:, index] for index in range(3)})
        for part in np.split(features, 25)
    )
    expected = np.concatenate(list(modules))
    found = driver_logits(driver, weights, features, tmp_path, length=400)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    on, expected_on = (np.diff(logits)[:, 0] > 0 for logits in (found, expected))
    np.testing.assert_array_equal(on, expected_on)
    alone = driver_logits(driver, weights, features, tmp_path, length=1)
    assert np.mean(np.abs(alone - expected).max(axis=1) > 1e-3) > 0.9


def test_saturated_gates_stay_exact(driver: Path, tmp_path: Path) -> None:
    weights = recurrent(_small((5,)), 4)
    assert weights.lstm is not None
    lstm = dataclasses.replace(weights.lstm, kernel=1000 * weights.lstm.kernel)
    weights = dataclasses.replace(weights, lstm=lstm)
    features = np.random.default_rng(0).integers(-4, 7, (1000, 3))
    expected = BinaryPolicy(weights).logits({f"f{index}": features[:, index] for index in range(3)})
    np.testing.assert_allclose(driver_logits(driver, weights, features, tmp_path), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("hidden", [(8, 8), (16, 16, 16), (40, 33)], ids=str)
def test_networks_side_by_side_evaluate_to_their_mean(driver: Path, hidden: tuple[int, ...], tmp_path: Path) -> None:
    networks = [_small(hidden, seed=seed) for seed in range(3)]
    features = np.random.default_rng(0).integers(-3, 6, (1000, 3))
    mean = np.mean([driver_logits(driver, network, features, tmp_path) for network in networks], axis=0)
    found = driver_logits(driver, mean_network(networks), features, tmp_path)
    np.testing.assert_allclose(found, mean, rtol=1e-4, atol=1e-4)


def test_only_zero_weights_are_skipped(driver: Path, tmp_path: Path) -> None:
    """With one weight in a lane of columns, at either end, in the middle or nowhere."""
    small = _small((20, 70))
    features = np.arange(30).reshape(-1, 3) % 7 - 3
    kernel = np.zeros((20, 70), np.float32)
    kernel[[0, 19, 7], [3, 17, 69]] = 1.5, 2, 0.5
    # Large biases keep all units active.
    biases = (np.full(20, 50, np.float32), np.full(70, 50, np.float32), small.biases[2])
    weights = dataclasses.replace(small, kernels=(small.kernels[0], kernel, small.kernels[2]), biases=biases)
    expected = BinaryPolicy(weights).logits({f"f{index}": features[:, index] for index in range(3)})
    np.testing.assert_allclose(driver_logits(driver, weights, features, tmp_path), expected, rtol=1e-4, atol=1e-4)


def test_uniform_numbers_equal_pythons(driver: Path) -> None:
    for seed in (0, 1, 12345, 2**64 - 1):
        draw = uniforms(seed)
        assert [float(line) for line in run_driver(driver, "uniforms", seed, 2000)] == [draw() for _ in range(2000)]


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_compilers_agree_to_the_last_bit(observations: dict[str, np.ndarray], tmp_path: Path) -> None:
    features = np.stack(list(observations.values()), axis=-1)
    feed_forward = weights_for(observations)
    results: dict[tuple[str, tuple[str, ...]], bytes] = {}
    for compiler in COMPILERS:
        # -mfma allows the compiler to fuse multiply-adds.
        for options in (("-O0",), ("-O2",), ("-O3", "-mfma")):
            driver = build([DRIVER], tmp_path / "driver", compiler, *options)
            results[compiler, options] = b"".join(
                driver_logits(driver, weights, features, tmp_path).tobytes()
                for weights in (feed_forward, recurrent(feed_forward, 16))
            )
    assert len(set(results.values())) == 1, results.keys()


def test_a_damaged_blob_is_rejected(sanitized: Path, small_blob: Path) -> None:
    run_driver(sanitized, "damage", small_blob)


def test_forged_blobs_are_memory_safe(sanitized: Path, small_blob: Path) -> None:
    """Damaged blobs with correct checksums, under sanitizers for memory and undefined behaviour."""
    accepted = [int(run_driver(sanitized, "fuzz", small_blob, seed, 5000)[0]) for seed in range(3)]
    # Forged weights and boundaries are valid; forged sizes are not.
    assert all(500 < count < 4000 for count in accepted)


def _forge(blob: bytes, place: int, value: bytes) -> bytes:
    forged = blob[:place] + value + blob[place + len(value) :]
    return forged[:12] + struct.pack("<I", zlib.crc32(forged[16:])) + forged[16:]


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, b"x", "expected it to begin with `mlgo-net`"),
        (8, struct.pack("<I", 4), "another format version"),
        (8, struct.pack("<I", 0), "another format version"),
        (8, struct.pack(">I", 1), "little-endian"),
        (16, struct.pack("<Q", 1 << 40), "truncated"),
        (16, struct.pack("<Q", 40), "longer than its header says"),
        (24, struct.pack("<I", 0), "number of features"),
        (24, struct.pack("<I", 513), "number of features"),
        (24, struct.pack("<I", 4), "sections"),
        (28, struct.pack("<I", 0), "number of layers"),
        (28, struct.pack("<I", 17), "number of layers"),
        (32, struct.pack("<I", 2**32 - 1), "sections"),
        (36, struct.pack("<I", 2**32 - 1), "sections"),
        (40, struct.pack("<I", 0), "width"),
        (44, struct.pack("<I", 1025), "width"),
        (48, struct.pack("<III", *[2**32 - 1] * 3), "sections"),
    ],
)
def test_each_error_message_gives_the_reason(
    driver: Path, tmp_path: Path, place: int, value: bytes, problem: str
) -> None:
    path = tmp_path / NATIVE_FILE
    path.write_bytes(_forge(native_blob(_small()), place, value))
    [message] = run_driver(driver, "load", path)
    assert problem in message


@pytest.mark.parametrize("margin", [0.0, -1.0, float("inf"), float("nan")])
def test_a_margin_in_the_header_is_a_positive_number(driver: Path, tmp_path: Path, margin: float) -> None:
    path = tmp_path / NATIVE_FILE
    blob = native_blob(_small().with_margin(0.5))
    path.write_bytes(blob)
    assert run_driver(driver, "load", path) == ["good"]
    path.write_bytes(_forge(blob, 40, struct.pack("<d", margin)))
    [message] = run_driver(driver, "load", path)
    assert "margin" in message
    # Without its margin the file is shorter than its sections.
    path.write_bytes(_forge(blob, 8, struct.pack("<I", 1)))
    assert run_driver(driver, "load", path) != ["good"]


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (40, struct.pack("<d", -1.0), "margin"),
        (48, struct.pack("<I", 0), "recurrent units"),
        (48, struct.pack("<I", 257), "recurrent units"),
        (48, struct.pack("<I", 3), "four gates"),
        (52, struct.pack("<I", 1), "recurrent units"),
        (28, struct.pack("<I", 1), "recurrent units"),
        (56, struct.pack("<I", 12), "four gates"),
    ],
)
def test_the_sizes_of_a_recurrent_network_are_checked(
    driver: Path, tmp_path: Path, place: int, value: bytes, problem: str
) -> None:
    path = tmp_path / NATIVE_FILE
    blob = native_blob(recurrent(_small(), 2))
    path.write_bytes(blob)
    assert run_driver(driver, "load", path) == ["good"]
    path.write_bytes(_forge(blob, place, value))
    [message] = run_driver(driver, "load", path)
    assert problem in message


def test_logits_do_not_depend_on_the_margin(driver: Path, tmp_path: Path) -> None:
    features = np.arange(12).reshape(-1, 3)
    with_margin, without = (
        driver_logits(driver, _small().with_margin(margin), features, tmp_path) for margin in (0.5, 0.0)
    )
    np.testing.assert_array_equal(with_margin, without)


def test_names_and_metadata_must_be_terminated(driver: Path, tmp_path: Path) -> None:
    blob = native_blob(_small())
    path = tmp_path / NATIVE_FILE
    for old, new, problem in (
        (b"f0\0f1\0f2\0", b"f0\0f1\0f2x", "feature names"),
        (b"f0\0f1\0f2\0", b"f0xf1\0f2\0", "feature names"),
        (b"f0\0f1\0f2\0", b"f0\0\0f1f2\0", "no name"),
        (b"}\0", b"} ", "metadata"),
    ):
        path.write_bytes(_forge(blob, blob.index(old), new))
        [message] = run_driver(driver, "load", path)
        assert problem in message
    path.write_bytes(blob)
    assert run_driver(driver, "load", path) == ["good"]
