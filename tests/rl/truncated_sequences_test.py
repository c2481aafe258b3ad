"""Truncated sequences begin with the state that the network has there."""

import dataclasses

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.policies.weights import NetworkConfig, NetworkWeights  # noqa: E402
from compiler_opt.rl import truncated_sequences  # noqa: E402
from compiler_opt.spaces.heads.networks import FIRST, RANKS  # noqa: E402
from compiler_opt.spaces.quantile_encoder import expand  # noqa: E402
from tests.real_observations import recurrent, weights_for  # noqa: E402

_NETWORK = NetworkConfig((5,), lstm_units=3, lstm_steps=7)


def _weights() -> NetworkWeights:
    columns = {f"f{index}": np.arange(20) % (5 + index) for index in range(2)}
    return recurrent(weights_for(columns, hidden=(5,)), 3)


def _observations(count: int, starts: tuple[int, ...]) -> dict[str, np.ndarray]:
    ranks = np.random.default_rng(0).random((count, 2), np.float32)
    return {RANKS: ranks, FIRST: np.isin(np.arange(count), starts).astype(np.float32)}


def _expected(observations: dict[str, np.ndarray], places: np.ndarray) -> np.ndarray:
    """The states before decisions, each by reading its module alone."""
    lstm = _weights().lstm
    assert lstm is not None
    found = []
    for place in places.tolist():
        begin = place
        while not observations[FIRST][begin]:
            begin -= 1
        found.append(lstm.zero_state())
        if place > begin:
            found[-1] = lstm.unroll(expand(observations[RANKS][begin:place]), np.zeros(place - begin))[-1]
    return np.array(found)


@pytest.mark.parametrize("rows_at_a_time", [1, 10, 1 << 16])
@pytest.mark.parametrize("starts", [(0,), (0, 1, 2, 30), tuple(range(50))], ids=str)
def test_states_are_those_of_the_whole_module(
    starts: tuple[int, ...], rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncated_sequences, "_ROWS_AT_A_TIME", rows_at_a_time)
    observations = _observations(50, starts)
    for seed in range(3):
        sequences = truncated_sequences.truncate(_weights(), observations, _NETWORK, np.random.default_rng(seed))
        assert sequences.decisions.shape == (8, 7)
        assert (np.diff(sequences.decisions.reshape(-1)) % 50 == 1).all()
        np.testing.assert_allclose(sequences.states, _expected(observations, sequences.decisions[:, 0]), atol=1e-6)
        later = sequences.following(_weights(), observations)
        np.testing.assert_array_equal(later.decisions, (sequences.decisions + 1) % 50)
        np.testing.assert_allclose(later.states, _expected(observations, later.decisions[:, 0]), atol=1e-6)


def test_few_decisions_are_one_sequence_that_repeats_them() -> None:
    observations = _observations(3, (0,))
    sequences = truncated_sequences.truncate(_weights(), observations, _NETWORK, np.random.default_rng(0))
    assert sequences.decisions.shape == (1, 7) and set(sequences.decisions[0].tolist()) == {0, 1, 2}


def test_a_feed_forward_network_has_sequences_of_one_decision() -> None:
    columns = {f"f{index}": np.arange(20) % (5 + index) for index in range(2)}
    rng = np.random.default_rng(0)
    sequences = truncated_sequences.truncate(
        weights_for(columns, hidden=(5,)), _observations(50, (0,)), NetworkConfig((5,)), rng
    )
    np.testing.assert_array_equal(sequences.decisions, np.arange(50)[:, np.newaxis])
    # It draws no random numbers, so that trainings are what they were.
    assert rng.random() == np.random.default_rng(0).random()
    feed_forward = dataclasses.replace(_NETWORK, lstm_units=0)
    assert [truncated_sequences.sequences_per_step(size, feed_forward) for size in (1, 100)] == [1, 100]
    assert [truncated_sequences.sequences_per_step(size, _NETWORK) for size in (1, 100)] == [1, 14]
