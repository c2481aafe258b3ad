"""A small program whose hot and cold calls are known: two functions that are too large for the inliner at -O2."""

import json
from pathlib import Path

from tests.hot_calls import WARM_WORK

_BENCH = """
#include <stdio.h>
#include <stdlib.h>
unsigned work(unsigned n);
unsigned once(unsigned x);
unsigned often(unsigned x);
int main(int argc, char **argv) {
  printf("%u %u\\n", work(atoi(argc > 1 ? argv[1] : "5000")), once(3) ^ often(4));
}
"""


def database(source: Path) -> Path:
    """Writes the sources, and the compilation database of a build by hand; returns the latter's path."""
    source.mkdir(parents=True)
    entries = []
    for name, text in (("work", WARM_WORK), ("bench", _BENCH)):
        (source / f"{name}.c").write_text(text)
        command = f"cc -O1 -c {name}.c -o {name}.o"
        entries.append({"directory": str(source), "file": f"{name}.c", "command": command})
    path = source / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def link_command() -> str:
    return "cc bench.o work.o -o bench"
