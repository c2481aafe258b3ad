"""Replaying decisions in real compilers: which decisions a file reaches, and what happens to a bad one."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.compilation import DefaultPolicy
from compiler_opt.collect.rollout import Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, Site, sites_of
from compiler_opt.policies.policy import ConstantPolicy, Policy, RandomPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems.inlining import PROBLEM
from compiler_opt.spaces.binary import BinaryPolicy
from tests.deploy.sources import save_policy
from tests.small_corpus import SOURCES, make_corpus


@pytest.fixture(scope="module")
def corpus(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), str(toolchain.clang), SOURCES)


@pytest.fixture
def learned(tmp_path: Path) -> BinaryPolicy:
    save_policy(tmp_path / "policy")
    return BinaryPolicy(NetworkWeights.load(tmp_path / "policy"))


class _Compiler:
    """Compiles the modules of a corpus."""

    def __init__(self, corpus: Corpus, toolchain: Toolchain, folder: Path):
        self.modules = {module.name: module for module in corpus.modules}
        self._toolchain = toolchain
        self._folder = folder

    def compile(self, name: str, policy: Policy, **settings: object) -> tuple[bytes, Rollout]:
        """The object, and the rollout."""
        kept = self._folder / "kept.o"
        given = RolloutSettings(record_call_sites=True, **settings)  # type: ignore[arg-type]
        result = rollout(self.modules[name], policy, PROBLEM, self._toolchain, settings=given, keep_object=kept)
        assert result.failure is None
        return kept.read_bytes(), result


@pytest.fixture
def compiler(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> _Compiler:
    return _Compiler(corpus, toolchain, tmp_path)


def _sites(result: Rollout) -> list[Site]:
    assert result.trajectory is not None and isinstance(result.trajectory.sites, CallSites)
    return sites_of(result.trajectory.sites)


def _replayed(result: Rollout) -> list[bool]:
    assert result.trajectory is not None and isinstance(result.trajectory.sites, CallSites)
    assert result.trajectory.sites.replayed is not None
    return result.trajectory.sites.replayed.tolist()


def _decisions(result: Rollout) -> Decisions:
    assert result.trajectory is not None
    return Decisions(zip(_sites(result), result.trajectory.advice.tolist(), strict=True))


_MODULES = [name for name in (f"{name}.o" for name in SOURCES) if not name.endswith("data.c.o")]


def test_without_decisions_the_base_decides(compiler: _Compiler, learned: BinaryPolicy) -> None:
    for name in _MODULES:
        for base in (learned, DefaultPolicy(PROBLEM)):
            made, result = compiler.compile(name, OverridingPolicy(base, Decisions()))
            expected, plain = compiler.compile(name, base)
            assert made == expected
            assert not any(_replayed(result)) and _sites(result) == _sites(plain)


def test_any_decisions_can_be_replayed(
    compiler: _Compiler, learned: BinaryPolicy, corpus: Corpus, toolchain: Toolchain
) -> None:
    """Those of policies that decide over the channel, which has no bodies."""
    for name in _MODULES:
        made = set()
        policies = (ConstantPolicy(0), ConstantPolicy(1), RandomPolicy(0.3), RandomPolicy(0.7))
        for policy in policies:
            expected, recorded = compiler.compile(name, policy)
            assert recorded.trajectory is not None and isinstance(recorded.trajectory.sites, CallSites)
            theirs = recorded.trajectory.sites
            # The bodies are the same whatever is decided.
            _, default = compiler.compile(name, DefaultPolicy(PROBLEM))
            bodies = {site.caller: site.body for site in _sites(default)}
            known = np.array([bodies.get(theirs.functions[index], 0) for index in theirs.callers], np.uint64)
            sites = sites_of(dataclasses.replace(theirs, bodies=known))
            decisions = Decisions(zip(sites, recorded.trajectory.advice.tolist(), strict=True))
            for base in (learned, DefaultPolicy(PROBLEM)):
                ours, result = compiler.compile(name, OverridingPolicy(base, decisions))
                assert ours == expected
                assert all(_replayed(result)) and _decisions(result) == decisions
            made.add(expected)
        assert len(made) > 1
