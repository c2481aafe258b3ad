"""The plugin's own features of call sites: their values, where these are plain to see in the source."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.inliner_plugin import (
    PROBE_SOURCE,
    differing_features,
    environment,
    inliner_plugin,
    read_log,
    with_plugin_features,
)
from compiler_opt.llvm.plugin import NATIVE, load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.native import native_blob

_NAMES = plugin_features.ALL

_SOURCE = """
extern volatile int cell;
struct Guard { ~Guard(); };
template <class T> int weak(T x) { return x; }
template int weak<int>(int);

extern "C" {
int get(int);
void take(int *);
void may_throw();

static int leaf(int x) { cell = x; cell = x; return cell; }
static int used_once(int x) { return leaf(x) + 1; }
inline int shared(int x) { return get(x) + get(x); }
static int taken(int x, int y) { int z; take(&z); return get(x) - y; }
int (*pointer)(int, int) = taken;
static void quits() { may_throw(); __builtin_trap(); }
static void guarded() { Guard guard; may_throw(); }

int uses(int x) { leaf(x); return used_once(x) + taken(x, 1); }
inline int folded(int x) { return shared(x) + weak(x); }
int loops(int n) {
  int sum = folded(n);
  for (int i = 0; i < n; i++) sum += taken(i, n);
  if (sum == 7) quits();
  try { guarded(); } catch (...) { cell = leaf(sum); }
  return sum;
}
}
"""

_EXTERNAL, _FOLDED, _LOCAL = 0, 1, 2

_BODIES = {
    "leaf": {"callee_instructions": 2 + 1 + 1, "callee_loads_stores": 2 + 1},  # stores, load, ret
    "used_once": {"callee_instructions": 3, "callee_direct_calls": 1, "callee_calls": 1},  # call, add, ret
    "shared": {"callee_instructions": 2 + 1 + 1, "callee_calls": 2},  # calls, add, ret
    "_Z4weakIiEiT_": {"callee_instructions": 1},  # ret
    # The variable and the two markers of its lifetime; two calls, sub, ret.
    "taken": {"callee_instructions": 1 + 2 + 2 + 1 + 1, "callee_allocas": 1, "callee_calls": 2, "call_arguments": 2},
    "quits": {"callee_instructions": 3, "callee_calls": 1, "call_arguments": 0},  # call, trap, unreachable
    # The variable and its lifetime, which ends on both paths; invoke, the destructor on both, ret; landing pad, resume.
    "guarded": {
        "callee_instructions": 1 + 3 + 1 + 2 + 1 + 2,
        "callee_allocas": 1,
        "callee_calls": 1 + 2,
        "callee_invokes": 1,
        "call_arguments": 0,
    },
    "folded": {"callee_instructions": 4, "callee_direct_calls": 2, "callee_calls": 2},  # two calls, add, ret
}
"""What depends on the callee alone, where it is neither 0 nor the one argument."""

_LOCAL_CALLER = {"caller_linkage": _LOCAL, "caller_instructions": 3}
_USES = {"caller_instructions": 3 + 1 + 1}  # three calls, add, ret
_FOLDED_CALLER = {"caller_linkage": _FOLDED, "caller_instructions": 4}
_CALLS = [
    ("used_once", "leaf", {"callee_calls_in_module": 3, **_LOCAL_CALLER}),
    ("uses", "leaf", {"callee_calls_in_module": 3, "is_result_used": 0, **_USES}),
    ("uses", "used_once", {"is_callee_dropped": 1, **_USES}),
    ("uses", "taken", {"callee_calls_in_module": 2, "callee_other_uses": 1, **_USES}),
    ("folded", "shared", {"callee_linkage": _FOLDED, "is_callee_dropped": 1, **_FOLDED_CALLER}),
    # Instantiated explicitly, it remains in this object.
    ("folded", "_Z4weakIiEiT_", {"callee_linkage": _FOLDED, **_FOLDED_CALLER}),
    ("loops", "folded", {"callee_linkage": _FOLDED, "is_callee_dropped": 1}),
    ("loops", "taken", {"callee_calls_in_module": 2, "callee_other_uses": 1, "is_in_loop": 1}),
    ("loops", "quits", {"is_callee_dropped": 1, "is_no_return": 1, "is_cold": 1, "is_result_used": 0}),
    ("loops", "guarded", {"is_callee_dropped": 1, "is_invoke": 1, "is_result_used": 0}),
    ("loops", "leaf", {"callee_calls_in_module": 3, "is_cold": 1}),
]
"""Caller, callee, and what differs from a call of a local function, once, from an external one."""


def _expected(callee: str, changed: dict[str, int]) -> dict[str, int]:
    usual = dict.fromkeys(plugin_features.NAMES, 0) | {
        "caller_linkage": _EXTERNAL,
        "callee_linkage": _LOCAL,
        "callee_calls_in_module": 1,
        "callee_calls_in_caller": 1,
        "call_arguments": 1,
        "is_result_used": 1,
    }
    return usual | _BODIES[callee] | changed


def _cost_features(values: dict[str, int]) -> dict[str, int]:
    """Those that combine LLVM's costs."""
    last_call_bonus = 15_000
    growth = values["cost_estimate"] + last_call_bonus * values["last_call_to_static_bonus"]
    further = 0.0
    if values["callee_linkage"] == _LOCAL:
        larger = growth + values["sroa_savings"] // 2
        further = 100 * (values["callee_calls_in_module"] - 1) * larger / (25 - values["callsite_cost"])
        if values["callee_other_uses"]:
            further = 10_000 * (larger > 0)
    return {"callee_cost": growth - values["callsite_cost"], "further_calls_percent": int(further)}


