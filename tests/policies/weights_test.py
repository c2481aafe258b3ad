"""The file of a policy network, damage to it, and weights that do not belong together."""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.array_files import save_arrays
from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.policies.joined import gated_network, mean_network
from compiler_opt.policies.weights import NETWORK_FILE, NetworkWeights
from tests.real_observations import recurrent


def _weights(seed: int, num_features: int = 5, hidden: tuple[int, ...] = (7, 4)) -> NetworkWeights:
    rng = np.random.default_rng(seed)
    sizes = (3 * num_features, *hidden, 2)
    return NetworkWeights(
        tuple(f"f{index}" for index in range(num_features)),
        tuple(
            np.sort(rng.integers(-9, 2 + 10**index, rng.integers(1, 30))).astype(float) for index in range(num_features)
        ),
        tuple(rng.normal(size=shape).astype("f4") for shape in itertools.pairwise(sizes)),
        tuple(rng.normal(size=size).astype("f4") for size in sizes[1:]),
        {"seed": seed},
    )


def test_it_survives_the_disk(tmp_path: Path) -> None:
    weights = _weights(7)
    weights.save(tmp_path)
    loaded = NetworkWeights.load(tmp_path)
    assert loaded.features == weights.features
    assert loaded.metadata == {"seed": 7}
    for name in ("quantiles", "kernels", "biases"):
        for one, other in zip(getattr(loaded, name), getattr(weights, name), strict=True):
            np.testing.assert_array_equal(one, other)
    assert [path.name for path in tmp_path.iterdir()] == [NETWORK_FILE]


def test_the_margin_survives_the_disk_and_is_part_of_the_checksum(tmp_path: Path) -> None:
    weights = _weights(7).with_margin(0.1)
    weights.save(tmp_path)
    assert NetworkWeights.load(tmp_path).margin == 0.1
    assert len({_weights(7).with_margin(margin).checksum() for margin in (0, 0.1, 0.2)}) == 3
    assert _weights(7).with_margin(0.0).checksum() == _weights(7).checksum()
    # Versions that do not know margins must not ignore it.
    assert b'"format": 2' in (tmp_path / NETWORK_FILE).read_bytes()
    assert "| margin | 0.1 |" in weights.card().to_markdown()


def test_the_lstm_survives_the_disk_and_is_part_of_the_checksum(tmp_path: Path) -> None:
    weights = recurrent(_weights(7), 3).with_margin(0.1)
    weights.save(tmp_path)
    loaded = NetworkWeights.load(tmp_path)
    assert loaded.lstm is not None and weights.lstm is not None and loaded.margin == 0.1
    for name, array in weights.lstm.arrays().items():
        np.testing.assert_array_equal(loaded.lstm.arrays()[name], array)
        changed = dataclasses.replace(weights.lstm, **{name: array + np.float32(0.5)})
        assert dataclasses.replace(weights, lstm=changed).checksum() != weights.checksum()
    assert loaded.checksum() == weights.checksum() != dataclasses.replace(weights, margin=0.0).checksum()
    # Versions that do not know LSTMs must not ignore it.
    assert b'"format": 3' in (tmp_path / NETWORK_FILE).read_bytes()
    assert "| lstm units | 3 |" in weights.card().to_markdown()


@pytest.mark.parametrize("units", [0, 3])
def test_inputs_in_another_order_give_the_same_outputs(units: int) -> None:
    weights = recurrent(_weights(7), units) if units else _weights(7)
    order = np.array([3, 0, 4, 2, 1])
    again = weights.reordered([weights.features[place] for place in order])
    assert again.features == ("f3", "f0", "f4", "f2", "f1")
    for place, quantiles in zip(order, again.quantiles, strict=True):
        np.testing.assert_array_equal(quantiles, weights.quantiles[place])
    inputs = np.random.default_rng(0).random((20, 5, 3)).astype(np.float32)
    outputs = again.forward(inputs[:, order].reshape(20, -1))
    np.testing.assert_allclose(outputs, weights.forward(inputs.reshape(20, -1)), rtol=1e-5, atol=1e-6)
    assert again.reordered(weights.features).checksum() == weights.checksum()


def test_an_lstm_that_does_not_fit_is_refused() -> None:
    good = recurrent(_weights(7), 3)
    assert good.lstm is not None
    wide = dataclasses.replace(good.lstm, kernel=np.ones((16, 12), "f4"))
    with pytest.raises(PolicyError, match="expected an LSTM with 15 inputs, found 16"):
        dataclasses.replace(good, lstm=wide)
    with pytest.raises(PolicyError, match=r"expected a kernel of shape \(15, 3\), found \(3, 7\)|expected a kernel"):
        dataclasses.replace(good, lstm=None)


def test_recurrent_networks_are_not_put_side_by_side() -> None:
    networks = [recurrent(_weights(7), 3), _weights(7)]
    for combine in (mean_network, lambda both: gated_network(both, "f0", [1.0])):
        with pytest.raises(PolicyError, match="expected networks without a recurrent layer"):
            combine(networks)


