"""Graphs of blocks, instruction by instruction: slow and obvious, to compare the encoding of many blocks with."""

import dataclasses
from collections.abc import Sequence

from compiler_opt.cost_models.throughput.graphs import EdgeKind, Node, NodeKind
from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.vocabulary import form_name


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
                self.edges.append((self._value(register), first, EdgeKind.LOOP_CARRIED))

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
