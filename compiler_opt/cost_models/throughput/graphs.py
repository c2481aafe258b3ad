"""The graph of a block: instructions, the values that they read and write, and how they depend on each other.

After Granite (Sykora et al. 2022, https://arxiv.org/abs/2210.03894) and GRAPH-ithemal, with three changes. A value of a
register has a node only if the block uses it. What one run of the block leaves in a register for the next one is joined
to it by an edge, as labels are for many runs in a row. And there are no nodes for floating-point immediates: code for
x86-64 has none.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.ragged import Ragged
from compiler_opt.cost_models.throughput.vocabulary import UNKNOWN_NUMBER, Numbers, form_name


class NodeKind(enum.IntEnum):
    """What a node is."""

    MNEMONIC = 0
    PREFIX = 1
    REGISTER = 2
    IMMEDIATE = 3
    ADDRESS = 4
    MEMORY = 5


class EdgeKind(enum.IntEnum):
    """How a node depends on the one before it."""

    STRUCTURAL = 0
    """From an instruction to the next one, or from a prefix to its instruction."""
    INPUT = 1
    OUTPUT = 2
    BASE = 3
    INDEX = 4
    SEGMENT = 5
    DISPLACEMENT = 6
    CARRIED = 7
    """From the last value of a register to the one that the next run of the block begins with."""


class Node(NamedTuple):
    """A node.

    Attributes:
      kind: what it is.
      name: of the register or prefix, or of the instruction's form; otherwise empty.
      mnemonic: of an instruction.
    """

    kind: NodeKind
    name: str = ""
    mnemonic: str = ""


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph.

    Attributes:
      nodes: in the order of the code.
      edges: sender, receiver and kind of each.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int, EdgeKind], ...]


def block_graph(instructions: Sequence[Instruction]) -> Graph:
    """The graph of a block."""
    builder = _Builder()
    for instruction in instructions:
        builder.add_instruction(instruction)
    builder.join_runs()
    return Graph(tuple(builder.nodes), tuple(builder.edges))


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[tuple[int, int, EdgeKind]] = []
        self._previous: int | None = None
        self._writers: dict[str, int] = {}  # instructions, by register
        self._values: dict[str, int] = {}  # current ones that have nodes, by register
        self._first_values: dict[str, int] = {}

    def add_instruction(self, instruction: Instruction) -> None:
        number = self._add(_instruction_node(instruction))
        if self._previous is not None:
            self.edges.append((self._previous, number, EdgeKind.STRUCTURAL))
        self._previous = number
        for prefix in instruction.prefixes:
            self.edges.append((self._add(Node(NodeKind.PREFIX, prefix)), number, EdgeKind.STRUCTURAL))
        for register in instruction.reads:
            self.edges.append((self._value(register), number, EdgeKind.INPUT))
        for memory in instruction.memory:
            address = self._add(_ADDRESS)
            for register, kind in (
                (memory.base, EdgeKind.BASE),
                (memory.index, EdgeKind.INDEX),
                (memory.segment, EdgeKind.SEGMENT),
            ):
                if register:
                    self.edges.append((self._value(register), address, kind))
            if memory.has_displacement:
                self.edges.append((self._add(_IMMEDIATE), address, EdgeKind.DISPLACEMENT))
            self.edges.append((address, number, EdgeKind.INPUT))
            if memory.is_read:
                self.edges.append((self._add(_MEMORY), number, EdgeKind.INPUT))
            if memory.is_written:
                self.edges.append((number, self._add(_MEMORY), EdgeKind.OUTPUT))
        for _ in range(instruction.num_immediates):
            self.edges.append((self._add(_IMMEDIATE), number, EdgeKind.INPUT))
        for register in instruction.writes:
            self._writers[register] = number
            self._values.pop(register, None)

    def join_runs(self) -> None:
        """Adds the edges from one run of the block to the next."""
        for register, first in self._first_values.items():
            if register in self._writers:
                self.edges.append((self._value(register), first, EdgeKind.CARRIED))

    def _value(self, register: str) -> int:
        """The node of the register's current value."""
        node = self._values.get(register)
        if node is None:
            node = self._values[register] = self._add(Node(NodeKind.REGISTER, register))
            writer = self._writers.get(register)
            if writer is None:
                self._first_values[register] = node
            else:
                self.edges.append((writer, node, EdgeKind.OUTPUT))
        return node

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


_ADDRESS, _IMMEDIATE, _MEMORY = (Node(kind) for kind in (NodeKind.ADDRESS, NodeKind.IMMEDIATE, NodeKind.MEMORY))


def _instruction_node(instruction: Instruction) -> Node:
    return Node(NodeKind.MNEMONIC, form_name(instruction), instruction.mnemonic)


@dataclasses.dataclass(frozen=True)
class EncodedGraphs:
    """Graphs of `B` blocks as numbers.

    Attributes:
      nodes: rows of nodes: `type` (of an instruction `FIRST_MNEMONIC` plus its mnemonic's number, else the `NodeKind`),
        `name` (of an instruction its form's number; else, after all forms, its operand's).
      edges: rows of edges: `sender`, `receiver` (numbers within the block), `kind`.
    """

    nodes: Ragged
    edges: Ragged

    def take(self, blocks: np.ndarray) -> "EncodedGraphs":
        return EncodedGraphs(self.nodes.take(blocks), self.edges.take(blocks))

    @property
    def sizes(self) -> np.ndarray:
        """`[B]` nodes of each."""
        return self.nodes.lengths


FIRST_MNEMONIC = len(NodeKind)


def encode_graphs(blocks: Sequence[Sequence[Instruction]], numbers: Numbers) -> EncodedGraphs:
    """The graphs of blocks."""
    nodes: list[tuple[int, int]] = []
    edges: list[tuple[int, int, EdgeKind]] = []
    num_nodes, num_edges = [], []
    known: dict[Node, tuple[int, int]] = {}
    for block in blocks:
        graph = block_graph(block)
        for node in graph.nodes:
            encoded = known.get(node)
            if encoded is None:
                encoded = known[node] = _encoded(node, numbers)
            nodes.append(encoded)
        edges += graph.edges
        num_nodes.append(len(graph.nodes))
        num_edges.append(len(graph.edges))
    node_array = np.array(nodes, np.int32).reshape(-1, 2)
    edge_array = np.array(edges, np.int32).reshape(-1, 3)
    return EncodedGraphs(
        Ragged.of_lengths(num_nodes, dict(zip(("type", "name"), node_array.T.copy(), strict=True))),
        Ragged.of_lengths(num_edges, dict(zip(("sender", "receiver", "kind"), edge_array.T.copy(), strict=True))),
    )


def _encoded(node: Node, numbers: Numbers) -> tuple[int, int]:
    if node.kind is NodeKind.MNEMONIC:
        mnemonic = numbers.mnemonics.get(node.mnemonic, UNKNOWN_NUMBER)
        return FIRST_MNEMONIC + mnemonic, numbers.forms.get(node.name, UNKNOWN_NUMBER)
    return int(node.kind), len(numbers.forms) + 1 + numbers.operands.get(node.name, UNKNOWN_NUMBER)
