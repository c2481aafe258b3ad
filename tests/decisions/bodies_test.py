"""Which functions hold a body: search, credit, explanations and costs of functions agree on real modules."""

import dataclasses
from collections.abc import Iterator, Set

import pytest

from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.cost_models.profiled_costs import InlinedCall, ProfiledCosts, ProfiledModule
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.decisions.inlining.bodies import coroutine_of
from compiler_opt.evaluation.attribution import CompiledModule, attribute
from compiler_opt.llvm.inliner_plugin import PROBE_SOURCE
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, sites_of
from compiler_opt.search.builds import Build, build_of
from compiler_opt.search.compiling import compiled_of
from tests.small_corpus import make_corpus

_CHAIN = """
int get(int);
static int e(int x) { return x + 1; }
static int d(int x) { return e(x) * 5; }
static int c(int x) { return d(x) * 3; }
static int b(int x) { return get(c(x)) + get(c(x + 1)); }
"""
_SHARED = 'extern "C" {' + _CHAIN.replace("static", "inline")
_FIRST, _SECOND = "int first(int x) { return b(x) + 2; }", "int second(int x) { return b(x) + b(c(x)); }"
_SOURCES = {
    "chain": {"p/code.c": _CHAIN + _FIRST + _SECOND},
    "comdat": {"p/first.cpp": _SHARED + _FIRST + "}", "p/second.cpp": _SHARED + _SECOND + "}"},
    "coroutine": {"p/code.cpp": PROBE_SOURCE.read_text()},
}


@dataclasses.dataclass(frozen=True)
class _Module:
    """One module, compiled; `build` is what the search sees of it."""

    sizes: ObjectSizes
    sites: CallSites
    build: Build

    def decisions(self) -> Iterator[tuple[str, str]]:
        """Caller and callee of each."""
        names = self.sites.functions
        for caller, callee in zip(self.sites.callers, self.sites.callees, strict=True):
            yield names[caller], names[callee]

    def emitted(self, caller: str) -> Set[str]:
        """Functions of the object that hold the body of a caller, by the search."""
        return self.build.holders(caller) & self.sizes.functions.keys()


@pytest.fixture(scope="module", params=_SOURCES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def modules(kind: str, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> list[_Module]:
    """The program of a kind, under the compiler's own decisions."""
    options = ["-std=c++20"] if kind == "coroutine" else []
    corpus = make_corpus(tmp_path_factory.mktemp(kind), str(toolchain.clang), _SOURCES[kind], options=options)
    policy = OverridingPolicy(DefaultPolicy(PROBLEM), Decisions())
    settings = RolloutSettings(record_call_sites=True, backend="plugin")
    found = []
    for module in corpus.modules:
        result = rollout(module, policy, PROBLEM, toolchain, settings=settings)
        assert result.measurement is not None and result.trajectory is not None, result.failure
        sites, compiled = result.trajectory.sites, compiled_of(result)
        assert isinstance(sites, CallSites) and not isinstance(compiled, str)
        found.append(_Module(result.measurement, sites, build_of(compiled, 0, {})))
    return found


def test_a_search_finds_all_functions_that_hold_a_body(kind: str, modules: list[_Module]) -> None:
    """The small functions of a chain are inlined everywhere, `e` into `d` into `c` into `b` and `second`."""
    if kind == "coroutine":
        [coroutine] = {name for name in map(coroutine_of, modules[0].sizes.functions) if name}
        assert modules[0].emitted(coroutine) == {f"{coroutine}{part}" for part in ("", ".resume", ".destroy")}
    else:
        holders = {frozenset(module.emitted("e")) for module in modules}
        assert holders == ({frozenset({"b", "second"})} | ({frozenset({"b"})} if kind == "comdat" else set()))


def test_credit_goes_to_decisions_in_functions_that_hold_the_body(kind: str, modules: list[_Module]) -> None:
    """LLVM inlines callees first, so the order of decisions matters only in cycles of calls, and once `f` is split."""
    for module in modules:
        for function, num_bytes in module.sizes.functions.items():
            larger = dataclasses.replace(module.sizes, functions={**module.sizes.functions, function: num_bytes + 1})
            credit = PROBLEM.credit([module.sizes, larger], [module.sites, module.sites], {})
            assert credit is not None
            for value, (caller, callee) in zip(credit[1].tolist(), module.decisions(), strict=True):
                can_change = function in module.emitted(caller) or callee in (function, coroutine_of(function))
                if kind == "coroutine" and caller != coroutine_of(function):
                    assert can_change or not value
                else:
                    assert can_change == bool(value)


def test_explanations_attribute_to_decisions_in_bodies_that_a_function_holds(modules: list[_Module]) -> None:
    """All functions grow, and one decision differs."""
    for module in modules:
        for caller, explained in _explained(module):
            assert explained == module.emitted(caller)


def _explained(module: _Module) -> Iterator[tuple[str, set[str]]]:
    """For each decision, the caller, and the functions that are explained when it alone differs, and all grow."""
    sizes = module.sizes
    grown = dataclasses.replace(sizes, functions={name: size + 1 for name, size in sizes.functions.items()})
    inlined = dict(zip(sites_of(module.sites), module.sites.inlined.tolist(), strict=True))
    for site, is_inlined in inlined.items():
        before = CompiledModule("m", sizes, inlined)
        after = CompiledModule("m", grown, {**inlined, site: not is_inlined})
        yield site.caller, {each.name for each in attribute([before], [after]).functions if each.decisions}


def test_costs_are_credited_to_a_function_that_holds_the_body(modules: list[_Module]) -> None:
    """Rather to one of the module's own."""
    hot = ProfiledModule(frozenset({"hot"}), frozenset({"hot"}), {"hot": 1.0}, {"hot": 1.0}, [])
    costs = ProfiledCosts([hot], [])
    for module in modules:
        shared = frozenset(module.sizes.function_comdats)
        calls = [
            InlinedCall(caller, callee, 0.0)
            for (caller, callee), done in zip(module.decisions(), module.sites.inlined, strict=True)
            if done
        ]
        for gone in module.sites.functions:
            saving = [*calls, InlinedCall(gone, "hot", 1.0)]
            functions = frozenset(module.sizes.functions) - {gone}
            found = costs.of(ProfiledModule(functions, shared, {}, {}, saving))
            holders = module.emitted(gone) - {gone}
            assert found.keys() <= holders and len(found) <= 1
            assert found or not holders
            assert found.keys().isdisjoint(shared) or holders <= shared
