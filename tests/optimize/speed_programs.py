"""A small program whose hot and cold calls are known: two functions that are too large for the inliner at -O2."""

import json
from pathlib import Path

from tests.hot_calls import OFTEN, ONCE

_WORK = f"""
{OFTEN}
{ONCE}
static unsigned loop(unsigned n) {{
  unsigned sum = 0;
  for (unsigned i = 0; i < n; i++) sum += often(i);
  return sum;
}}
__attribute__((noinline)) unsigned work(unsigned n) {{
  return loop(n) + once(n) + (n > 9999999 ? often(n * 3) + once(n * 5) : 0);
}}
"""

_BENCH = """
#include <stdio.h>
#include <stdlib.h>
unsigned work(unsigned n);
unsigned once(unsigned x);
unsigned often(unsigned x);
int main(int argc, char **argv) {
  printf("%u %u\\n", work(atoi(argc > 1 ? argv[1] : "20000")), once(3) ^ often(4));
}
"""


def database(source: Path) -> Path:
    """Writes the sources, and the compilation database of a build by hand; returns the latter's path."""
    source.mkdir(parents=True)
    entries = []
    for name, text in (("work", _WORK), ("bench", _BENCH)):
        (source / f"{name}.c").write_text(text)
        command = f"cc -O1 -c {name}.c -o {name}.o"
        entries.append({"directory": str(source), "file": f"{name}.c", "command": command})
    path = source / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def link_command() -> str:
    return "cc bench.o work.o -o bench"
