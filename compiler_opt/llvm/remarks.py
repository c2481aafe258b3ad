"""Who called whom: caller, callee and outcome of each inlining decision, from the compiler's optimisation remarks.

The channel sends features without names. The remarks of the pass `inline-ml` name every decision, in the channel's
order:

    --- !Passed
    Pass:            inline-ml
    Name:            InliningSuccess
    DebugLoc:        { File: a.c, Line: 3, Column: 10 }      (only with debug information)
    Function:        caller
    Args:
      - Callee:          callee
      - <every feature>: '<value>'
    ...

A remark repeats all features, some 1,500 bytes of YAML; a general parser takes longer over a module's remarks than the
compiler takes over the module. Only the three lines of interest are looked at; a quoted name goes to PyYAML.

Calls that must be inlined (`always_inline`) are no decisions, but those that the inliner still meets have remarks all
the same: nearly all are gone before, except those that coroutines make when they are split. Their remarks repeat the
features of the decision before, by which they are told apart.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping

import numpy as np
import yaml

from compiler_opt.errors import ProtocolError

REMARK_PASS = "inline-ml"

_REMARK = re.compile(
    rb"^Name: +(\w+)\n"
    rb"(?:DebugLoc: [^\n]*\n(?: [^\n]*\n)*)?"
    rb"Function: +([^\n]+)\n"
    rb"Args: *\n"
    rb" +- Callee: +([^\n]+)\n",
    re.MULTILINE,
)
_CALLEE = b"  - Callee: "
_FEATURE = re.compile(rb"^  - (\w+): +'(-?\d+)'$", re.MULTILINE)
_INLINED = (b"InliningSuccess", b"InliningSuccessWithCalleeDeleted")


@dataclasses.dataclass(frozen=True)
class CallSites:
    """The call sites that were decided on, T of them, in the order of the decisions.

    Attributes:
      functions: the names that occur, each once.
      callers: `[T]` int32, index into `functions`.
      callees: `[T]` int32, index into `functions`.
      inlined: `[T]` bool, whether the call was inlined in the end.
    """

    functions: tuple[str, ...]
    callers: np.ndarray
    callees: np.ndarray
    inlined: np.ndarray


def options(path: str, passes: str = REMARK_PASS) -> list[str]:
    """The cc1 options that make the compiler write the remarks of `passes` (a regular expression) to `path`."""
    return ["-opt-record-file", path, "-opt-record-passes", passes, "-opt-record-format", "yaml"]


def opt_options(path: str, passes: str = REMARK_PASS) -> list[str]:
    """The same for `opt`."""
    return [f"-pass-remarks-output={path}", f"-pass-remarks-filter={passes}", "-pass-remarks-format=yaml"]


def parse_call_sites(remarks: bytes, features: Mapping[str, np.ndarray], advice: np.ndarray) -> CallSites:
    """Reads the remarks of one compilation.

    Remarks without a callee are about no decision (`ForceStop`: the module has grown too much for the advisor to be
    asked).

    Args:
      remarks: as the compiler wrote them.
      features: of the T decisions that they are about, `[T, ...]` by name.
      advice: `[T]`, what was decided.

    Raises:
      ProtocolError: a name is not what YAML allows, or the remarks are not about those decisions.
    """
    records = [(record, site) for record in remarks.split(b"\n--- ") if (site := _call_site(record)) is not None]
    if len(records) > len(advice):
        records = _about_decisions(records, features, advice)
    if len(records) != len(advice):
        raise ProtocolError(f"{len(advice)} decisions but {len(records)} remarks about them")
    found = [site for _, site in records]
    index: dict[bytes, int] = {}
    callers = np.fromiter((index.setdefault(caller, len(index)) for _, caller, _ in found), np.int32, len(found))
    callees = np.fromiter((index.setdefault(callee, len(index)) for _, _, callee in found), np.int32, len(found))
    inlined = np.fromiter((name in _INLINED for name, _, _ in found), np.bool_, len(found))
    return CallSites(tuple(function_name(scalar) for scalar in index), callers, callees, inlined)


def _call_site(record: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Outcome, caller and callee of one remark, as written."""
    # Without debug information these are its third to sixth line; a regular expression would take five times as long.
    lines = record.split(b"\n", 6)
    if len(lines) == 7 and lines[3].startswith(b"Function: "):
        if not lines[5].startswith(_CALLEE):
            return None
        return lines[2][6:].strip(), lines[3][10:].strip(), lines[5][len(_CALLEE) :].strip()
    match = _REMARK.search(record)
    return (match[1], match[2], match[3]) if match else None


_Record = tuple[bytes, tuple[bytes, bytes, bytes]]
"""A remark; and its outcome, caller and callee."""


def _about_decisions(records: list[_Record], features: Mapping[str, np.ndarray], advice: np.ndarray) -> list[_Record]:
    """Leaves out the remarks about calls that had to be inlined.

    Features change with a decision only, so of the remarks that repeat the same features the first is about one.

    Raises:
      ProtocolError: the remarks are about other decisions, or it cannot be told which are about decisions.
    """
    if not len(advice):
        return []
    repeated = [dict(_FEATURE.findall(record)) for record, _ in records]
    names = [name for name, column in features.items() if column.dtype.kind == "i" and name.encode() in repeated[0]]
    told = np.stack([features[name].reshape(len(advice)) for name in names], axis=1).tolist()
    decided = [(tuple(values), len(list(run))) for values, run in itertools.groupby(told)]
    numbers = [tuple(int(values.get(name.encode(), 0)) for name in names) for values in repeated]
    remarked = [
        (values, [record for _, record in run])
        for values, run in itertools.groupby(zip(numbers, records, strict=True), key=lambda pair: pair[0])
    ]
    forced: set[bytes] = set()  # callees
    if remarked[0][0] != decided[0][0]:  # before the first decision
        forced |= {callee for _, (_, _, callee) in remarked.pop(0)[1]}
    if [values for values, _ in remarked] != [values for values, _ in decided]:
        raise ProtocolError("the remarks are not about the decisions that were made")
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
    """The name that a YAML scalar stands for.

    Raises:
      ProtocolError: it is not what YAML allows.
    """
    if scalar[:1] in b"'\"":
        try:
            value = yaml.safe_load(scalar.decode())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ProtocolError(f"remarks: expected the name of a function, found {scalar[:80]!r}") from error
        return str(value)
    return scalar.decode("utf-8", "surrogateescape")
