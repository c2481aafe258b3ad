"""The graph of a block: instructions, the values that they read and write, and how they depend on each other.

After Granite (Sykora et al. 2022, https://arxiv.org/abs/2210.03894) and GRAPH-ithemal, with three changes. A value of a
register has a node only if the block uses it. What one run of the block leaves in a register for the next one is joined
to it by an edge, as labels are for many runs in a row. And there are no nodes for floating-point immediates: code for
x86-64 has none.
"""

import dataclasses
import enum
import itertools
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
    LOOP_CARRIED = 7
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


class Slot(NamedTuple):
    """A part of an instruction: a node of its own, or a register's value, which may have one already.

    Attributes:
      node: the node.
      kind: of the edge between the node and the target; an edge of kind OUTPUT comes from the target.
      target: another slot of the same instruction, by its number. The first slot is the instruction's own node; its
        edge, from the previous instruction, has no target.
    """

    node: Node
    kind: EdgeKind
    target: int = 0


def slots_of(instruction: Instruction) -> list[Slot]:
    """The parts of an instruction, its own node first."""
    slots = [Slot(Node(NodeKind.MNEMONIC, form_name(instruction), instruction.mnemonic), EdgeKind.STRUCTURAL)]
    slots += [Slot(Node(NodeKind.PREFIX, prefix), EdgeKind.STRUCTURAL) for prefix in instruction.prefixes]
    slots += [Slot(Node(NodeKind.REGISTER, register), EdgeKind.INPUT) for register in instruction.reads]
    for memory in instruction.memory:
        address = len(slots)
        slots.append(Slot(Node(NodeKind.ADDRESS), EdgeKind.INPUT))
        for register, kind in (
            (memory.base, EdgeKind.BASE),
            (memory.index, EdgeKind.INDEX),
            (memory.segment, EdgeKind.SEGMENT),
        ):
            if register:
                slots.append(Slot(Node(NodeKind.REGISTER, register), kind, address))
        if memory.has_displacement:
            slots.append(Slot(Node(NodeKind.IMMEDIATE), EdgeKind.DISPLACEMENT, address))
        if memory.is_read:
            slots.append(Slot(Node(NodeKind.MEMORY), EdgeKind.INPUT))
        if memory.is_written:
            slots.append(Slot(Node(NodeKind.MEMORY), EdgeKind.OUTPUT))
    slots += [Slot(Node(NodeKind.IMMEDIATE), EdgeKind.INPUT)] * instruction.num_immediates
    return slots


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
    """The graphs of blocks, all at once.

    Numbers of slots, instructions and blocks are those in the order of the code of all blocks. Uses and writes of
    registers are sorted by block, register and time; so the value that a use reads is that of the last write before it.
    """
    flat = list(itertools.chain.from_iterable(blocks))
    num_blocks = len(blocks)
    if not flat:
        nothing = np.zeros(0, np.int32)
        lengths = [0] * num_blocks
        return EncodedGraphs(
            Ragged.of_lengths(lengths, dict.fromkeys(("type", "name"), nothing)),
            Ragged.of_lengths(lengths, dict.fromkeys(("sender", "receiver", "kind"), nothing)),
        )
    block = np.repeat(np.arange(num_blocks), [len(each) for each in blocks])  # of each instruction
    # By identity, as a decoder gives equal instructions once: their hashes would take most of the time.
    _, first, chosen = np.unique(
        np.fromiter(map(id, flat), np.int64, len(flat)), return_index=True, return_inverse=True
    )
    slots, writes = (each.take(chosen) for each in _tables([flat[number] for number in first.tolist()], numbers))
    own = slots.ends - slots.lengths  # slot of each instruction's own node
    instruction, register = slots.owners, slots.values["register"]
    values = _values(instruction, register, writes.owners, writes.values["register"], block)

    is_node = register < 0
    is_node[values.value] = True
    node_block = block[instruction[is_node]]
    num_nodes = np.bincount(node_block, minlength=num_blocks)
    number = np.cumsum(is_node) - 1  # of each slot's node, in all blocks
    number[values.use] = number[values.value_of_use]
    number -= (np.cumsum(num_nodes) - num_nodes)[block[instruction]]

    kind, target = slots.values["kind"], number[own[instruction] + slots.values["target"]]
    is_output = kind == EdgeKind.OUTPUT
    sender, receiver = np.where(is_output, target, number), np.where(is_output, number, target)
    sender[own[1:]] = number[own[:-1]]
    is_edge = np.ones(len(kind), bool)
    is_edge[own[np.diff(block, prepend=-1) > 0]] = False  # first instructions have no previous one

    # The last values of registers, for the next run of the block.
    last_block = block[instruction[values.carried_to]]
    is_new = values.last_writer >= 0
    num_last = np.bincount(last_block[is_new], minlength=num_blocks)
    rank = np.cumsum(is_new) - 1 - (np.cumsum(num_last) - num_last)[last_block]
    last = np.where(is_new, num_nodes[last_block] + rank, number[values.carried_from])
    last_register = values.carried_to[is_new]

    def rows(blocks_of: np.ndarray, **columns: np.ndarray) -> Ragged:
        counts = np.bincount(blocks_of, minlength=num_blocks)
        return Ragged.of_lengths(counts, {name: array.astype(np.int32) for name, array in columns.items()})

    def edges(blocks_of: np.ndarray, senders: np.ndarray, receivers: np.ndarray, kinds: np.ndarray | int) -> Ragged:
        return rows(blocks_of, sender=senders, receiver=receivers, kind=np.broadcast_to(kinds, senders.shape))

    written = values.written
    return EncodedGraphs(
        Ragged.joined(
            rows(node_block, type=slots.values["type"][is_node], name=slots.values["name"][is_node]),
            rows(
                last_block[is_new], type=slots.values["type"][last_register], name=slots.values["name"][last_register]
            ),
        ),
        Ragged.joined(
            edges(block[instruction[is_edge]], sender[is_edge], receiver[is_edge], kind[is_edge]),
            edges(block[instruction[written]], number[own[values.writer]], number[written], EdgeKind.OUTPUT),
            edges(last_block[is_new], number[own[values.last_writer[is_new]]], last[is_new], EdgeKind.OUTPUT),
            edges(last_block, last, number[values.carried_to], EdgeKind.LOOP_CARRIED),
        ),
    )


