"""Numbers for the names that occur in blocks; names that are rare or new have the number 0."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from compiler_opt.cost_models.throughput.instructions import Instruction

UNKNOWN_NUMBER = 0


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The names that a model knows.

    Attributes:
      mnemonics: e.g. `ADD`.
      forms: `form_name` of instructions.
      operands: registers, prefixes, and kinds of operands.
    """

    mnemonics: tuple[str, ...]
    forms: tuple[str, ...]
    operands: tuple[str, ...]

    def numbers(self) -> "Numbers":
        return Numbers(*(_numbered(names) for names in (self.mnemonics, self.forms, self.operands)))


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of a vocabulary's names, from 1 on."""

    mnemonics: Mapping[str, int]
    forms: Mapping[str, int]
    operands: Mapping[str, int]


def form_name(instruction: Instruction) -> str:
    """The form, with a suffix if the operand that may be in memory is there."""
    return f"{instruction.form}:M" if instruction.has_memory_operand else instruction.form


def learn_vocabulary(
    blocks: Iterable[Sequence[Instruction]], operands: Iterable[str], min_count: int = 3
) -> Vocabulary:
    """The mnemonics and forms that occur at least `min_count` times, by their names, and these operands."""
    mnemonics: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    for block in blocks:
        mnemonics.update(instruction.mnemonic for instruction in block)
        forms.update(form_name(instruction) for instruction in block)
    frequent = (sorted(name for name, count in counts.items() if count >= min_count) for counts in (mnemonics, forms))
    return Vocabulary(tuple(next(frequent)), tuple(next(frequent)), tuple(dict.fromkeys(operands)))


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, UNKNOWN_NUMBER + 1)}
