"""What LLVM counts in the functions of a module: `opt -passes='print<func-properties>'`, one process for a module.

Per function it prints a line with the name and one `Property: number` for each property, on stderr (LLVM's
`FunctionPropertiesAnalysis.cpp`). Numbers are of the bitcode as it is, before optimisation.
"""

import dataclasses
import os
import re
import time
from pathlib import Path

from compiler_opt.errors import CompileError, ProtocolError
from compiler_opt.llvm import processes

MAX_OUTPUT_BYTES = 1 << 28
"""Some 300 bytes a function: a module of a million functions is a mistake."""

_PROPERTY = re.compile(rb"^(TotalInstructionCount|DirectCallsToDefinedFunctions): (\d{1,18})$", re.MULTILINE)
_FUNCTION = re.compile(rb"^Printing analysis results of CFA for function '", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ModuleCounts:
    """Totals of a module.

    Attributes:
      functions: that it defines.
      instructions: in them.
      call_sites: calls in them of functions that the module defines: those that can be inlined.
    """

    functions: int
    instructions: int
    call_sites: int


def count(opt: Path, bitcode: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S) -> ModuleCounts:
    """Counts what is in a module.

    Args:
      opt: the program, at least as new as the bitcode.
      bitcode: the file.
      timeout_s: wall-clock seconds it may take.

    Raises:
      CompileError: it fails, or takes too long.
      ProtocolError: it prints something else.
      ToolchainError: the program cannot be run.
    """
    command = [str(opt), "-passes=print<func-properties>", "-disable-output", str(bitcode)]
    with (
        os.fdopen(os.memfd_create("properties", os.MFD_CLOEXEC), "w+b") as output,
        processes.start(command, stderr=output, max_stderr_bytes=MAX_OUTPUT_BYTES) as child,
    ):
        in_time = processes.wait_for_exit(child, time.monotonic() + timeout_s)
        if not in_time:
            child.kill()
        result = child.wait(timed_out=not in_time)
        if result.overflowed:
            raise ProtocolError(f"{bitcode}: {opt} printed more than {MAX_OUTPUT_BYTES} bytes about its functions")
        if not result.ok:
            raise CompileError(f"{bitcode}: {result.describe()}")
        output.seek(0)
        return parse(output.read())


def parse(text: bytes) -> ModuleCounts:
    """Adds up what was printed.

    Raises:
      ProtocolError: it is not about as many functions as it says.
    """
    functions = len(_FUNCTION.findall(text))
    totals = {b"TotalInstructionCount": 0, b"DirectCallsToDefinedFunctions": 0}
    seen = dict.fromkeys(totals, 0)
    for name, value in _PROPERTY.findall(text):
        totals[name] += int(value)
        seen[name] += 1
    if any(number != functions for number in seen.values()):
        raise ProtocolError(
            f"function properties: expected {' and '.join(name.decode() for name in totals)} of {functions} functions, "
            f"found {' and '.join(map(str, seen.values()))}; is it another opt?"
        )
    return ModuleCounts(functions, totals[b"TotalInstructionCount"], totals[b"DirectCallsToDefinedFunctions"])
