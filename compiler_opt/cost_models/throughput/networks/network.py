"""What the networks have in common: a batch of blocks in, cycles of each block out."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras

from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS
from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.vocabulary import Vocabulary

Batch = Mapping[str, Any]
"""Tensors or arrays by name."""

ANNOTATIONS_KEY = "annotations"


class ThroughputNetwork(tf_keras.Model, abc.ABC):
    """A network; subclasses set `SIGNATURE` (name, type and shape of each tensor of a batch) and `CONFIG`.

    Every batch also has `annotations` `[B, 2A]`: for each annotation `log(1 + events)` and whether it is known; zeros
    for what is unknown.
    """

    SIGNATURE: ClassVar[Mapping[str, Any]]
    CONFIG: ClassVar[Any]

    @classmethod
    @abc.abstractmethod
    def vocabulary(cls, blocks: Sequence[Sequence[Instruction]]) -> Vocabulary:
        """The vocabulary to learn with these blocks."""

    @abc.abstractmethod
    def encode(self, blocks: Sequence[Sequence[Instruction]]) -> Any:
        """The blocks as numbers, in an object with `take` and `sizes`."""

    @abc.abstractmethod
    def batch(self, encoded: Any) -> dict[str, np.ndarray]:
        """A batch of all of the encoded blocks, without annotations."""

    @classmethod
    def signature(cls) -> dict[str, tf.TensorSpec]:
        specs = {**cls.SIGNATURE, ANNOTATIONS_KEY: (tf.float32, (None, 2 * len(ANNOTATIONS)))}
        return {name: tf.TensorSpec(shape, dtype, name) for name, (dtype, shape) in specs.items()}

    def ready(self) -> "ThroughputNetwork":
        """Creates all variables, and returns itself."""
        nop = Instruction("NOP", "NOPD")
        batch = self.batch(self.encode([[nop]]))
        self({**batch, ANNOTATIONS_KEY: np.zeros((1, 2 * len(ANNOTATIONS)), np.float32)})
        return self


class CyclesHead(tf_keras.layers.Layer):
    """Cycles of blocks: the sum of what their instructions add, each seen with a summary of its block, and penalties.

    An event that was measured costs at least a penalty of its kind. What else annotations say goes into the summary.
    """

    def __init__(self, units: int):
        super().__init__()
        self._summary = tf_keras.layers.Dense(units, activation="relu")
        self._context = tf_keras.layers.Dense(units)
        self._annotations = tf_keras.layers.Dense(units, use_bias=False)
        self._own = tf_keras.layers.Dense(units)
        self._out = tf_keras.layers.Dense(1, bias_initializer=tf_keras.initializers.Constant(-1.0))
        self._log_penalties = self.add_weight(
            "log_penalties", (len(ANNOTATIONS),), initializer=tf_keras.initializers.Constant(1.0)
        )

    def call(self, states: tf.Tensor, owners: tf.Tensor, annotations: tf.Tensor) -> tf.Tensor:
        """`[I, H]` instructions of the blocks `owners` `[I]`, `[B, 2A]` -> `[B]`."""
        num_blocks = tf.shape(annotations)[0]
        summaries = self._summary(states)
        total = tf.math.unsorted_segment_sum(summaries, owners, num_blocks)
        mean = tf.math.unsorted_segment_mean(summaries, owners, num_blocks)
        context = self._context(tf.concat([mean, tf.math.log1p(total)], -1)) + self._annotations(annotations)
        hidden = tf.nn.relu(self._own(states) + tf.gather(context, owners))
        added = tf.nn.softplus(self._out(hidden)[:, 0])
        events = tf.math.exp(annotations[:, : len(ANNOTATIONS)]) - 1.0  # 0 if they are unknown
        penalties = tf.reduce_sum(events * tf.math.exp(self._log_penalties), -1)
        return tf.math.unsorted_segment_sum(added, owners, num_blocks) + penalties
