"""The graph network against its formulas, block by block, in numpy."""

import numpy as np
import pytest

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.graphs import FIRST_MNEMONIC, EdgeKind, NodeKind
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.model import ThroughputModel, annotation_inputs, network_of, new_description
from tests.cost_models.throughput.reference_graph import block_graph

UNITS, ROUNDS = 8, 3
CODES = ("480304d7ffc24885c075d0", "90", "f0834704016448890425080000004889d1", "48f7f1f20f58c14889442408c3")


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def cycles_by_formulas(model: ThroughputModel, block: Block, decoder: Decoder) -> float:
    """Cycles from the model's weights, with every node updated in every round."""
    weights = iter(model.weights().values())
    numbers = model.description.vocabulary.numbers()
    graph = block_graph(decoder.decode(block.code) or [])
    types, names = next(weights), next(weights)
    states = np.array(
        [
            types[FIRST_MNEMONIC + numbers.mnemonics[node.mnemonic]] + names[numbers.forms[node.name]]
            if node.kind is NodeKind.MNEMONIC
            else types[node.kind] + names[len(numbers.forms) + 1 + numbers.operands[node.name]]
            for node in graph.nodes
        ]
    )
    half = UNITS // 2
    for _ in range(ROUNDS):
        projection, forward_kinds, backward_kinds, update, bias, gamma, beta = (next(weights) for _ in range(7))
        assert forward_kinds.shape == (len(EdgeKind), half)
        projected = states @ projection
        forward, backward = np.zeros((2, len(states), half))
        for sender, receiver, kind in graph.edges:
            forward[receiver] += relu(projected[sender, :half] + forward_kinds[kind])
            backward[sender] += relu(projected[receiver, half:] + backward_kinds[kind])
        states = states + relu(np.concatenate([states, forward, backward], 1) @ update + bias)
        states = states - states.mean(axis=1, keepdims=True)
        states = states / np.sqrt(states.var(axis=1, keepdims=True) + 1e-3) * gamma + beta
    states = states[[node.kind is NodeKind.MNEMONIC for node in graph.nodes]]
    # A layer's own variables come first.
    log_penalties, summary, summary_bias, context, context_bias, annotated, own, own_bias, out, out_bias = weights
    summaries = relu(states @ summary + summary_bias)
    total = np.concatenate([summaries.mean(axis=0), np.log1p(summaries.sum(axis=0))])
    shared = total @ context + context_bias + annotation_inputs([block])[0] @ annotated
    hidden = relu(states @ own + own_bias + shared)
    penalties = np.nan_to_num(block.annotations) @ np.exp(log_penalties)
    return float(np.log1p(np.exp(hidden @ out + out_bias)).sum() + penalties)


def test_predictions_are_those_of_the_formulas() -> None:
    import tensorflow as tf

    decoder = Decoder()
    blocks = [
        Block(bytes.fromhex(code), "a.o", "f", number, 1.0, annotations=(0.5, np.nan, 0.0, 2.0))
        for number, code in enumerate(CODES)
    ]
    instructions = [decoder.decode(block.code) or [] for block in blocks]
    network = network_of("graph")
    vocabulary = network.vocabulary(instructions * 3)
    tf.keras.utils.set_random_seed(0)
    model = ThroughputModel(new_description("graph", {"units": UNITS, "rounds": ROUNDS}, vocabulary, "test"))
    generator = np.random.default_rng(0)
    model.set_weights(
        {
            name: array + generator.normal(0, 0.2, array.shape).astype(np.float32)
            for name, array in model.weights().items()
        }
    )
    expected = [cycles_by_formulas(model, block, decoder) for block in blocks]
    assert model.predict(blocks, decoder) == pytest.approx(expected, rel=1e-4)
