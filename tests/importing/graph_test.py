"""The evaluation of foreign graphs ends for every graph, and in little memory."""

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.importing.graph import CONSTANT, INPUT, Model, Node
from compiler_opt.importing.recognition import policy_network

_X = Node(INPUT, "x", options={"dtype": np.dtype("i8"), "shape": (1,)})


def _decisions(output: Node) -> np.ndarray:
    return Model("model", "TFLite", "", "advice", output).decisions({"x": np.arange(600)})


def _shape(*extents: int) -> Node:
    return Node(CONSTANT, "shape", value=np.array(extents))


def test_a_deep_graph() -> None:
    node = _X
    for _ in range(5000):
        node = Node("Relu", "deep", (node,))
    np.testing.assert_array_equal(_decisions(node), np.arange(600))


@pytest.mark.parametrize("encoded", [Node("Sqrt", "root"), Node("Mul", "product"), Node("RealDiv", "rank", (_X, _X))])
def test_operations_without_their_operands_are_refused(encoded: Node) -> None:
    logits = Node("MatMul", "logits", (encoded, Node(CONSTANT, "kernel", value=np.zeros((1, 2), np.float32))))
    output = Node("ArgMax", "decision", (logits, _shape(-1)))
    with pytest.raises(PolicyError, match=r"^model: (an operation lacks an operand|expected a constant operand)"):
        policy_network(Model("model", "TFLite", "", "advice", output), ["x"])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node("BroadcastTo", "wide", (_X, _shape(1 << 20, 1 << 20))), "computes more than"),
        (Node("Pack", "wide", (Node("BroadcastTo", "part", (_X, _shape(1 << 14))),) * 64), "computes more than"),
        (Node("Reshape", "moved", (_X, _X)), "a shape depends on the features"),
        (Node("Reshape", "more", (_X, _shape(2))), "cannot reshape array"),
        (Node("ConcatV2", "mixed", (_X, _X, _shape(-2))), "no axis -2 of 1"),
        (Node("MatMul", "rows", (_X, _X)), "not enough values to unpack"),
    ],
)
def test_what_does_not_fit_is_refused(node: Node, reason: str) -> None:
    with pytest.raises(PolicyError, match=rf"^model: its operations do not fit together \(.*{reason}"):
        _decisions(node)
