"""Parses optimisation remarks: the cost of register allocation in each function, by the pass `regalloc`.

    --- !Missed
    Pass:            regalloc
    Name:            SpillReloadCopies          (the function's total; LoopSpillReloadCopies is part of it)
    DebugLoc:        { File: a.c, Line: 3, Column: 10 }      (only with debug information)
    Function:        name
    Args:
      - NumSpills:       '9'
      - TotalSpillsCost: '8.312500e+01'         (spills, weighted by block frequency relative to the entry)
      ...

Source: `RAGreedy::reportStats` in `llvm/lib/CodeGen/RegAllocGreedy.cpp`. A function without such costs has no remark.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.remarks import function_name

REMARK_PASS = "regalloc"

_TOTAL = re.compile(
    rb"^Name: +SpillReloadCopies\n"
    rb"(?:DebugLoc: [^\n]*\n(?: [^\n]*\n)*)?"
    rb"Function: +([^\n]+)\n"
    rb"(?:Hotness: [^\n]*\n)?"
    rb"Args: *\n((?: [^\n]*\n)*)",
    re.MULTILINE,
)
_COST = re.compile(rb"^ +- Total(\w+)Cost: +'([^'\n]*)'$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class RegallocCosts:
    """Executions, per call of a function, of the code that register allocation has added.

    Attributes:
      spills: stores to a stack slot.
      folded_spills: other instructions into which such a store is folded.
      reloads: loads from a stack slot.
      folded_reloads: other instructions into which such a load is folded.
      copies: register copies.
    """

    spills: float = 0.0
    folded_spills: float = 0.0
    reloads: float = 0.0
    folded_reloads: float = 0.0
    copies: float = 0.0


# By LLVM's spelling, such as `FoldedSpills`.
_FIELDS = {field.name.title().replace("_", "").encode(): field.name for field in dataclasses.fields(RegallocCosts)}


def parse_costs(remarks: bytes) -> Mapping[str, RegallocCosts]:
    """Parses the remarks of one compilation to costs by function, without those that cost nothing.

    Raises:
      ProtocolError: a cost is not a number, or a name is not valid YAML.
    """
    return {
        function_name(match[1].strip()): RegallocCosts(
            **{_FIELDS[kind]: _number(text) for kind, text in _COST.findall(match[2]) if kind in _FIELDS}
        )
        for match in _TOTAL.finditer(remarks)
    }


def _number(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ProtocolError(f"remarks: expected the cost of a function, found {text[:80]!r}")
    return value
