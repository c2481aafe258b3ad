"""LLVM's own profiles of programs that ran, by instrumentation of IR: what `-fprofile-generate` and llvm-profdata make.

check_runtime(toolchain)                                       # before anything is built
merge(raw_files, path, toolchain)                              # of runs of a program that was built to record them
module.with_flags(*use_options(path, toolchain.version))       # compiles with the profile, as -fprofile-use does
"""

import re
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import CompileError, CorpusError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain

_LARGEST = re.compile(rb"^Maximum (?:function|internal block) count: (\d+)$", re.MULTILINE)
_IS_OF_IR = re.compile(rb"^Instrumentation level: IR\b", re.MULTILINE)


def use_options(path: Path, version: Sequence[int]) -> tuple[str, ...]:
    """Options of cc1, of this version, that compile with a profile."""
    if version[0] > 19:
        return f"-fprofile-instrument-use-path={path}", "-fprofile-instrument-use=llvm"
    return (f"-fprofile-instrument-use-path={path}",)


def check_runtime(toolchain: Toolchain) -> None:
    """Raises ToolchainError if clang cannot link programs that record profiles."""
    with scratch_directory() as scratch:
        source = scratch / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        command = [str(toolchain.clang), f"--ld-path={toolchain.tool('ld.lld')}", "-x", "c", "-fprofile-generate"]
        result = processes.run([*command, str(source), "-o", str(scratch / "empty")])
    if not result.ok:
        raise ToolchainError(
            f"{toolchain.clang}: expected that it links programs with -fprofile-generate, found: {result.describe()}; "
            f"install the package libclang-rt-{toolchain.version[0]}-dev"
        )


def merge(raw: Sequence[Path], output: Path, toolchain: Toolchain) -> None:
    """Merges what instrumented programs have written into a profile.

    Raises:
      CompileError: a file is damaged, or there is none.
      ToolchainError: llvm-profdata is not installed.
    """
    unfinished = output.with_name(f"{output.name}.unfinished")
    command = [str(toolchain.tool("llvm-profdata")), "merge", *map(str, raw), "-o", str(unfinished)]
    result = processes.run(command, sandbox=Sandbox.for_folder(output.parent))
    if not result.ok:
        raise CompileError(f"{output}: profiles cannot be merged: {result.describe()}")
    unfinished.replace(output)


def largest_count(path: Path, toolchain: Toolchain) -> int:
    """How often the block of a profile ran that ran most.

    Raises:
      CorpusError: it is no profile by instrumentation of IR, is damaged, or nothing ran in it.
      ToolchainError: llvm-profdata is not installed.
    """
    command = [str(toolchain.tool("llvm-profdata")), "show", "--", str(path.absolute())]
    result = processes.run(command, sandbox=Sandbox.for_folder(None))
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
