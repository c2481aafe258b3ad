"""A compiler launcher of CMake: the front end runs once for each translation unit, then each way compiles its bitcode.

    python bitcode_launcher.py BITCODE_FOLDER COMPILER PLAIN_COMPILER -O... -o OUTPUT -c SOURCE

PLAIN_COMPILER makes BITCODE_FOLDER/OUTPUT.bc, with no pass of LLVM's run, unless it is there; COMPILER makes the object
from it, with the same options. Beside both files, FILE.cpu has the user and system seconds of its compiler. Sources
must not change meanwhile: no dependencies on headers are recorded.

A build starts this often, so it imports little.
"""

import os
import sys
from pathlib import Path

CPU_SUFFIX = ".cpu"
_DEPENDENCIES = {"-MD": 1, "-MT": 2, "-MF": 2}
"""Options that are left out, and how many words each takes."""


def main(folder: str, compiler: str, *command: str) -> int:
    """Compiles; returns the exit status."""
    words: list[str] = []
    index = 0
    while index < len(command):
        if skipped := _DEPENDENCIES.get(command[index], 0):
            index += skipped
        else:
            words.append(command[index])
            index += 1
    start = words.index("-o")
    output, source = words[start + 1], words[-1]
    options = [*words[1:start], *words[start + 2 : -1]]
    bitcode = Path(folder, f"{output}.bc")
    if not bitcode.exists():
        bitcode.parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{bitcode}.{os.getpid()}"
        early = ["-Xclang", "-disable-llvm-passes", "-emit-llvm"]
        if status := _run([words[0], *options, source, *early, "-o", unfinished], f"{bitcode}"):
            return status
        Path(unfinished).replace(bitcode)
    # What only the front end reads is of no use here.
    return _run([compiler, *options, f"{bitcode}", "-Wno-unused-command-line-argument", "-o", output], output)


def _run(command: list[str], output: str) -> int:
    """Runs a compiler; writes its seconds beside the output, and returns its exit status."""
    _, status, usage = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
    if status:
        return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1
    Path(f"{output}{CPU_SUFFIX}").write_text(f"{usage.ru_utime + usage.ru_stime:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
