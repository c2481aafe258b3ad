"""A small corpus of real code, made on the spot by a tested compiler."""

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.extract import extract
from tests.made_once import made_once

SHARED = """
template <class T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
template <class T> T sum(const T *items, int n) {
  T t = 0;
  for (int i = 0; i < n; i++) t += clamp(items[i], T(1), T(9));
  return t;
}
inline int twice(int x) { return x * 2 + sum(&x, 1); }
"""
SOURCES = {
    "shapes/area.cpp": SHARED
    + "int area(const int *a, int n) { return twice(sum(a, n)) + twice(n) + clamp(n, 2, 5); }",
    "shapes/edge.cpp": SHARED + "int edge(const int *a, int n) { return sum(a, n) * twice(sum(a + 1, n - 1)); }",
    "plain/list.c": """
struct node { struct node *next; int value; };
static int value_of(const struct node *n) { return n ? n->value : -1; }
int last(struct node *n) { while (n && n->next) n = n->next; return value_of(n); }
int both(struct node *a, struct node *b) { return value_of(a) + value_of(b) + last(a) + last(b); }
""",
    "plain/data.c": "const int table[] = {1, 2, 3}; int scale = 2;",
}

_LOOP = """
int use(int *);
int NAME(int *a, int n, int *b, int *c, int *d) {
  int s = n;
  for (int i = 0; i < n; i++) {
    int x = a[i] * 3, y = b[i] + x, z = c[i] ^ y, w = d[i] | z;
    int q = a[i + 1] * 7, r = b[i + 2] - q, t = c[i + 3] * r, u = d[i + 4] + t;
    CALL
    a[i] = x + y + z; b[i] = w + q; c[i] = s; d[i] = x ^ q ^ w ^ u ^ r;
  }
  return s;
}
"""
_SUM = """
long NAME(const long *p, long n) {
  long a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7], i = p[8], j = p[9], k = p[10];
  while (n-- > 0) {
    a += b * c; b ^= c + d; c -= d * e; d |= e + f; e += f * g; f ^= g + h; g -= h * i; h += i * j; i ^= j + k;
    j -= k * a; k += a ^ n;
  }
  return a + b + c + d + e + f + g + h + i + j + k;
}
"""


def _busy(template: str, *names: str, call: str = "s += use(&a[i]) + x * y * z * w * q * r * t * u;") -> str:
    return "".join(template.replace("NAME", name).replace("CALL", call) for name in names)


BUSY_SOURCES = {
    "loops/called.c": _busy(_LOOP, "called", "again"),
    "loops/alone.c": _busy(_LOOP, "alone", call="s += x * y * z * w * q * r * t * u;"),
    "mixed/sums.c": _busy(_SUM, "sums", "more"),
    "mixed/both.c": _busy(_LOOP, "looped") + _busy(_SUM, "summed"),
    "mixed/easy.c": "int easy(int x) { return x + 1; }",
}
"""In `easy.c` nothing is decided."""


def make_small_corpus(root: Path, clang: str) -> Corpus:
    """Projects `shapes` (C++, with functions that both objects carry) and `plain` (C, a module without decisions)."""
    return make_corpus(root, clang, SOURCES)


def make_busy_corpus(root: Path, clang: str) -> Corpus:
    """Projects `loops` and `mixed` at -O2, in which registers run short."""
    return make_corpus(root, clang, BUSY_SOURCES, level="O2")


def make_embedded_corpus(
    root: Path, clang: str, sources: Mapping[str, str], *, target: str, level: str = "Oz"
) -> Corpus:
    """A corpus for a target, with the options that clang records: extracted from objects with embedded bitcode."""
    objects = []
    for name, text in sources.items():
        source = root / "build" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        options = [f"--target={target}", f"-{level}", "-Xclang", "-fembed-bitcode=all"]
        subprocess.run([clang, *options, "-c", name, "-o", f"{name}.o"], cwd=root / "build", check=True)
        objects.append(ObjectFile(Path(f"{source}.o"), f"{name}.o"))
    extraction = extract(objects, root / "corpus")
    assert extraction.failures == ()
    return Corpus.load(root / "corpus")


def make_corpus(
    root: Path, clang: str, sources: Mapping[str, str], level: str = "Oz", options: Sequence[str] = ()
) -> Corpus:
    """A corpus of `PROJECT/FILE` to its text; `options` are for making its bitcode."""
    for name, text in sources.items():
        source = root / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        language = "c" if source.suffix == ".c" else "c++"
        recorded = ["-cc1", f"-{level}", "-x", language, "-main-file-name", source.name, "-funwind-tables=2"]
        Path(f"{source}.o.cmd").write_bytes(b"".join(option.encode() + b"\0" for option in recorded))
        making = ["-Xclang", "-disable-llvm-passes", f"-{level}", "-emit-llvm", "-c", name, "-o", "-"]
        command = [clang, *options, *making]
        bitcode = made_once(functools.partial(_output, command, root), [*command, text])
        Path(f"{source}.o.bc").write_bytes(bitcode)
    names = [f"{name}.o" for name in sources]
    projects = list(dict.fromkeys(name.split("/")[0] for name in sources))
    (root / "corpus_description.json").write_text(
        json.dumps({"modules": names, "has_thinlto": False, "projects": projects})
    )
    return Corpus.load(root)


def _output(command: Sequence[str], directory: Path) -> bytes:
    return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True).stdout
