"""The plugin's own advisor against LLVM's: over code that is awkward to keep count of, they see the same numbers."""

from pathlib import Path

import numpy as np

from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.network import NetworkPolicy
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems.inlining import PROBLEM
from tests.real_observations import weights_for
from tests.small_corpus import make_corpus

# By what inlining does to the caller: blocks that end, landing pads that are split or lost, calls that become direct,
# loops of one block, recursion through others, functions that vanish.
_SOURCE = """
void put(int); int get(int);
struct Guard { int n; ~Guard() { put(n); } };

static void stop(int x) { put(x); __builtin_trap(); }
static int checked(int x) { if (x < 0) stop(x); return get(x); }
static void raise(int x) { if (x > 7) throw x; put(x + 1); }
static void quiet(int x) { put(x); }

int guarded(int x) {
  Guard outer{x};
  try { Guard inner{x + 1}; raise(x); quiet(checked(x)); raise(x + 2); }
  catch (int caught) { raise(caught); return checked(caught); }
  return checked(x + 1);
}

typedef int (*Function)(int);
static int leaf(int x) { return get(x) * 3; }
static Function choose(int) { return leaf; }
int indirect(int x) { Function f = choose(x); if (x > 4) put(x); return f(x) + f(x + 1); }

static int odd(int n);
static int even(int n) { return n == 0 ? 1 : odd(n - 1); }
static int odd(int n) { return n == 0 ? 0 : even(n - 1); }
int parity(int n) { return even(n) + odd(n + 1); }

static int kind(int x) {
  switch (x) { case 1: return get(1); case 2: return leaf(2); case 7: stop(x); case 9: return get(4); }
  return x;
}
int loops(int n) {
  int total = 0;
  for (int i = 0; i < n; i++) total += leaf(i);
  do { total += kind(total); } while (checked(total) > 3);
  return kind(3) + total;
}

__attribute__((always_inline)) static inline int must(int x) { return kind(x) + parity(x); }
__attribute__((noinline)) int never(int x) { return must(x) + loops(x); }
template <int N> int chain(int x) { return chain<N - 1>(x) + chain<N - 1>(checked(x)); }
template <> int chain<0>(int x) { return never(x) + must(x); }
int all(int x) { return chain<5>(x) + guarded(x) + indirect(x); }
"""


def test_it_sees_what_llvms_own_advisor_sees(toolchain: Toolchain, tmp_path: Path) -> None:
    module = make_corpus(tmp_path, str(toolchain.clang), {"awkward/code.cpp": _SOURCE}).modules[0]
    start = rollout(module, ConstantPolicy(0), PROBLEM, toolchain, scratch=tmp_path).trajectory
    assert start is not None
    weights = weights_for({name: start.features()[name].reshape(-1) for name in PROBLEM.feature_names}, hidden=(8,))
    seen: dict[str, set[int]] = {name: set() for name in PROBLEM.feature_names}
    for seed in range(8):
        policy = NetworkPolicy(weights, temperature=40.0)
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
        for name in PROBLEM.feature_names:
            np.testing.assert_array_equal(ours.features()[name], theirs.features()[name], err_msg=f"{name}, {seed}")
            seen[name] |= set(ours.features()[name].reshape(-1).tolist())
        assert objects[0].read_bytes() == objects[1].read_bytes()
    for name in ("node_count", "edge_count", "callsite_height", "callee_users", "caller_basic_block_count"):
        assert len(seen[name]) > 3, name
