"""A block as a sequence of instructions, each with the set of what it uses: the hierarchy of Ithemal.

Ithemal (Mendis et al. 2019, https://arxiv.org/abs/1808.07412) has a sequence of tokens for each instruction. Here their
order within an instruction is replaced by their roles, e.g. `read:RAX` or `base:RBP`.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from compiler_opt.cost_models.throughput.instructions import Instruction
from compiler_opt.cost_models.throughput.ragged import Ragged
from compiler_opt.cost_models.throughput.vocabulary import UNKNOWN_NUMBER, Numbers, form_name


def operand_tokens(instruction: Instruction) -> Iterator[str]:
    """What an instruction uses, by role."""
    for prefix in instruction.prefixes:
        yield f"prefix:{prefix}"
    for register in instruction.reads:
        yield f"read:{register}"
    for register in instruction.writes:
        yield f"write:{register}"
    for memory in instruction.memory:
        yield f"base:{memory.base}"
        yield f"index:{memory.index}"
        if memory.segment:
            yield f"segment:{memory.segment}"
        if memory.has_displacement:
            yield "displacement"
        if memory.is_read:
            yield "load"
        if memory.is_written:
            yield "store"
    if instruction.num_immediates:
        yield "immediate"


@dataclasses.dataclass(frozen=True)
class EncodedSequences:
    """Sequences of `B` blocks as numbers.

    Attributes:
      instructions: rows of instructions: `form`, `mnemonic`.
      operands: rows of operands of all instructions of a block: `token`, `instruction` (its number within the block).
    """

    instructions: Ragged
    operands: Ragged

    def take(self, blocks: np.ndarray) -> "EncodedSequences":
        return EncodedSequences(self.instructions.take(blocks), self.operands.take(blocks))

    @property
    def sizes(self) -> np.ndarray:
        """`[B]` instructions of each."""
        return self.instructions.lengths


def encode_sequences(blocks: Sequence[Sequence[Instruction]], numbers: Numbers) -> EncodedSequences:
    """The sequences of blocks."""
    instructions: list[tuple[int, int]] = []
    operands: list[tuple[int, int]] = []
    num_operands = []
    known: dict[Instruction, tuple[tuple[int, int], list[int]]] = {}
    for block in blocks:
        before = len(operands)
        for position, instruction in enumerate(block):
            found = known.get(instruction)
            if found is None:
                found = known[instruction] = _encoded(instruction, numbers)
            instructions.append(found[0])
            operands += [(token, position) for token in found[1]]
        num_operands.append(len(operands) - before)
    instruction_array = np.array(instructions, np.int32).reshape(-1, 2)
    operand_array = np.array(operands, np.int32).reshape(-1, 2)
    return EncodedSequences(
        Ragged.of_lengths(
            [len(block) for block in blocks],
            dict(zip(("form", "mnemonic"), instruction_array.T.copy(), strict=True)),
        ),
        Ragged.of_lengths(num_operands, dict(zip(("token", "instruction"), operand_array.T.copy(), strict=True))),
    )


def _encoded(instruction: Instruction, numbers: Numbers) -> tuple[tuple[int, int], list[int]]:
    named = (
        numbers.forms.get(form_name(instruction), UNKNOWN_NUMBER),
        numbers.mnemonics.get(instruction.mnemonic, UNKNOWN_NUMBER),
    )
    return named, [numbers.operands.get(token, UNKNOWN_NUMBER) for token in operand_tokens(instruction)]
