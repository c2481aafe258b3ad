"""Flips of real modules: what one compile tells of many is what a compile of each alone tells."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, sites_of
from compiler_opt.search.compiling import compiled_of
from compiler_opt.search.flips import GROUP_FEATURES, ModuleFlips
from tests.small_corpus import make_corpus

_HALVES = """
struct Row { int cells[8]; };
static int NAME_least(const Row &row) { int m = row.cells[0]; for (int x : row.cells) m = x < m ? x : m; return m; }
static int NAME_sum(const Row &row) { int s = 0; for (int x : row.cells) s += x; return s + NAME_least(row); }
int NAME_one(const Row &row) { return NAME_sum(row) * NAME_least(row); }
int NAME_two(const Row &row) { return NAME_sum(row) - NAME_least(row) + 3; }
"""


@pytest.fixture
def module(toolchain: Toolchain, tmp_path: Path) -> Module:
    """Two parts that do not call each other."""
    (tmp_path / "corpus").mkdir()
    parts = [_HALVES.replace("NAME", name) for name in ("left", "right")]
    text = parts[0] + parts[1].replace("struct Row { int cells[8]; };", "")
    return make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/halves.cpp": text}).modules[0]


def _compile(module: Module, toolchain: Toolchain, decisions: Decisions) -> Rollout[ObjectSizes]:
    policy = OverridingPolicy(DefaultPolicy(PROBLEM), decisions)
    settings = RolloutSettings(record_call_sites=True, backend="plugin")
    result = rollout(module, policy, PROBLEM, toolchain, settings=settings)
    assert result.failure is None
    return result


def _bytes_of(half: str, rollout: Rollout[ObjectSizes]) -> int:
    assert rollout.measurement is not None
    return sum(num_bytes for name, num_bytes in rollout.measurement.functions.items() if half in name)


@pytest.mark.ci
def test_one_compile_tells_what_each_flip_saves(module: Module, toolchain: Toolchain) -> None:
    base = _compile(module, toolchain, Decisions())
    assert base.measurement is not None and base.trajectory is not None
    assert isinstance(base.trajectory.sites, CallSites)
    flips = ModuleFlips(base, {})
    drawn = flips.draw(6, 200, np.random.default_rng(0))
    assert {site for decisions in drawn for site in decisions} == set(sites_of(base.trajectory.sites))
    gains: dict[int, float] = {}
    for decisions in drawn:
        together = dict(flips.gains(compiled_of(_compile(module, toolchain, decisions)), decisions))
        assert len(decisions) > 1
        gains |= together
        for site, advice in decisions.items():
            single = Decisions({site: advice})
            trial = _compile(module, toolchain, single)
            [(position, gain)] = flips.gains(compiled_of(trial), single)
            half = "left" if "left" in site.caller else "right"
            sizes = [_bytes_of(half, rollout) for rollout in (base, trial)]
            # Padding of other functions may change, by some bytes.
            assert gain == pytest.approx(sizes[0] - sizes[1], abs=4)
            assert together.get(position, gain) == pytest.approx(gain, abs=4)
    assert len(gains) >= 6 and len(set(gains.values())) > 1


def test_copies_of_other_modules_are_kept_by_the_linker(toolchain: Toolchain, tmp_path: Path) -> None:
    """A function that vanishes here saves nothing if two other modules still emit it."""
    (tmp_path / "corpus").mkdir()
    text = "inline int twice(int x) { return x * 37 / 5 % 11; } int one(int a) { return twice(a) * twice(a + 1); }"
    [module] = make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/one.cpp": text}).modules
    base = _compile(module, toolchain, Decisions())
    assert base.measurement is not None and base.trajectory is not None
    nothing = _compile(module, toolchain, Decisions())
    alone, shared = ModuleFlips(base, {}), ModuleFlips(base, {"_Z5twicei": 3.0})
    [decisions, *_] = alone.draw(1, 1, np.random.default_rng(1))
    assert list(alone.gains(compiled_of(nothing), decisions)) == [], "what was not flipped is no sample"
    trial = _compile(module, toolchain, decisions)
    assert trial.measurement is not None
    [(_, full)], [(_, none)] = alone.gains(compiled_of(trial), decisions), shared.gains(compiled_of(trial), decisions)
    groups = [sizes.comdats.get("_Z5twicei", 0) for sizes in (base.measurement, trial.measurement)]
    assert (groups[0] == 0) != (groups[1] == 0)
    assert full - none == pytest.approx(groups[0] - groups[1])


def test_copies_of_a_caller_count_once(toolchain: Toolchain, tmp_path: Path) -> None:
    """Flips in a function that four modules emit are drawn a fourth as often, and what changes in it counts once."""
    (tmp_path / "corpus").mkdir()
    text = "int far(int); static int near(int x) { return far(x) * far(x + 1) + far(x - 2); }\n"
    text += "__attribute__((noinline)) inline int many(int x) { return near(x) + near(x + 3); }\n"
    text += "int one() { return many(1); }"
    [module] = make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/one.cpp": text}).modules
    base = _compile(module, toolchain, Decisions())
    alone, shared = ModuleFlips(base, {}), ModuleFlips(base, {"_Z4manyi": 4.0})
    rng = np.random.default_rng(0)
    counts = [sum(len(flips) for _ in range(200) for flips in each.draw(1, 1, rng)) for each in (alone, shared)]
    assert counts[0] == 200 and 70 < counts[1] < 110, "two decisions, each in one of four"
    [decisions] = alone.draw(1, 1, rng)
    trial = _compile(module, toolchain, decisions)
    assert trial.measurement is not None and base.measurement is not None
    [(_, full)], [(_, shared_gain)] = (
        alone.gains(compiled_of(trial), decisions),
        shared.gains(compiled_of(trial), decisions),
    )
    assert shared_gain == full != 0


_BODY = "inline int body(int x) { int s = 0; for (int i = 0; i < x; ++i) s += far(i) * far(s ^ x); return s; }\n"
_TWO_CALLS = (
    "int far(int);\nSTATIC "
    + _BODY
    + "int one(int a) { return body(a) + 1; } int two(int b) { return body(b + b) - 3; }"
)


@pytest.mark.parametrize(("static", "copies"), [("static", 1.0), ("", 1.0), ("", 3.0)])
def test_calls_that_decide_whether_a_body_remains_are_flipped_together(
    static: str, copies: float, toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    text = _TWO_CALLS.replace("STATIC", static)
    [module] = make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/two.cpp": text}).modules
    toolchain = with_plugin_features(toolchain, GROUP_FEATURES)
    base = _compile(module, toolchain, Decisions())
    assert base.measurement is not None
    single = ModuleFlips(base, {})
    [decisions, *_] = single.draw(2, 200, np.random.default_rng(0))
    assert len(decisions) == 1, "both calls change the callee"
    flips = ModuleFlips(base, {"_Z4bodyi": copies}, groups=True)
    [decisions] = flips.draw(2, 200, np.random.default_rng(0))
    assert len(decisions) == 2
    trial = _compile(module, toolchain, decisions)
    assert trial.measurement is not None
    gains = dict(flips.gains(compiled_of(trial), decisions))
    assert len(gains) == 2 and len(set(gains.values())) == 1
    saved = base.measurement.text_bytes - trial.measurement.text_bytes
    [body] = {name: size for name, size in base.measurement.functions.items() if "body" in name}.values()
    assert sum(gains.values()) == pytest.approx(saved - body * (1 - 1 / copies), abs=16)


def test_callees_that_others_may_call_are_flipped_call_by_call(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    text = _TWO_CALLS.replace("STATIC inline", "")
    [module] = make_corpus(tmp_path / "corpus", str(toolchain.clang), {"p/two.cpp": text}).modules
    base = _compile(module, with_plugin_features(toolchain, GROUP_FEATURES), Decisions())
    drawn = ModuleFlips(base, {}, groups=True).draw(4, 200, np.random.default_rng(0))
    assert [len(decisions) for decisions in drawn] == [1, 1]
