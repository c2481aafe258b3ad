"""Small C programs to measure, and their builds."""

import shutil
import subprocess
from pathlib import Path

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int hot(int x) {
  for (int i = 0; i < 20; i++) x = x * 31 + i;
  return x;
}
__attribute__((noinline)) int cold(int x) { return x ^ 77; }
int main(int argc, char **argv) {
  int n = atoi(argv[1]);
  if (n < 0) return 3;
  if (argc > 2) for (volatile int spin = 1; spin;) {}
  int sum = cold(n);
  for (int i = 0; i < n; i++) sum += hot(i);
  printf("%d %d\\n", n, sum);
}
"""
"""Calls `hot` as often as its argument says, and `cold` once; fails if it is negative; with two arguments it hangs."""


def built(folder: Path, source: str, *options: str, name: str = "bench") -> Path:
    """Compiles a program; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path, program = folder / f"{name}.c", folder / name
    path.write_text(source)
    clang = shutil.which("clang-22")
    assert clang is not None, "the tests need clang-22; ./run_tests.sh installs it"
    subprocess.run([clang, "-O1", *options, str(path), "-o", str(program)], check=True)
    return program
