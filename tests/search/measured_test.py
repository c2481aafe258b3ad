"""Builds of a program whose functions count what they cost: two real modules, under callgrind."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Profile
from compiler_opt.problems import problem as problems
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.measured import Cost, MeasuredCompiler
from tests.hot_calls import ONCE, STEPS, SUM
from tests.small_corpus import make_corpus

WORK = f"""
static unsigned inner(unsigned x) {{
{STEPS * 17}  return x;
}}
__attribute__((noinline)) unsigned again(unsigned x) {{ return inner(x) + inner(x + 1); }}
unsigned often(unsigned x) {{
{STEPS * 17}  return inner(x) + inner(x * 3);
}}
{ONCE}
{SUM}
__attribute__((noinline)) unsigned rarely(unsigned n) {{ return once(n) + once(n + 1) + often(n) + again(n); }}
"""
MAIN = """
int printf(const char *, ...);
unsigned work(unsigned n);
unsigned rarely(unsigned n);
int main(void) { printf("%u %u\\n", work(3000), rarely(3)); }
"""


class Program:
    """Links the program's objects, and measures it."""

    def __init__(self, folder: Path, toolchain: Toolchain):
        self._folder, self._toolchain = folder, toolchain
        self._benchmark = Benchmark.of(["./bench"])
        self._objects: dict[int, bytes] = {}

    def run(self, objects: Mapping[int, Path]) -> Profile:
        contents = {module: path.read_bytes() for module, path in objects.items()}
        self._objects = self._objects or contents
        paths = []
        for module, content in sorted({**self._objects, **contents}.items()):
            paths.append(self._folder / f"linked-{module}.o")
            paths[-1].write_bytes(content)
        subprocess.run([self._toolchain.clang, *paths, "-o", self._folder / "bench"], check=True)
        return self._benchmark.measure(self._folder, self._benchmark.reference(self._folder))


@pytest.fixture(name="corpus")
def corpus_fixture(tmp_path: Path, toolchain: Toolchain) -> Corpus:
    (tmp_path / "corpus").mkdir()
    return make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/main.c": MAIN, "p/work.c": WORK}, "O2")


@pytest.fixture(name="pool")
def pool_fixture(toolchain: Toolchain) -> Iterator[WorkerPool[ObjectSizes]]:
    with WorkerPool(toolchain, problems.load("inlining"), 1) as pool:
        yield pool


def own(file: str) -> bool:
    return file.endswith("/bench")


def test_calls_that_run_often_are_worth_bytes(
    tmp_path: Path, toolchain: Toolchain, corpus: Corpus, pool: WorkerPool[ObjectSizes]
) -> None:
    """`often` is too large for LLVM's threshold. It runs in `work`, which is hot; `rarely` calls it, too."""
    policy = DefaultPolicy(problems.load("inlining"))
    cost = Cost(lambda counts: counts.instructions, 1000.0, own)
    program = Program(tmp_path, toolchain)
    compiler = MeasuredCompiler(PoolCompiler(pool, corpus.modules, policy), program.run, cost, tmp_path)
    base = compiler.compile({0: {}, 1: {}})[1]
    assert isinstance(base, Compiled) and not any(base.inlined)
    inlined = compiler.compile({1: {site: 1 for site in base.sites if site.caller in ("work", "often")}})[1]
    assert isinstance(inlined, Compiled)
    # `work` has more code; but it makes no calls, which had cost more than that, priced in bytes.
    before, after = base.sizes.functions, inlined.sizes.functions
    assert after["work"] < 0 < before["work"]
    assert all(after[name] == before[name] for name in ("again", "once", "inner"))
