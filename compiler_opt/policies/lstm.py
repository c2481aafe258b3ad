"""A long short-term memory (LSTM): what a recurrent policy remembers from one decision of a module to the next.

Legend: I inputs, U units, T decisions of several modules, those of each module in order.

    state = lstm.zero_state()                         # at the start of each module
    state = lstm.step(inputs @ lstm.kernel + lstm.bias, state)
    state[:lstm.units]                                # the output

A *state* is `[..., 2 U]`: the output of the last decision, then the cell. Gates are in Keras's order: input, forget,
candidate, output. Source: Gers et al., *Learning to Forget: Continual Prediction with LSTM*, 2000.
"""

import dataclasses

import numpy as np

from compiler_opt.errors import PolicyError

MAX_UNITS = 256
"""As in `native/policy_network.h`."""


@dataclasses.dataclass(frozen=True)
class LSTM:
    """The weights of an LSTM.

    Attributes:
      kernel: `[I, 4 U]`.
      recurrent_kernel: `[U, 4 U]`.
      bias: `[4 U]`.
    """

    kernel: np.ndarray
    recurrent_kernel: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        if not (self.kernel.ndim == self.recurrent_kernel.ndim == 2 and self.bias.ndim == 1):
            raise PolicyError("LSTM: expected kernels in two dimensions and a bias in one")
        units = len(self.recurrent_kernel)
        if not 0 < units <= MAX_UNITS:
            raise PolicyError(f"LSTM: expected 1 to {MAX_UNITS} units, found {units}")
        found = (self.kernel.shape[1], self.recurrent_kernel.shape[1], len(self.bias))
        if found != (4 * units,) * 3:
            raise PolicyError(f"LSTM: expected {4 * units} gates of {units} units, found {found}")
        if not all(np.isfinite(values).all() for values in self.arrays().values()):
            raise PolicyError("LSTM: a weight is not a finite number")

    @property
    def units(self) -> int:
        return len(self.recurrent_kernel)

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def zero_state(self) -> np.ndarray:
        """`[2 U]` float32."""
        return np.zeros(2 * self.units, np.float32)

    def step(self, gates: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The state after one decision.

        Args:
          gates: `[..., 4 U]`, the products of inputs and `kernel`, plus `bias`.
          state: `[..., 2 U]` before the decision.

        Returns:
          `[..., 2 U]` float32.
        """
        units = self.units
        gates = gates + state[..., :units] @ self.recurrent_kernel
        admitted, kept, output = (_sigmoid(gates[..., place * units : (place + 1) * units]) for place in (0, 1, 3))
        cell = kept * state[..., units:] + admitted * np.tanh(gates[..., 2 * units : 3 * units])
        return np.concatenate([output * np.tanh(cell), cell], axis=-1)

    def unroll(self, inputs: np.ndarray, is_first: np.ndarray) -> np.ndarray:
        """The states after all decisions.

        Args:
          inputs: `[T, I]`.
          is_first: `[T]`, whether a module begins with the decision; the first one does in any case.

        Returns:
          `[T, 2 U]` float32.
        """
        gates = inputs @ self.kernel + self.bias
        states = np.empty((len(inputs), 2 * self.units), np.float32)
        begins = np.asarray(is_first) > 0
        begins[:1] = True
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(inputs))
        # The longest module first: those that still have decisions are the first ones.
        order = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[order], lengths[order]
        state = np.zeros((len(starts), 2 * self.units), np.float32)
        for place in range(int(lengths.max(initial=0))):
            active = int(np.searchsorted(-lengths, -place, "left"))
            rows = starts[:active] + place
            state = self.step(gates[rows], state[:active])
            states[rows] = state
        return states


def _sigmoid(values: np.ndarray) -> np.ndarray:
    # exp() would overflow.
    result: np.ndarray = np.float32(0.5) * np.tanh(np.float32(0.5) * values) + np.float32(0.5)
    return result
