"""The LSTM against a plain computation, unit by unit."""

import math

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.policies.lstm import LSTM


def _lstm(units: int = 3, inputs: int = 4) -> LSTM:
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(inputs, 4 * units), (units, 4 * units), (4 * units,)]
    return LSTM(*(rng.normal(size=shape).astype("f4") for shape in shapes))


def _slow_states(lstm: LSTM, inputs: np.ndarray, is_first: np.ndarray) -> list[list[float]]:
    units = lstm.units
    output, cell, found = [0.0] * units, [0.0] * units, []
    for row, begins in zip(inputs.tolist(), is_first.tolist(), strict=True):
        if begins:
            output, cell = [0.0] * units, [0.0] * units
        gates = [
            sum(row[i] * float(lstm.kernel[i, gate]) for i in range(len(row)))
            + sum(output[unit] * float(lstm.recurrent_kernel[unit, gate]) for unit in range(units))
            + float(lstm.bias[gate])
            for gate in range(4 * units)
        ]
        sigmoids = [1 / (1 + math.exp(-gate)) for gate in gates]
        for unit in range(units):
            admitted, kept, opened = (sigmoids[place * units + unit] for place in (0, 1, 3))
            cell[unit] = kept * cell[unit] + admitted * math.tanh(gates[2 * units + unit])
            output[unit] = opened * math.tanh(cell[unit])
        found.append([*output, *cell])
    return found


@pytest.mark.parametrize("starts", [(0,), (0, 1, 2), (0, 7, 9, 30), tuple(range(40)), ()], ids=str)
def test_modules_of_any_lengths_are_unrolled(starts: tuple[int, ...]) -> None:
    lstm, inputs = _lstm(), np.random.default_rng(1).normal(size=(40, 4)).astype("f4")
    is_first = np.isin(np.arange(40), starts)
    found = lstm.unroll(inputs, is_first)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, _slow_states(lstm, inputs, is_first), rtol=1e-4, atol=1e-5)


def test_without_decisions_there_is_no_state() -> None:
    assert _lstm().unroll(np.zeros((0, 4), "f4"), np.zeros(0)).shape == (0, 6)


def test_large_gates_do_not_overflow() -> None:
    lstm = _lstm()
    state = lstm.step(np.full(12, 1e30, np.float32), lstm.zero_state())
    np.testing.assert_allclose(state, [math.tanh(1)] * 3 + [1] * 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((4, 12), (3, 12), (11,)), "expected 12 gates of 3 units"),
        (((4, 11), (3, 12), (12,)), "expected 12 gates"),
        (((4, 12), (12,), (12,)), "two dimensions"),
        (((4, 0), (0, 0), (0,)), "expected 1 to 256 units, found 0"),
        (((4, 1028), (257, 1028), (1028,)), "expected 1 to 256 units, found 257"),
    ],
)
def test_wrong_shapes_are_refused(shapes: tuple[tuple[int, ...], ...], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        LSTM(*(np.zeros(shape, "f4") for shape in shapes))