def _never() -> NetworkWeights:
    """A network whose logits are always 1 and 0: nothing is inlined."""
    features, quantiles = FEATURES[:1], (np.array([0.0, 1.0]),)
    return NetworkWeights(features, quantiles, (np.zeros((3, 2), np.float32),), (np.array([1, 0], np.float32),))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.cpp"
    path.write_text(_SOURCE)
    return path


def _compile(toolchain: Toolchain, source: Path, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    load = load_option(inliner_plugin(toolchain))
    command = [str(toolchain.clang), "-Oz", "-c", str(source), "-o", str(source.with_suffix(".o")), load]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def _decisions(toolchain: Toolchain, source: Path) -> list[tuple[str, str, dict[str, int]]]:
    """Caller, callee and all features of each decision, without any inlining."""
    log, policy = source.with_suffix(".log"), source.with_suffix(".native")
    policy.write_bytes(native_blob(_never()))
    result = _compile(toolchain, source, environment(policy=policy, log=log, log_features=_NAMES))
    assert result.returncode == 0, result.stderr
    support = with_plugin_features(toolchain, _NAMES).require("inlining")
    read = read_log(log, support.features)
    assert read is not None and support.advice is not None and not read.advice.any()
    columns = Header(support.features, support.advice).decode(read.observations)
    # Local functions have C++ names even in `extern "C"`.
    functions = np.array([re.sub(r"^_ZL\d+(\w+?)(v|i+)$", r"\1", name) for name in read.call_sites.functions])
    values = zip(*(column.reshape(-1).tolist() for column in columns.values()), strict=True)
    names = zip(functions[read.call_sites.callers], functions[read.call_sites.callees], strict=True)
    return [
        (str(caller), str(callee), dict(zip(columns, row, strict=True)))
        for (caller, callee), row in zip(names, values, strict=True)
    ]


@pytest.mark.both_compilers
def test_values_are_those_of_the_source(toolchain: Toolchain, source: Path) -> None:
    decisions = _decisions(toolchain, source)
    assert [(caller, callee) for caller, callee, _ in decisions] == [(caller, callee) for caller, callee, _ in _CALLS]
    for (caller, callee, found), (_, _, changed) in zip(decisions, _CALLS, strict=True):
        expected = _expected(callee, changed)
        if caller == "loops":  # the same for all calls in it, but not counted here
            expected["caller_instructions"] = found["caller_instructions"]
            assert found["caller_instructions"] > 12
        expected |= _cost_features(found)
        assert {name: found[name] for name in expected} == expected, f"{caller} calls {callee}"
    assert _decisions(toolchain, source) == decisions


@pytest.mark.both_compilers
def test_the_default_decision_is_a_feature(toolchain: Toolchain, source: Path) -> None:
    log = source.with_suffix(".log")
    result = _compile(toolchain, source, environment(policy=None, log=log, log_features=("default_decision",)))
    assert result.returncode == 0, result.stderr
    columns = {name: values.reshape(-1).tolist() for name, values in decode_log(log.read_bytes()).columns().items()}
    assert columns["default_decision"] == columns["inlining_default"] == columns["inlining_decision"]
    assert set(columns["default_decision"]) == {0, 1}
    assert list(columns)[38:40] == ["default_decision", "inlining_default"]


def test_uses_and_blocks_are_counted_up_to_limits(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "many.c"
    branches = "".join(f"  if (get({i})) get(n);\n" for i in range(40))
    source.write_text(
        "int get(int);\nstatic int often(int x) { return get(x) + get(x + 1); }\n"
        + "".join(f"int caller{i}(int n) {{ return often(n); }}\n" for i in range(600))
        + f"void far(int n) {{ for (;;) {{ often(n);\n{branches} }} }}\n"
        + "void near(int n) { for (;;) { often(n); if (n == get(n)) break; } }\n"
    )
    found = {caller: values for caller, _, values in _decisions(toolchain, source)}
    assert {values["callee_calls_in_module"] for values in found.values()} == {512}
    assert (found["near"]["is_in_loop"], found["far"]["is_in_loop"]) == (1, 0)


_PROFILED = """
declare i32 @get(i32)
define internal i32 @callee(i32 %x) {CALLEE} {
  %a = call i32 @get(i32 %x)
  %b = call i32 @get(i32 %a)
  %c = call i32 @get(i32 %b)
  ret i32 %c
}
define i32 @hot(i32 %n) {HOT} {
  br label %loop
loop:
  %i = phi i32 [ %n, %0 ], [ %r, %loop ]
  %r = call i32 @callee(i32 %i)
  %more = icmp slt i32 %r, %n
  br i1 %more, label %loop, label %exit {LOOP}
exit:
  ret i32 %r
}
define i32 @cold(i32 %n) {COLD} {
  %r = call i32 @callee(i32 %n)
  ret i32 %r
}
define i32 @unknown(i32 %n) {
  %r = call i32 @callee(i32 %n)
  ret i32 %r
}
"""
_PROFILE = {
    "CALLEE": '!prof !{!"function_entry_count", i64 1000}',
    "HOT": '!prof !{!"function_entry_count", i64 10}',
    "LOOP": ', !prof !{!"branch_weights", i32 99, i32 1}',
    "COLD": '!prof !{!"function_entry_count", i64 0}',
}
_SUMMARY = """
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"ProfileSummary", !1}
!1 = !{!2, !3, !4, !5, !6, !7, !8, !9}
!2 = !{!"ProfileFormat", !"InstrProf"}
!3 = !{!"TotalCount", i64 2010}
!4 = !{!"MaxCount", i64 1000}
!5 = !{!"MaxInternalCount", i64 1000}
!6 = !{!"MaxFunctionCount", i64 1000}
!7 = !{!"NumCounts", i64 4}
!8 = !{!"NumFunctions", i64 3}
!9 = !{!"DetailedSummary", !10}
!10 = !{!11, !12}
!11 = !{i32 990000, i64 1000, i32 2}
!12 = !{i32 999999, i64 10, i32 3}
"""
"""The hottest 99% ran 1,000 times each, all that ran 10 times at least."""


def _hotness(toolchain: Toolchain, source: Path) -> dict[str, list[int]]:
    """The features of hotness, and the count, by caller."""
    found = _decisions(toolchain, source)
    assert {callee for _, callee, _ in found} == {"callee"}
    names = (*plugin_features.HOTNESS, plugin_features.CALLSITE_COUNT)
    return {caller: [values[name] for name in names] for caller, _, values in found}


def test_hotness_is_that_of_the_profile(toolchain: Toolchain, tmp_path: Path) -> None:
    profiled, plain = tmp_path / "profiled.ll", tmp_path / "plain.ll"
    text = _PROFILED
    for place, metadata in _PROFILE.items():
        text = text.replace(f"{{{place}}}", metadata)
    profiled.write_text(text + _SUMMARY)
    # 2, and one for each of the ten shares; three of these are over 99%.
    assert _hotness(toolchain, profiled) == {
        "hot": [100_000, 2 + 10, 2 + 3, 2 + 10, 1000],
        "cold": [1000, 1, 1, 2 + 10, 0],
        "unknown": [1000, 0, 0, 2 + 10, 0],
    }
    plain.write_text(re.sub(r"\{[A-Z]+\}", "", _PROFILED))
    estimated = _hotness(toolchain, plain)
    assert 10_000 < estimated["hot"][0] < 100_000
    assert [values[1:] for values in estimated.values()] == [[0, 0, 0, 0]] * 3
    assert estimated["cold"] == estimated["unknown"] == [1000, 0, 0, 0, 0]


def test_an_unknown_feature_is_named(toolchain: Toolchain, source: Path) -> None:
    log = source.with_suffix(".log")
    result = _compile(toolchain, source, environment(policy=None, log=log, log_features=("is_cold", "phase_of_moon")))
    assert result.returncode != 0
    assert "MLGO_INLINER_LOG_FEATURES: expected features of the plugin, found phase_of_moon" in result.stderr


@pytest.mark.both_compilers
def test_llvms_features_are_still_checked(toolchain: Toolchain, tmp_path: Path) -> None:
    extended = with_plugin_features(toolchain, _NAMES)
    command = [str(toolchain.clang), "-std=c++20", "-O2", "-x", "c++", str(PROBE_SOURCE), "-c", "-o"]
    output = str(tmp_path / "probe.o")
    assert differing_features(extended, inliner_plugin(extended), [*command, output], tmp_path) == []


def test_the_names_are_those_of_the_source() -> None:
    text = (NATIVE / "callsite_features.h").read_text()
    (names,) = re.findall(r"kCallSiteFeatureNames\[\] = \{(.*?)\};", text, re.DOTALL)
    assert tuple(re.findall(r'"(\w+)"', names)) == _NAMES
    assert set(_NAMES).isdisjoint(FEATURES)
