"""Links with ThinLTO as distributed builds do: a thin link, a compiler for each module, then the final link.

CMake starts it in front of each link if CMAKE_C_LINKER_LAUNCHER and CMAKE_CXX_LINKER_LAUNCHER name it:

    distributed_link.py clang++ -flto=thin -O2 -shared -o libx.so a.o b.o ...

The linker must be lld. The backends' objects, with the bitcode that they compiled, and the indices are written to
`native/libx.so/` in the directory of the link.
"""

import shlex
import subprocess
import sys
from pathlib import Path

_EMBED = ("-mllvm", "-lto-embed-bitcode=post-merge-pre-opt")
_FOR_LINKERS = ("-flto", "-fuse-ld")


def link(command: list[str]) -> int:
    """Runs the link of a command that contains `-o`; returns the exit status of the step that failed, or 0."""
    output = command[command.index("-o") + 1]
    prefix = f"native/{output}/"
    listed = Path(f"{prefix}modules")
    listed.parent.mkdir(parents=True, exist_ok=True)
    thin = (f"--thinlto-index-only={listed}", f"--thinlto-prefix-replace=;{prefix}")
    if status := subprocess.call([*command, *(f"-Wl,{option}" for option in thin)]):
        return status
    # A driver's options of code generation: those that the link was given are those of the compilations.
    options = [word for word in command[1:] if word.startswith(("-O", "-m", "-f")) and not _is_for_linkers(word)]
    made = {}
    for native in listed.read_text().splitlines():
        bitcode = native.removeprefix(prefix)
        backend = ["-c", "-x", "ir", bitcode, f"-fthinlto-index={native}.thinlto.bc", *_EMBED, "-o", native]
        if status := subprocess.call([command[0], *options, *backend]):
            return status
        made[bitcode] = native
    return subprocess.call([made.get(word, word) for word in command if not word.startswith("-flto")])


def _is_for_linkers(word: str) -> bool:
    return word.startswith(_FOR_LINKERS)


def _words(arguments: list[str]) -> list[str]:
    """The words of a command; long ones come in a response file."""
    words: list[str] = []
    for argument in arguments:
        words += shlex.split(Path(argument[1:]).read_text()) if argument.startswith("@") else [argument]
    return words


if __name__ == "__main__":
    sys.exit(link(_words(sys.argv[1:])))
