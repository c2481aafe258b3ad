"""Features that only our plugin computes, in rollouts: traces and policies that have them, and what refuses them."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.errors import ConfigError, PolicyError, ToolchainError
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.advisors import INLINING, REGALLOC_EVICTION
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.inlining_config import FEATURES as FEATURES_OF_SETTINGS
from compiler_opt.llvm.inlining_config import InliningConfig
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.spaces.binary import BinaryPolicy
from tests.real_observations import weights_for
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")
_ADDED = ("is_cold", "callee_calls_in_module", "callee_linkage")


@pytest.fixture(scope="module")
def module(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Module:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path).modules[0]


def _run(
    module: Module, policy: Policy, toolchain: Toolchain, scratch: Path, backend: str = "auto", inliner: str = "clang"
) -> Rollout:
    settings = RolloutSettings(backend=backend, inliner=inliner)
    return rollout(module, policy, _INLINING, toolchain, scratch=scratch, seed=3, settings=settings)


@pytest.fixture
def policy(module: Module, toolchain: Toolchain, tmp_path: Path) -> BinaryPolicy:
    """Observes some features of LLVM, and some of the plugin in another order than the plugin's."""
    extended = with_plugin_features(toolchain, plugin_features.NAMES)
    trajectory = _run(module, DefaultPolicy(_INLINING), extended, tmp_path).trajectory
    assert trajectory is not None
    columns = {name: values.reshape(-1) for name, values in trajectory.features().items()}
    return BinaryPolicy(weights_for({name: columns[name] for name in (*_ADDED, *FEATURES[:12])}, hidden=(8,)))


@pytest.mark.both_compilers
@pytest.mark.parametrize("setting", ["plugin", "plugin_with_default", "plugin_for_speed"])
def test_a_default_trace_has_them_if_asked(setting: str, module: Module, toolchain: Toolchain, tmp_path: Path) -> None:
    plain = _run(module, DefaultPolicy(_INLINING), toolchain, tmp_path, backend="plugin").trajectory
    extended = InliningConfig(features=setting).extend(toolchain, INLINING)
    found = _run(module, DefaultPolicy(_INLINING), extended, tmp_path).trajectory
    assert plain is not None and found is not None
    added = FEATURES_OF_SETTINGS[setting]
    names = found.header.names
    assert [name for name in names if name not in plain.header.names] == list(added)
    for name, values in plain.features().items():
        np.testing.assert_array_equal(values, found.features()[name], err_msg=name)
    np.testing.assert_array_equal(plain.advice, found.advice)
    if "default_decision" in added:
        np.testing.assert_array_equal(found.features()["default_decision"].reshape(-1), found.advice)


def test_a_policy_needs_no_setting(policy: BinaryPolicy, module: Module, toolchain: Toolchain, tmp_path: Path) -> None:
    """The plugin evaluates the network as numpy does, and records what it observed."""
    extended = with_plugin_features(toolchain, plugin_features.NAMES)
    in_order = ("callee_linkage", "callee_calls_in_module", "is_cold")
    decided = []
    for compiler, recorded in ((toolchain, in_order), (extended, plugin_features.NAMES)):
        trajectory = _run(module, policy, compiler, tmp_path).trajectory
        assert trajectory is not None
        assert plugin_features.among(trajectory.header.names) == recorded
        columns = {name: values.reshape(-1) for name, values in trajectory.features().items()}
        np.testing.assert_array_equal(trajectory.advice, policy.logits(columns).argmax(axis=-1))
        assert len(np.unique(columns["callee_calls_in_module"])) > 1
        decided.append(trajectory.advice.tolist())
    assert decided[0] == decided[1]


def test_other_policies_still_use_the_channel(module: Module, toolchain: Toolchain, tmp_path: Path) -> None:
    extended = with_plugin_features(toolchain, plugin_features.NAMES)
    trajectory = _run(module, ConstantPolicy(0), extended, tmp_path).trajectory
    assert trajectory is not None and set(FEATURES) <= set(trajectory.header.names)


_ONLY = re.escape("only our plugin computes")


@pytest.mark.parametrize("backend", ["channel", "development"])
def test_other_backends_refuse_a_policy(
    backend: str, policy: BinaryPolicy, module: Module, toolchain: Toolchain, tmp_path: Path
) -> None:
    support = dataclasses.replace(toolchain.problems["inlining"], development=True)
    pretending = dataclasses.replace(toolchain, problems={**toolchain.problems, "inlining": support})
    with pytest.raises(PolicyError, match=f"{_ONLY}: {', '.join(_ADDED)}; use the backend auto or plugin"):
        _run(module, policy, pretending, tmp_path, backend=backend)


@pytest.mark.parametrize("settings", [{"backend": "channel"}, {"backend": "development"}, {"inliner": "opt"}])
def test_other_backends_refuse_to_record(
    settings: dict[str, str], module: Module, toolchain: Toolchain, tmp_path: Path
) -> None:
    extended = with_plugin_features(toolchain, _ADDED)
    with pytest.raises(ConfigError, match=f"backend: {_ONLY} the features callee_linkage, callee_calls_in_module"):
        _run(module, DefaultPolicy(_INLINING), extended, tmp_path, **settings)


def test_without_a_plugin_the_reason_is_given(
    policy: BinaryPolicy, module: Module, toolchain: Toolchain, tmp_path: Path
) -> None:
    without = dataclasses.replace(toolchain, clang=tmp_path / "clang", plugin_headers=None)
    with pytest.raises(ToolchainError, match="install the packages llvm-"):
        with_plugin_features(without, _ADDED)
    with pytest.raises(ToolchainError, match="install the packages llvm-"):
        _run(module, policy, without, tmp_path)


def test_settings_that_cannot_be(toolchain: Toolchain) -> None:
    with pytest.raises(
        ConfigError, match="expected one of llvm, plugin, plugin_with_default, plugin_for_speed; found 'all'"
    ):
        InliningConfig(features="all")
    with pytest.raises(ConfigError, match=r"'plugin' needs our plugin, but inlining\.ir2vec_vocabulary the"):
        InliningConfig(features="plugin", ir2vec_vocabulary="vocabulary.json")
    with pytest.raises(ConfigError, match="expected decisions of inlining, found regalloc_eviction"):
        InliningConfig(features="plugin").extend(toolchain, REGALLOC_EVICTION)
    assert InliningConfig().extend(toolchain, REGALLOC_EVICTION) is toolchain
    with pytest.raises(PolicyError, match=r"old/trace: expected the features is_cold of inlining.features, found none"):
        plugin_features.check_observed(["is_cold", "threshold"], ["threshold"], "old/trace")
