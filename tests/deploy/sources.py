"""Programs that the tests compile, and a policy that does better than the compiler on one, worse on another."""

from pathlib import Path

import numpy as np

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights

LEAN = """
struct box { int kind; int a[3]; };
static int area(const struct box *b, int scale) {
  int t = 0;
  switch (b->kind) {
    case 0: t = b->a[0] * scale; break;
    case 1: t = b->a[0] * b->a[1] + scale; break;
    case 2: t = b->a[0] * b->a[1] * b->a[2] - scale; break;
    default: t = b->a[2] / 3 + b->a[1] / 5 + b->a[0] / 7;
  }
  return t;
}
int unit(void) { struct box b = {0, {2, 3, 4}}; return area(&b, 1); }
int flat(void) { struct box b = {1, {2, 3, 4}}; return area(&b, 2); }
int cube(void) { struct box b = {2, {2, 3, 4}}; return area(&b, 3); }
"""
"""The policy inlines `area`, which then folds to a constant each time; the compiler does not."""

FAT = """
extern int g(int, int);
static int work(int k, int x) {
  int t = g(x, k) + g(k, x) * 3;
  for (int i = 0; i < x; i++) t += g(t, i) ^ g(i, t + x) ^ k;
  return t + g(t, t) + g(x + t, k - t);
}
int a(int x) { return work(1, x); }
int b(int x) { return work(2, x); }
int c(int x) { return work(3, x); }
int d(int x) { return work(4, x); }
"""
"""The policy inlines `work` four times."""

SWITCH = """
extern void g0(void), g1(void), g2(void), g3(void), g4(int), g5(int, int);
void act(int c) {
  switch (c) {
    case 0: g0(); break; case 1: g1(); break; case 2: g2(); break; case 3: g3(); break; case 4: g4(c); break;
    case 5: g5(c, 1); g0(); break; case 6: g4(7); g1(); break; default:;
  }
}
int sum(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * p[n - i]; return s; }
int weigh(const char *text, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) { if (text[i] > 3 && text[i] < 90) s += text[i] * 3; else s -= text[i]; }
  return s;
}
"""
"""Each of the options in the tests of pass options changes how one of these is compiled."""

_CALLEES = [f"g{i}(void) {{ seen += {i + 1}" for i in range(4)]
_CALLEES += ["g4(int x) { seen ^= x", "g5(int x, int y) { seen *= x + y"]
MAIN = "volatile int seen;\n" + "".join(f"__attribute__((noinline)) void {each}; }}\n" for each in _CALLEES)
MAIN += "void act(int);\nint main(int n, char **a) { (void)a; act(n); return 0; }\n"
"""A program that calls `act`."""

JUMPS = "-min-jump-table-entries"
"""With a value, an option that changes `act`."""


def save_policy(directory: Path) -> NetworkWeights:
    """A policy that inlines whatever is given a constant, and decides about the rest in some tangled way."""
    rng = np.random.default_rng(3)
    width = 16
    kernel = rng.normal(0, 0.3, (len(TRANSFORMS) * len(FEATURES), width)).astype(np.float32)
    output = rng.normal(0, 0.5, (width, 2)).astype(np.float32)
    constants = len(TRANSFORMS) * FEATURES.index("nr_ctant_params")
    kernel[:, 0] = 0
    kernel[constants, 0] = 1
    output[0] = -20, 20
    quantiles = tuple(
        np.ones(1) if name == "nr_ctant_params" else np.unique(np.round(np.exp(rng.uniform(0, 6, 20))))
        for name in FEATURES
    )
    biases = (np.zeros(width, np.float32), np.zeros(2, np.float32))
    weights = NetworkWeights(FEATURES, quantiles, (kernel, output), biases, {"problem": "inlining"})
    weights.save(directory)
    return weights
