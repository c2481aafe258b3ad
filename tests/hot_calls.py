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
