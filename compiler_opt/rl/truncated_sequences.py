"""Sequences of decisions for truncated backpropagation through time, or single decisions of a feed-forward network.

Legend: N decisions of whole modules laid end to end, R sequences, T decisions of a sequence, U units of an LSTM.

A feed-forward network has N sequences of one decision. For a recurrent network, the modules are truncated to sequences
of `network.lstm_steps` decisions, at a random place first and then regularly; the end of the last module joins the
beginning of the first one, so no sequence needs padding, and some decisions are in two of them. A sequence begins with
the state that the network has there after it has read the module from its start, and gradients go back to that place.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.sampled_decisions import Batch
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.quantile_encoder import expand

_ROWS_AT_A_TIME = 1 << 16


@dataclasses.dataclass(frozen=True)
class Sequences:
    """R sequences.

    Attributes:
      decisions: `[R, T]`, indices of their decisions.
      states: `[R, 2 U]` float32, the state before the first decision of each; U is 0 of feed-forward networks.
    """

    decisions: np.ndarray
    states: np.ndarray

    def __len__(self) -> int:
        return len(self.decisions)

    def take(self, batch: Batch, indices: np.ndarray) -> Batch:
        """The decisions of these sequences `[P]` end to end, P T in number, with what a recurrent network observes."""
        chosen = batch.take(self.decisions[indices].reshape(-1))
        if not self.states.shape[1]:
            return chosen
        states = np.repeat(self.states[indices], self.decisions.shape[1], axis=0)
        return dataclasses.replace(chosen, observations={**chosen.observations, networks.STATE: states})

    def following(self, weights: NetworkWeights, observations: Mapping[str, np.ndarray]) -> "Sequences":
        """The sequences that begin and end one decision later."""
        decisions = (self.decisions + 1) % len(observations[networks.RANKS])
        return Sequences(decisions, _states_before(weights, observations, decisions[:, 0]))


def truncate(
    weights: NetworkWeights,
    observations: Mapping[str, np.ndarray],
    network: NetworkConfig,
    rng: np.random.Generator,
) -> Sequences:
    """Truncates observations `[N, ...]`, of at least one decision, to sequences; `weights` compute their states."""
    count = len(observations[networks.RANKS])
    if not weights.is_recurrent:
        decisions = np.arange(count)[:, np.newaxis]
    else:
        num_sequences = -(-count // network.lstm_steps)
        places = rng.integers(count) + np.arange(num_sequences * network.lstm_steps)
        decisions = places.reshape(num_sequences, network.lstm_steps) % count
    return Sequences(decisions, _states_before(weights, observations, decisions[:, 0]))


def sequences_per_step(minibatch_size: int, network: NetworkConfig) -> int:
    """How many sequences have about `minibatch_size` decisions; at least one."""
    return max(1, minibatch_size // network.lstm_steps) if network.lstm_units else minibatch_size


def _states_before(weights: NetworkWeights, observations: Mapping[str, np.ndarray], places: np.ndarray) -> np.ndarray:
    """The states `[R, 2 U]` before decisions `[R]`."""
    if weights.lstm is None:
        return np.zeros((len(places), 0), np.float32)
    ranks, is_first = observations[networks.RANKS], observations[networks.FIRST]
    found = np.zeros((len(places), 2 * weights.lstm.units), np.float32)
    for begin, end in _blocks(is_first):
        states = weights.lstm.unroll(expand(ranks[begin:end]), is_first[begin:end])
        inside = np.flatnonzero((places > begin) & (places < end))
        continuing = inside[is_first[places[inside]] == 0]
        found[continuing] = states[places[continuing] - begin - 1]
    return found


def _blocks(is_first: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of whole modules, of about `_ROWS_AT_A_TIME` decisions each."""
    starts = np.flatnonzero(is_first > 0)
    wanted = np.arange(0, len(is_first), _ROWS_AT_A_TIME)[1:]
    later = np.searchsorted(starts, wanted)
    bounds = np.unique(np.concatenate([[0], starts[later[later < len(starts)]], [len(is_first)]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
