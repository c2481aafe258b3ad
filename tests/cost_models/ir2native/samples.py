"""Made-up functions with known sizes, and a small module of real code."""

from pathlib import Path

import numpy as np

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.ir2native.dataset import Dataset, ModuleFunctions
from compiler_opt.cost_models.ir2native.functions import FunctionSizes
from tests.small_corpus import make_corpus

SOURCE = """
struct Shape { virtual ~Shape(); virtual int area() const; int side; };
int Shape::area() const { return side * side; }
Shape::~Shape() {}
extern "C" int printf(const char *, ...);
static int helper(int x) { return x * 7 + 1; }
int sum(const int *items, int n) {
  int total = 0;
  for (int i = 0; i < n; i++) total += helper(items[i]);
  return total;
}
int choose(int x) {
  switch (x) { case 1: return 10; case 2: return 25; case 3: return 3; case 4: return 99; case 5: return -1; }
  return x;
}
template <class T> T twice(T x) { return x + x; }
double floats(double x, float y) { return twice(x) * y + 0.5; }
int caught(const Shape *shape) { try { return shape->area(); } catch (int x) { printf("%d", x); return x; } }
"""


def make_module(root: Path, clang: str, level: str = "Oz") -> Module:
    corpus = make_corpus(root, clang, {"real/code.cpp": SOURCE}, level, ["-fPIC"])
    return corpus.modules[0]


def made_up(seed: int = 0, projects: int = 6, modules: int = 3, functions: int = 25) -> Dataset:
    """Functions of `tok.a` and `tok.b`, of 3 and 7 bytes each, and 5 more bytes; half as many where `flag.c` is set."""
    rng = np.random.default_rng(seed)
    found = []
    for project in range(projects):
        for number in range(modules):
            features, sizes = {}, {}
            for function in range(functions):
                name = f"f{project}_{number}_{function}"
                a, b, c = int(rng.integers(0, 40)), int(rng.integers(0, 30)), int(rng.integers(0, 2))
                features[name] = {
                    "fn": 1.0,
                    "tok.a": float(a),
                    "tok.b": float(b),
                    "flag.c": float(c),
                    "op": float(a + b),
                }
                sizes[name] = max(1, round((5 + 3 * a + 7 * b) * (0.5 if c else 1.0)))
            features[f"gone{project}_{number}"] = {"fn": 1.0, "tok.a": 1.0, "op": 1.0}
            module = Module(f"p{project}/m{number}.o", f"p{project}", Path("nowhere"))
            total = FunctionSizes(sizes, sum(sizes.values()))
            found.append(ModuleFunctions.make(module, features, total))
    return Dataset(found)


def corpus_of(root: Path, clang: str) -> Corpus:
    """Two projects of real code, and a module whose bitcode is damaged."""
    functions = "\n".join(
        f"int f{n}(int *a, int b) {{ int s = {n}; {'s += a[b] * b; ' * (n % 5)} a[{n}] = s; return s + b * {n}; }}"
        for n in range(30)
    )
    sources = {"one/a.c": functions, "one/b.cpp": SOURCE, "two/c.c": functions.replace("int b", "long b")}
    root.mkdir(parents=True, exist_ok=True)
    make_corpus(root, clang, sources)
    path = root / "one/b.cpp.o.bc"
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\xff" * 64 + content[middle + 64 :])
    return Corpus.load(root)
