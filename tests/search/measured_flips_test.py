"""Flips of a program that runs: what the flip of a hot call saves is what the program runs less."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Profile
from compiler_opt.problems import problem as problems
from compiler_opt.search.measured import Cost
from compiler_opt.search.measured_flips import measured_flips
from tests.hot_calls import OFTEN, SUM
from tests.small_corpus import make_corpus

WORK = f"""
{OFTEN}
{SUM}
unsigned rarely(unsigned n) {{ return often(n) + 7; }}
"""
MAIN = """
int printf(const char *, ...);
unsigned work(unsigned n), rarely(unsigned n);
int main(void) { printf("%u %u\\n", work(3000), rarely(3)); }
"""
BYTES_PER_PERCENT = 10_000.0


def test_gains_are_bytes_and_what_runs_less(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/main.c": MAIN, "p/work.c": WORK}, "O2")
    toolchain = with_plugin_features(toolchain, plugin_features.ALL)
    benchmark = Benchmark.of(["./bench"])
    known: dict[int, bytes] = {}
    instructions: list[int] = []

    def run(objects: Mapping[int, Path]) -> Profile:
        known.update({module: path.read_bytes() for module, path in objects.items()})
        paths = [tmp_path / f"linked-{module}.o" for module in sorted(known)]
        for path, module in zip(paths, sorted(known), strict=True):
            path.write_bytes(known[module])
        subprocess.run([toolchain.clang, *paths, "-o", tmp_path / "bench"], check=True)
        profile = benchmark.measure(tmp_path, benchmark.reference(tmp_path))
        instructions.append(profile.total.instructions)
        return profile

    problem = problems.load("inlining")
    cost = Cost(lambda counts: counts.instructions, BYTES_PER_PERCENT, lambda file: file.endswith("/bench"))
    with WorkerPool(toolchain, problem, 1) as pool:
        flips = measured_flips(corpus.modules, pool, problem, toolchain, run, cost, tmp_path, rounds=4)
    # Both callers of `often` touch it, so they are flipped in turn.
    assert len(instructions) == 3 and len(flips) == 2
    assert flips.actions.tolist() == [1, 1] and flips.base_actions.tolist() == [0, 0]
    assert {flips.modules[owner] for owner in flips.owners} == {"p/work.c.o"}
    assert set(flips.features) >= {"callee_linkage", "caller_basic_block_count"}
    gains = np.sort(flips.gains)
    saved = max(instructions[0] - each for each in instructions[1:])
    # Inlined into the loop, `often` costs some hundred bytes of text, and saves 3,000 calls.
    assert saved > 3000
    assert gains[1] == pytest.approx(100 * BYTES_PER_PERCENT * saved / instructions[0], abs=700)
    assert -1000 < gains[0] < 100
