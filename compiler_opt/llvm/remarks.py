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
"""

import dataclasses
import re

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


def parse_call_sites(remarks: bytes) -> CallSites:
    """Reads the remarks of one compilation.

    Remarks without a callee are about no decision (`ForceStop`: the module has grown too much for the advisor to be
    asked).
    Whoever calls compares the number with that of the decisions.

    Raises:
      ProtocolError: a name is not what YAML allows.
    """
    found = [site for record in remarks.split(b"\n--- ") if (site := _call_site(record)) is not None]
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
