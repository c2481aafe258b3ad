"""Inlining by `opt` instead of clang: the same decisions, and the object that clang compiles from the result."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy, Policy, RandomPolicy
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")
_CLANG = RolloutSettings(backend="channel", record_call_sites=True)
_OPT = RolloutSettings(inliner="opt", record_call_sites=True)


class Place:
    """A corpus and its rollouts."""

    def __init__(self, root: Path, toolchain: Toolchain):
        (root / "corpus").mkdir()
        (root / "scratch").mkdir()
        self.corpus: Corpus = make_small_corpus(root / "corpus", str(toolchain.clang))
        self._toolchain = toolchain
        self._root = root

    def rollout(self, module: str, policy: Policy | None, settings: RolloutSettings) -> tuple[Rollout, bytes]:
        """The rollout and the object."""
        result = rollout(
            self.corpus.by_name[module],
            policy,
            _INLINING,
            self._toolchain,
            scratch=self._root / "scratch",
            seed=5,
            settings=settings,
            keep_object=self._root / "object.o",
        )
        assert result.failure is None
        assert list((self._root / "scratch").iterdir()) == []
        return result, (self._root / "object.o").read_bytes()


@pytest.fixture
def place(toolchain: Toolchain, tmp_path: Path) -> Place:
    return Place(tmp_path, toolchain)


@pytest.mark.ci
@pytest.mark.both_compilers
def test_the_replayed_default_gives_the_plain_object(place: Place) -> None:
    for module in place.corpus.modules:
        plain, expected = place.rollout(module.name, None, _OPT)
        default, found = place.rollout(module.name, DefaultPolicy(_INLINING), _OPT)
        assert plain.trajectory is None
        assert found == expected
        assert (default.trajectory is None) == (module.name == "plain/data.c.o")


@pytest.mark.parametrize("policy", [DefaultPolicy(_INLINING), RandomPolicy()], ids=["default", "random"])
def test_decisions_are_those_of_clang(place: Place, policy: Policy) -> None:
    """On these modules the objects are the same, too; not always on others, see docs/development_mode.md."""
    for module in ("shapes/area.cpp.o", "plain/list.c.o"):
        (by_clang, expected), (by_opt, found) = (place.rollout(module, policy, settings) for settings in (_CLANG, _OPT))
        assert by_clang.trajectory is not None and by_opt.trajectory is not None
        assert by_opt.trajectory.header == by_clang.trajectory.header
        assert by_opt.trajectory.observations == by_clang.trajectory.observations
        np.testing.assert_array_equal(by_opt.trajectory.advice, by_clang.trajectory.advice)
        assert isinstance(by_opt.trajectory.sites, CallSites)
        assert repr(by_opt.trajectory.sites) == repr(by_clang.trajectory.sites)
        assert found == expected


def test_the_inliners_own_pipeline(place: Place) -> None:
    settings = RolloutSettings(inliner="opt", opt_passes="scc-oz-module-inliner")
    results = [place.rollout("shapes/area.cpp.o", ConstantPolicy(advice), settings)[0] for advice in (0, 1)]
    sizes = [len(result.measurement.functions) for result in results if result.measurement is not None]
    assert sizes[0] > sizes[1] >= 1


def test_settings_that_opt_does_not_support_are_refused(place: Place, toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="inliner: expected one of clang, opt; found 'llc'"):
        RolloutSettings(inliner="llc")
    with pytest.raises(ConfigError, match="over the channel only; found the backend 'plugin'"):
        RolloutSettings(inliner="opt", backend="plugin")
    eviction = problems.load("regalloc_eviction")
    with pytest.raises(ConfigError, match="opt only inlines, which is not all that regalloc_eviction"):
        rollout(place.corpus.modules[0], None, eviction, toolchain, scratch=tmp_path, settings=_OPT)
