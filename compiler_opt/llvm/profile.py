"""LLVM's own profiles of programs that ran, by instrumentation of IR: what `-fprofile-generate` and llvm-profdata make.

module.with_flags(*use_options(path, toolchain.version))       # compiles with the profile, as -fprofile-use does
"""

import re
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import CorpusError
from compiler_opt.llvm import processes
from compiler_opt.llvm.toolchain import Toolchain

_LARGEST = re.compile(rb"^Maximum (?:function|internal block) count: (\d+)$", re.MULTILINE)
_IS_OF_IR = re.compile(rb"^Instrumentation level: IR\b", re.MULTILINE)


def use_options(path: Path, version: Sequence[int]) -> tuple[str, ...]:
    """Options of cc1, of this version, that compile with a profile."""
    if version[0] > 19:
        return f"-fprofile-instrument-use-path={path}", "-fprofile-instrument-use=llvm"
    return (f"-fprofile-instrument-use-path={path}",)


def largest_count(path: Path, toolchain: Toolchain) -> int:
    """How often the block of a profile ran that ran most.

    Raises:
      CorpusError: it is no profile by instrumentation of IR, is damaged, or nothing ran in it.
      ToolchainError: llvm-profdata is not installed.
    """
    command = [str(toolchain.tool("llvm-profdata")), "show", str(path)]
    result = processes.run(command)
    counts = list(map(int, _LARGEST.findall(result.stdout)))
    if not result.ok or not _IS_OF_IR.search(result.stdout) or not counts:
        reason = f"found another file: {result.describe()}" if not result.ok else "found another kind of profile"
        raise CorpusError(
            f"{path}: expected a profile that llvm-profdata merged from runs of a program built with "
            f"-fprofile-generate, {reason}; make it again with LLVM {toolchain.version[0]}"
        )
    if not max(counts):
        raise CorpusError(
            f"{path}: nothing ran in this profile; run the instrumented program, and merge what it writes"
        )
    return max(counts)
