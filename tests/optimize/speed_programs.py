"""Small programs of which is known what makes them fast: calls to inline, and options for single functions."""

import json
from collections.abc import Mapping
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
CALLS = {"work": WARM_WORK, "bench": _BENCH}
"""By file, sources with two functions that are too large for the inliner at -O2."""

LOOPS = {
    "work": """
unsigned many(const unsigned *a, const unsigned *b, const unsigned char *c, unsigned *d, int n, int m) {
  unsigned s = 0;
  for (int i = 1; i < n; i++)
    for (int j = 0; j < 6; j++) {
      unsigned x = a[i * m + j], y = b[(i - 1) * m + 2 * j], z = c[i + 3 * j], w = d[i * 2 + j];
      if (x & 1) s += y ^ z; else s -= w * z;
      d[i * 2 + j] = s ^ a[i + j] ^ b[j * m + i];
    }
  return s;
}
""",
    "bench": """
#include <stdio.h>
#include <stdlib.h>
unsigned many(const unsigned *a, const unsigned *b, const unsigned char *c, unsigned *d, int n, int m);
static void fill(unsigned *p, unsigned *q, int n) {
  for (int i = 0; i < n; i++) { p[i] = i * 7; q[i] = i ^ 5; }
}
int main(void) {
  int n = 3000, m = 7;
  unsigned *p = malloc(4 * (n + 9) * m), *q = malloc(4 * (n + 20) * m), *d = calloc(4, 2 * n + 99);
  unsigned char *s = calloc(1, n + 40);
  if (!p || !q || !d || !s) return 1;
  fill(p, q, n * m);
  for (int i = 0; i < n + 30; i++) s[i] = "ab Cd\\teF"[i & 7];
  printf("%u\\n", many(p, q, s, d, n - 20, m));
}
""",
}
"""A program in which one function executes less without loop strength reduction, and another one more."""


def database(source: Path, sources: Mapping[str, str] = CALLS) -> Path:
    """Writes the sources, and the compilation database of a build by hand; returns the latter's path."""
    source.mkdir(parents=True)
    entries = []
    for name, text in sources.items():
        (source / f"{name}.c").write_text(text)
        command = f"cc -O1 -c {name}.c -o {name}.o"
        entries.append({"directory": str(source), "file": f"{name}.c", "command": command})
    path = source / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def link_command() -> str:
    return "cc bench.o work.o -o bench"
