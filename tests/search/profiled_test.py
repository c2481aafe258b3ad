"""What a profile says that decisions cost is what callgrind counts, also of functions that several modules emit."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.corpus_programs import ProgramSource
from benchmarks.program_builds import ProgramBuilds
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.objectives import ProfiledObject
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Advice, Site
from compiler_opt.search.builds import Compiled, build_of, comdat_groups
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.profiled import CostWeights, ProfiledCompiler, profiled_pool, search_profiled
from compiler_opt.search.program import Program
from compiler_opt.search.search import SearchSettings
from tests.hot_calls import STEPS
from tests.small_corpus import make_corpus

pytestmark = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
"""Profiles need clang's runtime library, a package that ./run_tests.sh installs for the newest compiler."""

_SHARED = f"""
inline unsigned inner(unsigned x) {{
{STEPS * 27}  return x;
}}
inline unsigned shared(unsigned x) {{
{STEPS * 27}  return x + (x % 4 ? inner(x) : 0);
}}
extern "C" __attribute__((noinline)) unsigned NAME(unsigned n) {{
  unsigned sum = 0;
  for (unsigned i = 0; i < n; i++) sum += shared(i ^ sum) + inner(i);
  return sum;
}}
"""
_SPIN = """
__attribute__((noinline)) unsigned spin(unsigned n) {
  unsigned x = n;
  for (unsigned i = 0; i < n; i++) x = (x * 31u) ^ (x >> 7) ^ i;
  return x;
}
"""
_MAIN = """
#include <stdio.h>
unsigned one(unsigned n), two(unsigned n), spin(unsigned n);
int main(void) { printf("%u %u %u\\n", one(3000), two(900), spin(2000000)); }
"""
"""Nothing else than `spin` is so hot that clang inlines it by the profile."""
_BYTES_PER_PERCENT = 10_000.0


@pytest.fixture(scope="module")
def builds(toolchain: Toolchain, clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> ProgramBuilds:
    place = tmp_path_factory.mktemp("program")
    (place / "corpus").mkdir()
    sources = {f"mine/{name}.cpp": _SHARED.replace("NAME", name) for name in ("one", "two")}
    make_corpus(place / "corpus", clang_path, {**sources, "mine/spin.c": _SPIN}, level="O2")
    (place / "mine_bench.c").write_text(_MAIN)
    modules = [dataclasses.replace(m, trusted=True) for m in Corpus.load(str(place / "corpus")).modules]
    return ProgramBuilds(ProgramSource(place / "mine_bench.c"), modules, toolchain, place / "out")


@pytest.fixture(scope="module")
def weights(builds: ProgramBuilds, toolchain: Toolchain) -> CostWeights:
    costs = block_costs.load("instructions", toolchain)
    return CostWeights(builds.compiled_profile(), costs, _BYTES_PER_PERCENT)


@pytest.fixture(scope="module")
def pool(toolchain: Toolchain, weights: CostWeights) -> Iterator[WorkerPool[ProfiledObject]]:
    with profiled_pool(toolchain, weights, 1) as pool:
        yield pool


def _own_instructions(builds: ProgramBuilds, toolchain: Toolchain, decisions: Mapping[Site, Advice]) -> int:
    """What callgrind counts in the program with decisions."""
    folder = builds.folder / "decided"
    folder.mkdir(exist_ok=True)
    with WorkerPool(toolchain, PROBLEM, 1) as pool:
        compiler = PoolCompiler(pool, builds.profiled, DefaultPolicy(PROBLEM))
        objects = {number: folder / f"{number}.o" for number in range(len(builds.profiled))}
        compiled = compiler.compile(dict.fromkeys(objects, decisions), objects.__getitem__)
    assert all(isinstance(each, Compiled) for each in compiled.values())
    builds.link("decided", list(objects.values()))
    functions = builds.measure("decided", simulate=False).functions.items()
    return sum(counts.instructions for function, counts in functions if builds.is_own(function.object))


def _linked(compiled: Mapping[int, Compiled | str]) -> float:
    """Linked text, with what the functions cost."""
    found = {module: each for module, each in compiled.items() if isinstance(each, Compiled)}
    assert len(found) == len(compiled)
    groups = comdat_groups(found.values())
    return Program([build_of(each, module, groups) for module, each in found.items()]).linked_bytes


_CHOICES = {
    "nothing": lambda site: False,
    "inner": lambda site: "inner" in site.callee,
    "shared": lambda site: "shared" in site.callee,
    "shared in one": lambda site: "shared" in site.callee and site.caller == "one",
    "inner in the loops": lambda site: "inner" in site.callee and site.caller in ("one", "two"),
    "all": lambda site: True,
}


@pytest.mark.ci
@pytest.mark.parametrize(
    "choice", [pytest.param(each, marks=() if each in ("shared", "all") else pytest.mark.slow) for each in _CHOICES]
)
def test_callgrind_counts_the_same(
    choice: str, builds: ProgramBuilds, weights: CostWeights, pool: WorkerPool[ProfiledObject], toolchain: Toolchain
) -> None:
    compilers = [
        ProfiledCompiler(pool, builds.modules, dataclasses.replace(weights, bytes_per_percent=num_bytes))
        for num_bytes in (_BYTES_PER_PERCENT, 0.0)
    ]
    base = [compiler.compile({module: {} for module in range(3)}) for compiler in compilers]
    sites = [site for each in base[0].values() if isinstance(each, Compiled) for site in each.sites]
    assert {site.callee for site in sites} == {"_Z5innerj", "_Z6sharedj"}
    decisions = {site: 1 for site in sites if _CHOICES[choice](site)}
    found = [compiler.compile(dict.fromkeys(range(3), decisions)) for compiler in compilers]
    with_cost, text = (_linked(after) - _linked(before) for before, after in zip(base, found, strict=True))
    plain = _own_instructions(builds, toolchain, {})
    percent = 100 * (_own_instructions(builds, toolchain, decisions) - plain) / plain
    assert (with_cost - text) / _BYTES_PER_PERCENT == pytest.approx(percent, abs=0.01)
    if choice in ("shared", "all"):
        assert percent < -0.05


@pytest.mark.slow
def test_a_search_inlines_what_pays(
    builds: ProgramBuilds, weights: CostWeights, pool: WorkerPool[ProfiledObject], toolchain: Toolchain, tmp_path: Path
) -> None:
    settings = SearchSettings(budget=20, seed=1)
    found = search_profiled(
        builds.modules, pool, toolchain, settings, weights, name="bench", folder=tmp_path, identity={}
    )
    assert found.decisions and found.hot_functions == 3
    assert all(advice for advice in found.decisions.values())
    plain, better = (_own_instructions(builds, toolchain, decisions) for decisions in ({}, found.decisions))
    assert better < plain
    # It continues, and finds nothing else.
    again = search_profiled(
        builds.modules, pool, toolchain, settings, weights, name="bench", folder=tmp_path, identity={}
    )
    assert again.decisions == found.decisions


def test_a_profile_of_another_program_is_refused(
    builds: ProgramBuilds, weights: CostWeights, pool: WorkerPool[ProfiledObject], tmp_path: Path, clang_path: str
) -> None:
    (tmp_path / "corpus").mkdir()
    other = make_corpus(tmp_path / "corpus", clang_path, {"p/other.c": "int other(int x) { return x + 1; }"}, "O2")
    with pytest.raises(CorpusError, match=r"run.profdata: expected functions of the program that ran, found none"):
        ProfiledCompiler(pool, other.modules, weights).compile({0: {}})
