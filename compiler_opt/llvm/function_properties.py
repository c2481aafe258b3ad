"""Counts instructions and callsites of a module by `opt -passes='print<func-properties>'`.

For each function, opt prints a line with its name and one `Property: number` per property on stderr (LLVM's
`FunctionPropertiesAnalysis.cpp`). The numbers describe the bitcode as it is, before optimisation.
"""

import dataclasses
import os
import re
import time
from pathlib import Path

from compiler_opt.errors import CompileError, ProtocolError
from compiler_opt.llvm import processes

MAX_OUTPUT_BYTES = 1 << 28
"""At some 300 bytes per function, a million functions: a mistake."""

_PROPERTIES = (
    re.compile(rb"^TotalInstructionCount: (\d{1,18})$", re.MULTILINE),
    re.compile(rb"^DirectCallsToDefinedFunctions: (\d{1,18})$", re.MULTILINE),
)
_FUNCTION = re.compile(rb"^Printing analysis results of CFA for function '", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ModuleCounts:
    """Totals of a module.

    Attributes:
      functions: defined functions.
      instructions: their instructions.
      call_sites: their calls of functions that the module defines, which could be inlined.
    """

    functions: int
    instructions: int
    call_sites: int


def count(opt: Path, bitcode: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S) -> ModuleCounts:
    """Counts the contents of a module by LLVM's `opt`, which must be at least as new as the bitcode.

    Raises:
      CompileError: opt fails or times out.
      ProtocolError: its output is not as expected.
      ToolchainError: it cannot be run.
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
    """Sums the printed properties; raises ProtocolError if one is not printed for every function."""
    functions = len(_FUNCTION.findall(text))
    instructions, calls = ([int(value) for value in pattern.findall(text)] for pattern in _PROPERTIES)
    if not functions == len(instructions) == len(calls):
        raise ProtocolError(
            f"function properties: expected TotalInstructionCount and DirectCallsToDefinedFunctions of {functions} "
            f"functions, found {len(instructions)} and {len(calls)}; use the opt of this LLVM"
        )
    return ModuleCounts(functions, sum(instructions), sum(calls))