@pytest.mark.parametrize("margin", [-0.1, float("inf"), float("nan")])
def test_a_margin_is_a_finite_number_of_at_least_zero(margin: float) -> None:
    with pytest.raises(PolicyError, match="margin: expected a finite number of at least 0"):
        _weights(7).with_margin(margin)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_is_refused(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _weights(1, num_features=2, hidden=(3,)).save(directory)
        content = bytearray((directory / NETWORK_FILE).read_bytes())
        if data.draw(st.booleans()):
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        (directory / NETWORK_FILE).write_bytes(content)
        try:
            NetworkWeights.load(directory)
        except PolicyError as error:
            assert str(directory) in str(error) or "policy network" in str(error) or "vocabulary" in str(error)


_GOOD_HEADER: Mapping[str, Any] = {"format": 1, "features": ["a", "b"], "metadata": {"seed": 1}}
_LSTM = {
    "lstm_kernel": np.zeros((6, 4), "f4"),
    "lstm_recurrent_kernel": np.zeros((1, 4), "f4"),
    "lstm_bias": np.zeros(4, "f4"),
    "kernel_0": np.ones((1, 3), "f4"),
}
_GOOD_ARRAYS = {
    "quantiles_0": np.arange(4.0),
    "quantiles_1": np.arange(3.0),
    "kernel_0": np.ones((6, 3), "f4"),
    "bias_0": np.ones(3, "f4"),
    "kernel_1": np.ones((3, 2), "f4"),
    "bias_1": np.ones(2, "f4"),
}


@pytest.mark.parametrize(
    "header",
    [
        {"metadata": None},
        {"metadata": [1]},
        {"metadata": "x"},
        {"metadata": {"toolchain": "clang"}},
        {"metadata": {"corpus": [1]}},
        {"metadata": {"method": {}}},
        {"metadata": {"seed": 10**400}},
        {"metadata": json.loads('{"x":' * 99 + "1" + "}" * 99)},
        {"features": {"a": 1, "b": 2}, "metadata": 5},
        {"features": ["a", "a"]},
        {"features": ["a", "\ud800"]},
        {"features": ["a", 1]},
        {"features": ["a", 'b", 0, 0}}; int code(); //']},
        {"features": ["a", ""]},
        {"features": ["a", "callee_embedding_" + "9" * 5000]},
        {"features": [], "kernel_0": np.ones((0, 3), "f4")},
        {"kernel_0": np.ones((6, 0), "f4"), "bias_0": np.ones(0, "f4"), "kernel_1": np.ones((0, 2), "f4")},
        {"features": 5},
        {"format": "x" * 999},
        {"format": 2},
        {"format": 3},
        {"format": 3, "margin": 0.0, "lstm_kernel": np.zeros((6, 4), "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_kernel": np.zeros((5, 4), "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_bias": np.zeros(3, "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_bias": np.full(4, np.nan, "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_recurrent_kernel": np.zeros((0, 4), "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_recurrent_kernel": np.zeros((300, 1200), "f4")},
        {"format": 3, "margin": 0.0, **_LSTM, "lstm_recurrent_kernel": np.zeros(4, "f4")},
        {"format": 2, "margin": "1"},
        {"format": 2, "margin": True},
        {"format": 2, "margin": -1},
        {"format": 2, "margin": float("inf")},
        {"format": 2, "margin": 10**400},
        {"quantiles_0": np.zeros((2, 2))},
        {"quantiles_0": np.zeros((2, 0))},
        {"quantiles_0": np.array([1e308, -1e308])},
        {"bias_0": np.zeros((3, 1), "f4")},
        {"bias_0": np.full(3, 1e300)},
        {"kernel_0": np.zeros((6, 3, 1), "f4")},
    ],
    ids=str,
)
def test_a_file_with_wrong_values_is_refused(header: dict[str, Any], tmp_path: Path) -> None:
    """On loading, not half-way through an evaluation."""
    given = {name: value for name, value in header.items() if isinstance(value, np.ndarray)}
    arrays = {**_GOOD_ARRAYS, **given}
    header = {name: value for name, value in header.items() if name not in given}
    text = json.dumps({**_GOOD_HEADER, **header})
    save_arrays(tmp_path / NETWORK_FILE, {**arrays, "header": np.frombuffer(text.encode(), np.uint8)})
    with pytest.raises(PolicyError) as error:
        NetworkWeights.load(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "arrays"), [({}, _GOOD_ARRAYS), ({"format": 3, "margin": 0.0}, {**_GOOD_ARRAYS, **_LSTM})]
)
def test_the_undamaged_file_is_loaded(
    values: Mapping[str, Any], arrays: Mapping[str, np.ndarray], tmp_path: Path
) -> None:
    header = {"header": np.frombuffer(json.dumps({**_GOOD_HEADER, **values}).encode(), np.uint8)}
    save_arrays(tmp_path / NETWORK_FILE, {**arrays, **header})
    assert NetworkWeights.load(tmp_path).features == ("a", "b")


def test_a_missing_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="expected a policy"):
        NetworkWeights.load(tmp_path)


def test_weights_that_do_not_fit_the_vocabulary_are_refused() -> None:
    good = _weights(1)
    with pytest.raises(PolicyError, match=r"expected a kernel of shape \(12, 7\), found \(15, 7\)"):
        NetworkWeights(good.features[:4], good.quantiles[:4], good.kernels, good.biases)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _weights(1)
    old.save(tmp_path)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OutputError, match="No space left on device; what was there before is untouched"):
        _weights(2).save(tmp_path)
    monkeypatch.undo()
    assert NetworkWeights.load(tmp_path).metadata == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == [NETWORK_FILE]
