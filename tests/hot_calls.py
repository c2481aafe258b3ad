"""Functions in C for programs whose hot calls are known: too large for the inliner at -O2, and cheap to run."""

STEPS = "  x = (x * 31u) ^ (x >> 5) ^ (x << 3);\n"
OFTEN = f"unsigned often(unsigned x) {{\n{STEPS * 17}  return x;\n}}\n"
ONCE = OFTEN.replace("often", "once")
SUM = """
__attribute__((noinline)) unsigned work(unsigned n) {
  unsigned sum = 0;
  for (unsigned i = 0; i < n; i++) sum += often(i);
  return sum;
}
"""
"""Calls `often` n times."""
WORK = f"""
{OFTEN}
{ONCE}
{SUM}
unsigned rarely(unsigned n) {{ return once(n) + once(n + 1) + often(n); }}
"""
"""A module of a program."""
MAIN = """
#include <stdio.h>
unsigned work(unsigned n), rarely(unsigned n);
int main(void) { printf("%u %u\\n", work(9000), rarely(3)); }
"""
"""Its other part."""
