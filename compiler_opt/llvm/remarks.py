"""Parses optimisation remarks: the call sites of inlining decisions, and what register allocation costs each function.

The channel sends features without names. The remarks of the pass `inline-ml` name the caller and the callee of every
decision, in the channel's order:

    --- !Passed
    Pass:            inline-ml
    Name:            InliningSuccess
    DebugLoc:        { File: a.c, Line: 3, Column: 10 }      (only with debug information)
    Function:        caller
    Args:
      - Callee:          callee
      - <every feature>: '<value>'
    ...

A remark repeats all features in some 1,500 bytes of YAML, and a general parser would take longer for a module's remarks
than the compiler for the module. Only the three lines of interest are parsed; quoted names go to PyYAML.

Calls that must be inlined (`always_inline`) are not decisions. Nearly all are inlined earlier, but the inliner writes
remarks for the rest, such as those of split coroutines. They are recognised by repeating the features of the preceding
decision.

The remarks of the pass `regalloc` have a function's costs, unless they are all 0 (`RAGreedy::reportStats` in
`llvm/lib/CodeGen/RegAllocGreedy.cpp`):

    --- !Missed
    Pass:            regalloc
    Name:            SpillReloadCopies          (the function's total; LoopSpillReloadCopies is part of it)
    DebugLoc:        { File: a.c, Line: 3, Column: 10 }      (only with debug information)
    Function:        name
    Args:
      - NumSpills:       '9'
      - TotalSpillsCost: '8.312500e+01'         (spills, weighted by block frequency relative to the entry)
      ...
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping

import numpy as np
import yaml

from compiler_opt.errors import ProtocolError

INLINING_PASS = "inline-ml"
REGALLOC_PASS = "regalloc"

_REMARK = re.compile(
    rb"[^\n]*\n"
    rb"Pass: [^\n]*\n"
    rb"Name: +(\w+)\n"
    rb"(?:DebugLoc: [^\n]*\n(?: [^\n]*\n)*)?"
    rb"Function: +([^\n]+)\n"
    rb"Args: *\n"
    rb" +- Callee: +([^\n]+)\n"
)
_FEATURE = re.compile(rb"^  - (\w+): +'(-?\d+)'$", re.MULTILINE)
_INLINED = (b"InliningSuccess", b"InliningSuccessWithCalleeDeleted")

_Record = tuple[bytes, tuple[bytes, bytes, bytes]]
"""A remark, with its outcome, caller and callee, unparsed."""


@dataclasses.dataclass(frozen=True)
class CallSites:
    """The call sites of T decisions, in order.

    Attributes:
      functions: distinct names.
      callers: `[T]` int32, index into `functions`.
      callees: `[T]` int32, index into `functions`.
      inlined: `[T]` bool, whether the call was inlined in the end.
      bodies: `[T]` uint64, fingerprint of the caller's IR before any inlining; None over the channel.
      replayed: `[T]` bool, whether the advice was taken from a decision file; None if there was none.
    """

    functions: tuple[str, ...]
    callers: np.ndarray
    callees: np.ndarray
    inlined: np.ndarray
    bodies: np.ndarray | None = None
    replayed: np.ndarray | None = None


def options(path: str, passes: str = INLINING_PASS) -> list[str]:
    """The cc1 options for writing the remarks of `passes` (a regular expression) to `path`."""
    return ["-opt-record-file", path, "-opt-record-passes", passes, "-opt-record-format", "yaml"]


def opt_options(path: str, passes: str = INLINING_PASS) -> list[str]:
    """The same as `options`, for `opt`."""
    return [f"-pass-remarks-output={path}", f"-pass-remarks-filter={passes}", "-pass-remarks-format=yaml"]


def parse_call_sites(remarks: bytes, features: Mapping[str, np.ndarray], advice: np.ndarray) -> CallSites:
    """Parses the remarks of one compilation, whose T decisions have features (`[T, ...]` by name) and advice (`[T]`).

    Remarks without a callee belong to no decision (`ForceStop`: the module is too big to ask the advisor).

    Raises:
      ProtocolError: a name is not valid YAML, or the remarks do not match the decisions.
    """
    matches = ((record, _REMARK.match(record)) for record in remarks.split(b"\n--- "))
    records: list[_Record] = [(record, (match[1], match[2], match[3])) for record, match in matches if match]
    if len(records) > len(advice):
        records = _drop_forced(records, features, advice)
    if len(records) != len(advice):
        raise ProtocolError(f"remarks: expected {len(advice)}, one per decision, found {len(records)}")
    found = [site for _, site in records]
    index: dict[bytes, int] = {}
    callers = np.fromiter((index.setdefault(caller, len(index)) for _, caller, _ in found), np.int32, len(found))
    callees = np.fromiter((index.setdefault(callee, len(index)) for _, _, callee in found), np.int32, len(found))
    inlined = np.fromiter((name in _INLINED for name, _, _ in found), np.bool_, len(found))
    return CallSites(tuple(function_name(scalar) for scalar in index), callers, callees, inlined)


def _drop_forced(records: list[_Record], features: Mapping[str, np.ndarray], advice: np.ndarray) -> list[_Record]:
    """Drops the remarks of calls that had to be inlined; raises ProtocolError unless the rest match the decisions.

    Features change only with a decision, so the first of several remarks with the same features belongs to one.
    """
    if not len(advice):
        return []
    repeated = [dict(_FEATURE.findall(record)) for record, _ in records]
    names = [name for name, column in features.items() if column.dtype.kind == "i" and name.encode() in repeated[0]]
    observed = np.stack([features[name].reshape(len(advice)) for name in names], axis=1).tolist()
    decided = [(tuple(values), len(list(run))) for values, run in itertools.groupby(observed)]
    numbers = [tuple(int(values.get(name.encode(), 0)) for name in names) for values in repeated]
    remarked = [
        (values, [record for _, record in run])
        for values, run in itertools.groupby(zip(numbers, records, strict=True), key=lambda pair: pair[0])
    ]
    forced: set[bytes] = set()  # callees
    if remarked[0][0] != decided[0][0]:  # before the first decision
        forced |= {callee for _, (_, _, callee) in remarked.pop(0)[1]}
    if [values for values, _ in remarked] != [values for values, _ in decided]:
        raise ProtocolError("the remarks do not match the decisions")
    free: set[bytes] = set()
    for (_, run), (_, length) in zip(remarked, decided, strict=True):
        certain = len(run) if len(run) == length else 1
        free |= {callee for _, (_, _, callee) in run[:certain]}
        if length == 1:
            forced |= {callee for _, (_, _, callee) in run[1:]}
    kept: list[_Record] = []
    for (_, run), (_, length) in zip(remarked, decided, strict=True):
        certainly = [run[0], *(record for record in run[1:] if record[1][2] in free)]
        possibly = [run[0], *(record for record in run[1:] if record[1][2] not in forced)]
        kept += run[:1] if length == 1 else certainly if len(certainly) == length else possibly
    return kept


def function_name(scalar: bytes) -> str:
    """The function name in a YAML scalar; raises ProtocolError if it is not valid YAML."""
    if scalar[:1] in b"'\"":
        try:
            value = yaml.safe_load(scalar.decode())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ProtocolError(f"remarks: expected the name of a function, found {scalar[:80]!r}") from error
        return str(value)
    return scalar.decode("utf-8", "surrogateescape")


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