class _Values(NamedTuple):
    """Values of registers, each at the slot of its first use.

    Attributes:
      use, value_of_use: slots that use a register, and those of the values that they read.
      value: slots of all values.
      written, writer: slots of the values that the block writes, in order, and the instructions that do.
      carried_to: slots of values from before the block, in order, if the block then writes the register.
      carried_from, last_writer: the slots of their registers' last values; or, where nothing uses those, the
        instructions that write them, else -1.
    """

    use: np.ndarray
    value_of_use: np.ndarray
    value: np.ndarray
    written: np.ndarray
    writer: np.ndarray
    carried_to: np.ndarray
    carried_from: np.ndarray
    last_writer: np.ndarray


def _values(
    slot_instruction: np.ndarray,
    slot_register: np.ndarray,
    write_instruction: np.ndarray,
    write_register: np.ndarray,
    block: np.ndarray,
) -> _Values:
    """Joins uses (slots with a register, else -1) and writes of registers, in the blocks of their instructions."""
    use = np.flatnonzero(slot_register >= 0)
    # Events: all uses, then all writes.
    event_instruction = np.concatenate([slot_instruction[use], write_instruction]).astype(np.int64)
    event_register = np.concatenate([slot_register[use], write_register])
    event_slot = np.concatenate([use, np.full(len(write_register), -1)])
    num_registers = int(event_register.max(initial=0)) + 1
    group = block[event_instruction] * num_registers + event_register
    # An instruction reads before it writes; the sort is stable, and uses come first.
    order = np.argsort(group * len(block) + event_instruction, kind="stable")
    group, slot, instruction = group[order], event_slot[order], event_instruction[order]
    is_write = slot < 0
    starts = np.diff(group, prepend=-1) != 0
    after_write = np.concatenate([[False], is_write[:-1]]) & ~starts
    is_value = ~is_write & (starts | after_write)
    positions = np.arange(len(order))
    value = slot[np.maximum.accumulate(np.where(is_value, positions, 0))]
    is_written = np.flatnonzero(is_value & after_write)
    begin = np.flatnonzero(starts)
    end = np.append(begin, len(order))[1:] - 1
    num_writes = np.cumsum(is_write)
    carried = ~is_write[begin] & (num_writes[end] > num_writes[begin])
    by_slot = np.argsort(slot[begin[carried]])
    begin, end = begin[carried][by_slot], end[carried][by_slot]
    in_order = np.argsort(slot[is_written])
    return _Values(
        use=slot[~is_write],
        value_of_use=value[~is_write],
        value=slot[is_value],
        written=slot[is_written][in_order],
        writer=instruction[is_written - 1][in_order],
        carried_to=slot[begin],
        carried_from=value[end],
        last_writer=np.where(is_write[end], instruction[end], -1),
    )


def _tables(instructions: Sequence[Instruction], numbers: Numbers) -> tuple[Ragged, Ragged]:
    """For each instruction: its slots, and the registers that it writes, both with registers numbered."""
    registers: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    writes: list[int] = []
    num_slots = []
    known: dict[Slot, tuple[int, ...]] = {}
    for instruction in instructions:
        slots = slots_of(instruction)
        num_slots.append(len(slots))
        for slot in slots:
            row = known.get(slot)
            if row is None:
                is_register = slot.node.kind is NodeKind.REGISTER
                register = registers.setdefault(slot.node.name, len(registers)) if is_register else -1
                row = known[slot] = (*_encoded(slot.node, numbers), register, slot.kind, slot.target)
            rows.append(row)
        writes += [registers.setdefault(register, len(registers)) for register in instruction.writes]
    names = ("type", "name", "register", "kind", "target")
    columns = np.array(rows, np.int32).reshape(-1, len(names)).T
    return (
        Ragged.of_lengths(num_slots, {name: column.copy() for name, column in zip(names, columns, strict=True)}),
        Ragged.of_lengths(
            [len(instruction.writes) for instruction in instructions], {"register": np.array(writes, np.int32)}
        ),
    )


def _encoded(node: Node, numbers: Numbers) -> tuple[int, int]:
    if node.kind is NodeKind.MNEMONIC:
        mnemonic = numbers.mnemonics.get(node.mnemonic, UNKNOWN_NUMBER)
        return FIRST_MNEMONIC + mnemonic, numbers.forms.get(node.name, UNKNOWN_NUMBER)
    return int(node.kind), len(numbers.forms) + 1 + numbers.operands.get(node.name, UNKNOWN_NUMBER)
