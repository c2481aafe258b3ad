"""An optimiser whose step length is found by trying each step once more.

Legend: D weights.

    optimizer.apply_gradients(...)      # a step s down the gradient, of the length that is trusted
    optimizer.probe()                   # s; compile under the weights + s, and under the weights - s: those before it
    optimizer.judge(gain)               # how much better the former is: trusts longer steps, or shorter ones

Along the line of the step, let the reward be a parabola. Then going on is better than going back exactly if the step
has not reached its top. So the length settles where steps reach the best point of their line, whatever the scale of
rewards and gradients. Other trust-region methods compare the gain with a model's prediction, for which the gradient's
length would have to mean something; here it comes from ranks.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

_LONGER, _SHORTER = 1.25, 0.7
"""Their product is below 1, so that the length falls where chance decides, or steps jump to and fro over the top."""


class TrustRegion(tf.Module):
    """Takes the place of a Keras optimiser.

    Attributes:
      radius: the length of the next step.
    """

    def __init__(self, radius: float):
        """`radius`: the length of the first step."""
        super().__init__()
        self.radius = tf.Variable(radius, trainable=False, dtype=tf.float32)
        self._step: list[tf.Variable] = []

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Prepares for these variables."""
        self._step = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]

    def apply_gradients(self, gradients: Iterable[tuple[tf.Tensor, tf.Variable]]) -> None:
        """Moves the variables against their gradients, by `radius` altogether; not at all if these are 0."""
        pairs = list(gradients)
        norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        for (gradient, variable), step in zip(pairs, self._step, strict=True):
            step.assign(tf.math.divide_no_nan(-self.radius * gradient, norm))
            variable.assign_add(step)

    def probe(self) -> np.ndarray | None:
        """The last step, `[D]` float32; None if there was none."""
        step = np.concatenate([part.numpy().reshape(-1) for part in self._step])
        return step if step.any() else None

    def judge(self, gain: float) -> None:
        """Changes the radius by the gain of going on like the last step over going back."""
        if gain:
            self.radius.assign(self.radius * (_LONGER if gain > 0 else _SHORTER))
