"""What a build of a real module says of its functions."""

from pathlib import Path

import pytest

from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.llvm.inliner_plugin import PROBE_SOURCE
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy
from compiler_opt.search.builds import Compiled, build_of, comdat_groups
from compiler_opt.search.compiling import compiled_of
from compiler_opt.search.program import Program, compare
from tests.small_corpus import make_corpus


def _compile(module: Module, toolchain: Toolchain, decisions: Decisions) -> Compiled:
    settings = RolloutSettings(record_call_sites=True, record_default=True, backend="plugin")
    result = rollout(module, OverridingPolicy(DefaultPolicy(PROBLEM), decisions), PROBLEM, toolchain, settings=settings)
    compiled = compiled_of(result)
    assert isinstance(compiled, Compiled), compiled
    return compiled


@pytest.mark.slow
def test_what_a_coroutine_is_split_into_changes_with_its_decisions(toolchain: Toolchain, tmp_path: Path) -> None:
    sources = {"p/code.cpp": PROBE_SOURCE.read_text()}
    [module] = make_corpus(tmp_path, str(toolchain.clang), sources, options=["-std=c++20"]).modules
    before = _compile(module, toolchain, Decisions())
    groups = comdat_groups([before])
    build = build_of(before, 0, groups)
    [coroutine] = {name.removesuffix(".resume") for name in before.sizes.functions if name.endswith(".resume")}
    assert {f"{coroutine}.resume", f"{coroutine}.destroy"} <= build.holders(coroutine)
    inlined = {site: 1 - int(advice) for site, advice in zip(before.sites, before.advice, strict=True)}
    changed = []
    for site in (site for site in before.sites if site.caller == coroutine):
        after = build_of(_compile(module, toolchain, Decisions({site: inlined[site]})), 0, groups, build.calls)
        assert not after.is_cut
        resumed = build.unit(f"{coroutine}.resume")
        if after.units.get(resumed) != build.units.get(resumed):
            components, _ = compare(Program([build]), {0: after})
            changed += [(site.caller, site.body) in each.callers for each in components if resumed in each.units]
    assert changed and all(changed)
