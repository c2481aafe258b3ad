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

SPIN = """
static unsigned spin(unsigned n) {
  unsigned x = n;
  for (unsigned i = 0; i < n; i++) x = (x * 31u) ^ (x >> 7) ^ i;
  return x;
}
"""
"""Runs n times what takes few bytes, so that nothing else is hot by a profile."""
WARM_WORK = f"""
{OFTEN}
{ONCE}
{SPIN}
static unsigned loop(unsigned n) {{
  unsigned sum = 0;
  for (unsigned i = 0; i < n; i++) sum += often(i);
  return sum;
}}
__attribute__((noinline)) unsigned work(unsigned n) {{
  return loop(n) + once(n) + spin(n * 200) + (n > 9999999 ? often(n * 3) + once(n * 5) : 0);
}}
unsigned rarely(unsigned n) {{ return once(n) + once(n + 1) + often(n); }}
"""
"""A module in which a call pays that runs 5,000 times, but is not hot enough for clang with a profile."""
