"""The plugin's inline advisor computes the same features as LLVM's, over code that makes this difficult."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.inliner_plugin import INLINER, PROBE_SOURCE, SOURCES, differing_features, inliner_plugin
from compiler_opt.llvm.plugin import PluginCache
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.spaces.binary import BinaryPolicy
from tests.real_observations import weights_for
from tests.small_corpus import make_corpus


def _calls(trajectory: Trajectory) -> list[tuple[str, str, bool]]:
    """Caller, callee and whether the call was inlined."""
    sites = trajectory.sites
    assert isinstance(sites, CallSites)
    columns = zip(sites.callers.tolist(), sites.callees.tolist(), sites.inlined.tolist(), strict=True)
    return [(sites.functions[caller], sites.functions[callee], inlined) for caller, callee, inlined in columns]


def test_features_are_those_of_llvms_advisor(toolchain: Toolchain, tmp_path: Path) -> None:
    sources = {"awkward/code.cpp": PROBE_SOURCE.read_text()}
    module = make_corpus(tmp_path, str(toolchain.clang), sources, options=["-std=c++20"]).modules[0]
    start = rollout(module, ConstantPolicy(0), PROBLEM, toolchain, scratch=tmp_path).trajectory
    assert start is not None
    weights = weights_for(
        {name: start.features()[name].reshape(-1) for name in PROBLEM.decision.feature_names}, hidden=(8,)
    )
    seen: dict[str, set[int]] = {name: set() for name in PROBLEM.decision.feature_names}
    for seed in range(8):
        policy = BinaryPolicy(weights, temperature=40.0)
        results, objects = [], []
        for backend in ("plugin", "channel"):
            objects.append(tmp_path / backend)
            settings = RolloutSettings(record_call_sites=True, backend=backend)
            result = rollout(
                module,
                policy,
                PROBLEM,
                toolchain,
                scratch=tmp_path,
                seed=seed,
                settings=settings,
                keep_object=objects[-1],
            )
            assert result.trajectory is not None, result.failure
            results.append(result.trajectory)
        ours, theirs = results
        np.testing.assert_array_equal(ours.advice, theirs.advice)
        for name in PROBLEM.decision.feature_names:
            np.testing.assert_array_equal(ours.features()[name], theirs.features()[name], err_msg=f"{name}, {seed}")
            seen[name] |= set(ours.features()[name].reshape(-1).tolist())
        assert objects[0].read_bytes() == objects[1].read_bytes()
        # Coroutines call functions that must be inlined; there is no decision on these calls.
        assert _calls(ours) == _calls(theirs)
        assert not any("__await_suspend_wrapper" in callee for _, callee, _ in _calls(ours))
    for name in ("node_count", "edge_count", "callsite_height", "callee_users", "caller_basic_block_count"):
        assert len(seen[name]) > 3, name


def _constant(action: int) -> BinaryPolicy:
    """A network that inlines every call, or none."""
    weights = weights_for({name: np.arange(9) for name in PROBLEM.decision.feature_names}, hidden=(4,))
    kernels = (weights.kernels[0], np.zeros_like(weights.kernels[1]))
    biases = (weights.biases[0], np.array([1 - action, action], np.float32))
    return BinaryPolicy(dataclasses.replace(weights, kernels=kernels, biases=biases))


_NEVER_RETURNS = """
int get(int);
void put(int);
__attribute__((noreturn)) void stop(int);
static int hang(int x) { put(x); stop(x); return x; }
static int late(int x) { return get(x) * 3 + get(x + 1); }
int caller(int x) {
  if (x > 3) {
    int never = hang(x);
    if (get(1)) put(never);
    if (get(2)) put(x);
  }
  return late(x);
}
"""
"""Once `hang` is inlined, what follows it cannot be reached any more."""


@pytest.mark.both_compilers
def test_blocks_that_become_unreachable_are_counted_as_llvm_counts_them(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_corpus(tmp_path, str(toolchain.clang), {"p/a.c": _NEVER_RETURNS}).modules[0]
    blocks = []
    for policy in (_constant(0), _constant(1)):
        ours, theirs = (
            rollout(
                *(module, policy, PROBLEM, toolchain),
                scratch=tmp_path,
                settings=RolloutSettings(backend=backend, record_call_sites=True),
            ).trajectory
            for backend in ("plugin", "channel")
        )
        assert ours is not None and theirs is not None
        assert _calls(ours) == _calls(theirs)
        assert [callee for _, callee, _ in _calls(ours)] == ["hang", "late"]
        for name in PROBLEM.decision.feature_names:
            np.testing.assert_array_equal(ours.features()[name], theirs.features()[name], err_msg=name)
        blocks.append(ours.features()["caller_basic_block_count"].reshape(-1).tolist())
    (before, without), (same, inlined) = blocks
    # What the two later conditions guard, and the second of these; the first is in the block of the call.
    assert before == without == same == inlined + 3


def _module_with_users_of_a_function(count: int, toolchain: Toolchain, folder: Path, level: str) -> Module:
    source = "int work(int x) { " + "".join(f"x = (x ^ {n}) * x; " for n in range(3, 13)) + "return x; }\n"
    source += "".join(f"int use_{n}(int x) {{ return work(x) + {n}; }}\n" for n in range(count))
    return make_corpus(folder, str(toolchain.clang), {"p/a.c": source}, level).modules[0]


def test_a_module_may_grow_as_far_as_the_default_heuristic_grows_it(toolchain: Toolchain, tmp_path: Path) -> None:
    """It grows this module more than twofold, where LLVM's ML advisors stop."""
    module = _module_with_users_of_a_function(5, toolchain, tmp_path, "O2")
    plain = rollout(module, None, PROBLEM, toolchain).measurement
    assert plain is not None and plain.functions["use_4"] >= plain.functions["work"]
    for backend in ("plugin", "channel"):
        for policy in (DefaultPolicy(PROBLEM), _constant(1)):
            settings = RolloutSettings(backend=backend)
            assert rollout(module, policy, PROBLEM, toolchain, settings=settings).measurement == plain, backend


