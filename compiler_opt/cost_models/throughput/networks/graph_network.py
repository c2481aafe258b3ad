"""A network over the graphs of blocks: nodes exchange messages along the edges, in both directions.

In each of `rounds`, with states of `H` numbers and messages of `H/2`:

    message of an edge   = relu(W[state of the node it comes from] + embedding of the edge's kind)
    state of a node      = normalised(state + relu(U[state, sum of forward messages, sum of backward messages]))

Projections are of nodes, which are fewer than edges.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras

from compiler_opt.cost_models.throughput.graphs import (
    FIRST_MNEMONIC,
    EdgeKind,
    EncodedGraphs,
    encode_graphs,
    slots_of,
)
from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.networks.network import ANNOTATIONS_KEY, Batch, CyclesHead, ThroughputNetwork
from compiler_opt.cost_models.throughput.vocabulary import Vocabulary, learn_vocabulary


@dataclasses.dataclass(frozen=True)
class GraphNetworkConfig:
    """Size of the network.

    Attributes:
      units: numbers in the state of a node; even.
      rounds: of messages.
    """

    units: int = 48
    rounds: int = 3


class GraphNetwork(ThroughputNetwork):
    """The network; a batch has nodes, edges and instructions of all of its blocks, numbered through."""

    CONFIG = GraphNetworkConfig
    SIGNATURE: ClassVar[Mapping[str, Any]] = {
        "node_type": (tf.int32, (None,)),
        "node_name": (tf.int32, (None,)),
        "sender": (tf.int32, (None,)),
        "receiver": (tf.int32, (None,)),
        "edge_kind": (tf.int32, (None,)),
        "instruction": (tf.int32, (None,)),
        "owner": (tf.int32, (None,)),
    }

    def __init__(self, vocabulary: Vocabulary, config: GraphNetworkConfig):
        super().__init__()
        self._numbers = vocabulary.numbers()
        embed, units = tf_keras.layers.Embedding, config.units
        self._types = embed(FIRST_MNEMONIC + 1 + len(vocabulary.mnemonics), units)
        self._names = embed(len(vocabulary.forms) + 1 + len(vocabulary.operands) + 1, units)
        self._rounds = [_Round(units) for _ in range(config.rounds)]
        self._head = CyclesHead(units)

    @classmethod
    def vocabulary(cls, blocks: Sequence[Sequence[Instruction]]) -> Vocabulary:
        known = {instruction for block in blocks for instruction in block}
        operands = sorted({node.name for each in known for node, _, _ in slots_of(each) if not node.mnemonic})
        return learn_vocabulary(blocks, operands)

    def encode(self, blocks: Sequence[Sequence[Instruction]]) -> EncodedGraphs:
        return encode_graphs(blocks, self._numbers)

    def batch(self, encoded: EncodedGraphs) -> dict[str, np.ndarray]:
        nodes, edges = encoded.nodes, encoded.edges
        first = (nodes.ends - nodes.lengths)[edges.owners].astype(np.int32)
        instruction = np.flatnonzero(nodes.values["type"] >= FIRST_MNEMONIC).astype(np.int32)
        return {
            "node_type": nodes.values["type"],
            "node_name": nodes.values["name"],
            "sender": edges.values["sender"] + first,
            "receiver": edges.values["receiver"] + first,
            "edge_kind": edges.values["kind"],
            "instruction": instruction,
            "owner": nodes.owners[instruction],
        }

    def call(self, batch: Batch) -> tf.Tensor:
        """A batch of `B` blocks -> `[B]` cycles."""
        states = self._types(batch["node_type"]) + self._names(batch["node_name"])
        edges = (batch["sender"], batch["receiver"], batch["edge_kind"])
        for each in self._rounds[:-1]:
            states = each(states, *edges)
        # The head sees instructions only, which are a third of the nodes: so the last round updates no others.
        states = self._rounds[-1](states, *edges, batch["instruction"])
        return self._head(states, batch["owner"], batch[ANNOTATIONS_KEY])


class _Round(tf_keras.layers.Layer):
    def __init__(self, units: int):
        super().__init__()
        half = units // 2
        self._half = half
        self._projection = tf_keras.layers.Dense(2 * half, use_bias=False)
        self._forward_kinds = tf_keras.layers.Embedding(len(EdgeKind), half)
        self._backward_kinds = tf_keras.layers.Embedding(len(EdgeKind), half)
        self._update = tf_keras.layers.Dense(units, activation="relu")
        self._normalise = _LayerNormalization()

    def call(
        self,
        states: tf.Tensor,
        sender: tf.Tensor,
        receiver: tf.Tensor,
        kind: tf.Tensor,
        updated: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """`[N, H]`, `[E]`, `[E]`, `[E]` -> `[N, H]`; or `[I, H]`, of the nodes whose numbers `[I]` are given."""
        num_nodes = tf.shape(states)[0]
        projected = self._projection(states)
        forward = tf.nn.relu(tf.gather(projected[:, : self._half], sender) + self._forward_kinds(kind))
        backward = tf.nn.relu(tf.gather(projected[:, self._half :], receiver) + self._backward_kinds(kind))
        sums = [
            tf.math.unsorted_segment_sum(forward, receiver, num_nodes),
            tf.math.unsorted_segment_sum(backward, sender, num_nodes),
        ]
        inputs = tf.concat([states, *sums], -1)
        if updated is not None:
            states, inputs = tf.gather(states, updated), tf.gather(inputs, updated)
        return self._normalise(states + self._update(inputs))


class _LayerNormalization(tf_keras.layers.LayerNormalization):
    """In plain operations: Keras's own goes through a batch normalisation, a third of the network's time on a CPU."""

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """`[N, H]` -> `[N, H]`."""
        centred = states - tf.reduce_mean(states, -1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, -1, keepdims=True)
        return centred * (tf.math.rsqrt(variance + self.epsilon) * self.gamma) + self.beta
