"""A recurrent network over the instructions of a block, in both directions, in the manner of Ithemal."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras

from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.networks.network import ANNOTATIONS_KEY, Batch, CyclesHead, ThroughputNetwork
from compiler_opt.cost_models.throughput.sequences import EncodedSequences, encode_sequences, operand_tokens
from compiler_opt.cost_models.throughput.vocabulary import Vocabulary, learn_vocabulary


@dataclasses.dataclass(frozen=True)
class SequenceNetworkConfig:
    """Size of the network.

    Attributes:
      units: of an instruction's embedding, and of the recurrent layer in each direction.
    """

    units: int = 64


class SequenceNetwork(ThroughputNetwork):
    """The network; a batch has instructions by block `[B, T]`, and operands of all blocks, one after the other."""

    CONFIG = SequenceNetworkConfig
    SIGNATURE: ClassVar[Mapping[str, Any]] = {
        "form": (tf.int32, (None, None)),
        "mnemonic": (tf.int32, (None, None)),
        "length": (tf.int32, (None,)),
        "token": (tf.int32, (None,)),
        "place": (tf.int32, (None,)),
    }

    def __init__(self, vocabulary: Vocabulary, config: SequenceNetworkConfig):
        super().__init__()
        self._numbers = vocabulary.numbers()
        embed, units = tf_keras.layers.Embedding, config.units
        self._units = units
        self._forms = embed(len(vocabulary.forms) + 1, units)
        self._mnemonics = embed(len(vocabulary.mnemonics) + 1, units)
        self._tokens = embed(len(vocabulary.operands) + 1, units)
        self._instruction = tf_keras.layers.Dense(units, activation="relu")
        self._recurrent = tf_keras.layers.Bidirectional(tf_keras.layers.GRU(units, return_sequences=True))
        self._head = CyclesHead(units)

    @classmethod
    def vocabulary(cls, blocks: Sequence[Sequence[Instruction]]) -> Vocabulary:
        known = {instruction for block in blocks for instruction in block}
        return learn_vocabulary(blocks, sorted({token for each in known for token in operand_tokens(each)}))

    def encode(self, blocks: Sequence[Sequence[Instruction]]) -> EncodedSequences:
        return encode_sequences(blocks, self._numbers)

    def batch(self, encoded: EncodedSequences) -> dict[str, np.ndarray]:
        instructions, operands = encoded.instructions, encoded.operands
        length = instructions.lengths.astype(np.int32)
        is_there = np.arange(length.max(initial=1)) < length[:, None]  # [B, T]
        padded = {name: np.zeros(is_there.shape, np.int32) for name in ("form", "mnemonic")}
        for name, array in padded.items():
            array[is_there] = instructions.values[name]
        place = operands.owners * is_there.shape[1] + operands.values["instruction"]
        return {**padded, "length": length, "token": operands.values["token"], "place": place.astype(np.int32)}

    def call(self, batch: Batch) -> tf.Tensor:
        """A batch of `B` blocks -> `[B]` cycles."""
        shape = tf.shape(batch["form"])
        tokens = tf.math.unsorted_segment_sum(self._tokens(batch["token"]), batch["place"], shape[0] * shape[1])
        operands = tf.reshape(tokens, [shape[0], shape[1], self._units])
        embedded = self._forms(batch["form"]) + self._mnemonics(batch["mnemonic"]) + operands
        instructions = self._instruction(embedded)
        is_there = tf.sequence_mask(batch["length"], shape[1])
        states = self._recurrent(instructions, mask=is_there)
        states = tf.concat([states, embedded], -1)
        owners = tf.cast(tf.where(is_there)[:, 0], tf.int32)
        return self._head(tf.boolean_mask(states, is_there), owners, batch[ANNOTATIONS_KEY])