def test_a_module_stops_growing(toolchain: Toolchain, tmp_path: Path) -> None:
    """At the same call in the plugin and the channel."""
    module = _module_with_users_of_a_function(30, toolchain, tmp_path, "Oz")
    lengths = []
    for backend in ("plugin", "channel"):
        settings = RolloutSettings(backend=backend)
        trajectory = rollout(module, _constant(1), PROBLEM, toolchain, settings=settings).trajectory
        assert trajectory is not None
        lengths.append(len(trajectory))
    assert lengths[0] == lengths[1] and 5 < lengths[0] < 30


@pytest.mark.both_compilers
def test_cost_options_change_the_estimate_as_in_llvm(toolchain: Toolchain, tmp_path: Path) -> None:
    option = "-inline-asm-instr-cost=35"
    if toolchain.version[0] < 22:
        option = "-inline-call-penalty=35"  # older versions lack that option; this one has the same effect
    source = tmp_path / "a.c"
    source.write_text(
        'static int busy(int x) { __asm__ volatile("nop\\nnop\\nnop" : "+r"(x)); return x; }\n'
        "int one(int x) { return busy(x) + busy(x + 1); }\n"
    )
    command = [str(toolchain.clang), "-Oz", "-mllvm", option, "-c", str(source), "-o", str(tmp_path / "a.o")]
    assert differing_features(toolchain, inliner_plugin(toolchain), command, tmp_path) == []


_COSTS = """
int get(int);
void stop(int) __attribute__((noreturn));
int state;
int one_of(int *result, const int *from, int x) {
  *result = x;  /* disappears where it is a variable of the caller */
  return x > 3 ? *from * 5 : x > 1 ? get(*from) : 7;
}
int after(const int *from, int x) {
  state = x;
  return x > 3 ? *from * 5 : x > 1 ? get(*from) : 7;
}
static int last(int x) { return get(x) * 3 + get(x + 1); }
static int last_before_the_end(int x) { return get(x) * 5 + get(x + 2); }
int caller(const int *from, int x) {
  int result;
  int sum = one_of(&result, from, x) + after(from, x) + last(x);
  if (sum > 3) stop(last_before_the_end(x));
  return sum;
}
"""


@pytest.mark.both_compilers
@pytest.mark.parametrize("level", ["Oz", "O2"])
def test_the_costs_of_loads_and_of_last_calls_are_llvms(level: str, toolchain: Toolchain, tmp_path: Path) -> None:
    """Where the estimate is a sum of features, and where it is not."""
    source = tmp_path / "a.c"
    source.write_text(_COSTS)
    command = [str(toolchain.clang), f"-{level}", "-c", str(source), "-o", str(tmp_path / "a.o")]
    assert differing_features(toolchain, inliner_plugin(toolchain), command, tmp_path) == []


@pytest.mark.slow
def test_a_plugin_with_other_features_is_rejected(toolchain: Toolchain, tmp_path: Path) -> None:
    for source in SOURCES:
        shutil.copy(source, tmp_path)
    header = tmp_path / "function_body.h"
    right = "llvm::isa<llvm::SwitchInst>(Terminator)"
    assert right in header.read_text()
    header.write_text(header.read_text().replace(right, "false"))
    kind = dataclasses.replace(INLINER, sources=tuple(tmp_path / source.name for source in SOURCES))
    with pytest.raises(ToolchainError, match=r"other values than LLVM's own advisor for the features .*conditionally_"):
        PluginCache(tmp_path / "cache").get(toolchain, kind)
