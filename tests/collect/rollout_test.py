"""Rollouts by real compilers; the replayed default gives the same object as a plain compilation."""

import dataclasses
import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, PolicyError, ToolchainError
from compiler_opt.llvm import sandbox
from compiler_opt.llvm.inliner_plugin import environment, inliner_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.processes import run
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.policies.policy import ConstantPolicy, FeaturePolicy, RandomPolicy, ReplayPolicy
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from tests.probed import probed
from tests.real_observations import recurrent, weights_for
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")
_MARGIN = 1.0


@pytest.fixture
def corpus(toolchain: Toolchain, tmp_path: Path) -> Corpus:
    root = tmp_path / "corpus"
    root.mkdir()
    return make_small_corpus(root, str(toolchain.clang))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def _area(corpus: Corpus) -> Module:
    return corpus.by_name["shapes/area.cpp.o"]


@pytest.mark.both_compilers
def test_the_default_replayed_gives_the_plain_object(
    corpus: Corpus, toolchain: Toolchain, scratch: Path, tmp_path: Path
) -> None:
    for module in corpus.modules:
        objects = [tmp_path / f"{name}.o" for name in ("plain", "default", "replay")]
        plain = rollout(module, None, _INLINING, toolchain, scratch=scratch, keep_object=objects[0])
        default = rollout(
            module, DefaultPolicy(_INLINING), _INLINING, toolchain, scratch=scratch, keep_object=objects[1]
        )
        assert plain.failure is None
        assert default.failure is None
        assert objects[0].read_bytes() == objects[1].read_bytes()
        if default.trajectory is None:
            assert module.name == "plain/data.c.o"
            continue
        advice = default.trajectory.advice
        replayed = rollout(module, ReplayPolicy(advice), _INLINING, toolchain, scratch=scratch, keep_object=objects[2])
        assert replayed.failure is None
        assert objects[0].read_bytes() == objects[2].read_bytes()
    assert list(scratch.iterdir()) == []


@pytest.mark.both_compilers
def test_the_default_trace_has_the_true_features(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    default = rollout(_area(corpus), DefaultPolicy(_INLINING), _INLINING, toolchain, scratch=scratch).trajectory
    assert default is not None
    replayed = rollout(_area(corpus), ReplayPolicy(default.advice), _INLINING, toolchain, scratch=scratch).trajectory
    assert replayed is not None
    for name in _INLINING.decision.feature_names:
        np.testing.assert_array_equal(default.features()[name], replayed.features()[name], err_msg=name)
    # The feature that some compilers overwrite with the default decision counts basic blocks: here loops have several.
    assert default.features()["callee_basic_block_count"].max() > 1


def test_a_random_rollout_is_the_same_for_the_same_seed(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    def advice(seed: int) -> list[int]:
        settings = RolloutSettings(record_call_sites=True)
        policy = RandomPolicy(0.5)
        result = rollout(
            _area(corpus), policy, _INLINING, toolchain, scratch=scratch, seed=seed, settings=settings
        ).trajectory
        assert result is not None
        assert isinstance(result.sites, CallSites)
        assert len(result.sites.callers) == len(result)
        decided: list[int] = result.advice.tolist()
        return decided

    assert advice(1) == advice(1)
    assert any(advice(1) != advice(seed) for seed in range(2, 6))


def _network(trajectory: Trajectory) -> NetworkWeights:
    """A network with random weights over the features of a trajectory."""
    columns = {name: values.reshape(-1) for name, values in trajectory.features().items()}
    return weights_for({name: columns[name] for name in _INLINING.decision.feature_names}, hidden=(16, 8))


@pytest.mark.ci
def test_a_policy_leaves_the_default_only_beyond_its_margin(
    corpus: Corpus, toolchain: Toolchain, scratch: Path, tmp_path: Path
) -> None:
    start = rollout(_area(corpus), ConstantPolicy(0), _INLINING, toolchain, scratch=scratch).trajectory
    assert start is not None
    weights = dataclasses.replace(_network(start), margin=_MARGIN)
    log, settings = tmp_path / "log", RolloutSettings(backend="plugin", record_call_sites=True)
    features = toolchain.problems["inlining"].features
    (tmp_path / "policy").write_bytes(_INLINING.decision.native_form(weights))
    variables = environment(policy=tmp_path / "policy", log=log, log_default=True)
    taken = set()
    for module in corpus.modules:
        command = compile_command(toolchain.clang, module.options(), module.bitcode_path, tmp_path / "module.o", ())
        log.unlink(missing_ok=True)
        assert run([*command, load_option(inliner_plugin(toolchain))], environment=variables).ok
        if not log.exists():
            continue
        columns = decode_log(log.read_bytes()).columns()
        logits, default = columns["logits"].astype(np.float64), columns["inlining_default"].reshape(-1)
        difference = logits[:, 1] - logits[:, 0]
        is_left = np.abs(difference) >= _MARGIN
        expected = np.where(is_left, difference > 0, default)
        decided = columns["inlining_decision"].reshape(-1)
        np.testing.assert_array_equal(decided, expected)
        taken |= set(zip(is_left.tolist(), decided.tolist(), default.tolist(), strict=True))
        result = rollout(module, BinaryPolicy(weights), _INLINING, toolchain, scratch=scratch, settings=settings)
        assert result.trajectory is not None and result.trajectory.header.features == features
        np.testing.assert_array_equal(result.trajectory.advice, decided)
    # Both the network and the default have decided, and they have differed.
    assert {left for left, *_ in taken} == {False, True}
    assert any(left and decision != default for left, decision, default in taken)


def _named(sites: CallSites) -> list[tuple[str, str, bool]]:
    names = sites.functions
    columns = zip(sites.callers.tolist(), sites.callees.tolist(), sites.inlined.tolist(), strict=True)
    return [(names[caller], names[callee], inlined) for caller, callee, inlined in columns]


def test_plugin_and_channel_give_the_same_rollouts(
    corpus: Corpus, toolchain: Toolchain, scratch: Path, tmp_path: Path
) -> None:
    start = rollout(_area(corpus), ConstantPolicy(0), _INLINING, toolchain, scratch=scratch).trajectory
    assert start is not None
    weights = _network(start)
    policies = [
        DefaultPolicy(_INLINING),
        BinaryPolicy(weights),
        *(BinaryPolicy(weights, temperature=temperature) for temperature in (1.0, 40.0)),
        *(BinaryPolicy(dataclasses.replace(weights, margin=margin)) for margin in (_MARGIN, ALWAYS_DEFAULT)),
        *(BinaryPolicy(recurrent(weights, 8), temperature=temperature) for temperature in (0.0, 1.0)),
        BinaryPolicy(recurrent(weights, 8).with_margin(_MARGIN)),
    ]
    advice = set()
    for module, policy in itertools.product(corpus.modules, policies):
        results, objects = [], []
        for backend in ("plugin", "channel"):
            path = tmp_path / backend
            settings = RolloutSettings(record_call_sites=True, backend=backend)
            results.append(
                rollout(
                    module, policy, _INLINING, toolchain, scratch=scratch, seed=3, settings=settings, keep_object=path
                )
            )
            assert results[-1].failure is None
            objects.append(path.read_bytes())
        assert objects[0] == objects[1]
        assert results[0].measurement == results[1].measurement
        plugin, channel = (result.trajectory for result in results)
        if plugin is None or channel is None:
            assert plugin is channel is None
            assert module.name == "plain/data.c.o"
            continue
        assert plugin.header == channel.header
        assert plugin.observations == channel.observations
        assert plugin.advice.dtype == channel.advice.dtype
        np.testing.assert_array_equal(plugin.advice, channel.advice)
        advice.add(tuple(plugin.advice.tolist()))
        assert (plugin.log_probs is None) == (channel.log_probs is None)
        if plugin.log_probs is not None and channel.log_probs is not None:
            assert plugin.log_probs.dtype == channel.log_probs.dtype
            np.testing.assert_allclose(plugin.log_probs, channel.log_probs, atol=1e-5)
        assert isinstance(plugin.sites, CallSites)
        assert isinstance(channel.sites, CallSites)
        assert _named(plugin.sites) == _named(channel.sites)
        group = [result.measurement for result in results]
        credits = _INLINING.credit(group, [plugin.sites, channel.sites], {})
        assert credits is not None
        np.testing.assert_array_equal(credits[0], credits[1])
    assert len(advice) > 4
    # Only the network stays for the next rollout, once for each policy.
    assert [path.name for path in scratch.iterdir()] == ["policies"]
    assert [path.name for path in scratch.glob("policies/*/*")] == ["network.mlgo"] * 8


@pytest.mark.ci
def test_a_scratch_directory_keeps_few_policies(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    start = rollout(_area(corpus), ConstantPolicy(0), _INLINING, toolchain, scratch=scratch).trajectory
    assert start is not None
    weights = _network(start)
    for _ in range(12):
        result = rollout(_area(corpus), BinaryPolicy(weights), _INLINING, toolchain, scratch=scratch)
        assert result.trajectory is not None
    assert 1 <= len(list(scratch.glob("policies/*/*.mlgo"))) <= 9


def test_without_headers_the_channel_is_used(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    bare = dataclasses.replace(toolchain, plugin_headers=None)
    default = DefaultPolicy(_INLINING)
    result = rollout(_area(corpus), default, _INLINING, bare, scratch=scratch)
    assert result.trajectory is not None
    # A copy, for which no plugin is cached.
    elsewhere = dataclasses.replace(bare, clang=scratch.parent / "clang")
    shutil.copy(toolchain.clang, elsewhere.clang)
    settings = RolloutSettings(backend="plugin")
    with pytest.raises(ToolchainError, match=f"llvm-{toolchain.version[0]}-dev"):
        rollout(_area(corpus), default, _INLINING, elsewhere, scratch=scratch, settings=settings)


def test_a_policy_without_native_form_takes_the_channel(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    assert rollout(_area(corpus), RandomPolicy(), _INLINING, toolchain, scratch=scratch).trajectory is not None
    settings = RolloutSettings(backend="plugin")
    with pytest.raises(PolicyError, match="'random' cannot decide within the compiler"):
        rollout(_area(corpus), RandomPolicy(), _INLINING, toolchain, scratch=scratch, settings=settings)


def test_a_network_for_another_compiler_is_an_error(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    policy = BinaryPolicy(weights_for({"unheard_of": np.arange(5)}, hidden=(4,)))
    for backend in ("plugin", "channel"):
        settings = RolloutSettings(backend=backend)
        with pytest.raises(PolicyError, match="unheard_of"):
            rollout(_area(corpus), policy, _INLINING, toolchain, scratch=scratch, settings=settings)


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match="expected one of auto, embedded, plugin, development, channel; found 'pipes'"
    ):
        RolloutSettings(backend="pipes")


def test_advice_matters(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    results = [rollout(_area(corpus), ConstantPolicy(value), _INLINING, toolchain, scratch=scratch) for value in (0, 1)]
    none, every = (result.measurement for result in results)
    assert none is not None and every is not None
    assert len(none.functions) > len(every.functions) >= 1


@pytest.mark.parametrize("damage", ["truncated", "not bitcode", "no command", "bad option"])
def test_a_bad_module_is_a_failure_that_names_it(
    damage: str, corpus: Corpus, toolchain: Toolchain, scratch: Path
) -> None:
    module = _area(corpus)
    if damage == "truncated":
        module.bitcode_path.write_bytes(module.bitcode_path.read_bytes()[:200])
    elif damage == "not bitcode":
        module.bitcode_path.write_bytes(b"BC\xc0\xde" + bytes(100))
    elif damage == "no command":
        module.command_path.unlink()
    else:
        module.command_path.write_bytes(b"-cc1\0-load\0/tmp/x.so\0")
    # Over the channel, then by the plugin.
    for policy in (ConstantPolicy(0), DefaultPolicy(_INLINING)):
        result = rollout(module, policy, _INLINING, toolchain, scratch=scratch)
        assert result.measurement is None
        assert result.failure is not None
        assert "shapes/area.cpp.o" in result.failure
        assert "\n" not in result.failure


def test_a_compilation_that_takes_too_long_is_a_failure(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    settings = RolloutSettings(timeout_s=0.001)
    for policy in (None, ConstantPolicy(0), DefaultPolicy(_INLINING)):
        result = rollout(_area(corpus), policy, _INLINING, toolchain, scratch=scratch, settings=settings)
        assert result.failure is not None
        assert "ran out of time" in result.failure


_HUGE = "@global = global i8 1, align 4294967296\n"


@pytest.mark.parametrize("policy", [None, ConstantPolicy(1)])
def test_an_endless_object_is_a_failure_and_is_removed(
    policy: ConstantPolicy | None, corpus: Corpus, toolchain: Toolchain, scratch: Path
) -> None:
    module = _area(corpus)
    (scratch.parent / "huge.ll").write_text(_HUGE)
    command = [str(toolchain.clang), "-x", "ir", "-emit-llvm", "-c", str(scratch.parent / "huge.ll")]
    subprocess.run([*command, "-o", str(module.bitcode_path)], check=True)
    settings = RolloutSettings(file_bytes=1 << 20)
    result = rollout(module, policy, _INLINING, toolchain, scratch=scratch, settings=settings)
    assert "SIGXFSZ" in (result.failure or "") and not result.is_transient
    assert list(scratch.iterdir()) == []
    # If the disk has less room than the limit, the failure is transient.
    result = rollout(module, policy, _INLINING, toolchain, scratch=scratch, settings=settings, scratch_bytes=1 << 20)
    assert result.failure is not None and result.is_transient
    assert list(scratch.iterdir()) == []


def test_a_compiler_of_a_corpus_is_in_a_sandbox(
    corpus: Corpus, toolchain: Toolchain, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang, escaped = scratch.parent / "clang", scratch.parent / "escaped"
    clang.write_text(f'#!/bin/sh\necho > {escaped}\nexec {toolchain.clang} "$@"\n')
    clang.chmod(0o755)
    escaping = dataclasses.replace(toolchain, clang=clang)
    module, kept = _area(corpus), scratch.parent / "kept.o"
    objects = []
    for policy in (None, ConstantPolicy(0)):
        result = rollout(module, policy, _INLINING, escaping, scratch=scratch, keep_object=kept)
        assert result.failure is None and not escaped.exists()
        objects.append(kept.read_bytes())
    # The options of a corpus that the user trusts may name files to write.
    trusted = dataclasses.replace(module, trusted=True)
    for each, value in ((trusted, "1"), (module, "0")):
        monkeypatch.setenv(sandbox.VARIABLE, value)
        for index, policy in enumerate((None, ConstantPolicy(0))):
            result = rollout(each, policy, _INLINING, escaping, scratch=scratch, keep_object=kept)
            assert result.failure is None and kept.read_bytes() == objects[index]
            escaped.unlink()


@pytest.mark.parametrize(("leaves", "is_transient"), [("exit 1", False), ("kill -KILL $$", True)])
def test_files_of_a_killed_compiler_are_removed(
    leaves: str, is_transient: bool, corpus: Corpus, toolchain: Toolchain, scratch: Path
) -> None:
    clang = scratch.parent / "clang"
    # A folder named as the next object would make all later modules of this worker fail.
    wrong = f"mkdir -p {scratch}/module.o/inner; echo > {scratch}/module-1.o.tmp"
    clang.write_text(f"#!/bin/sh\n{wrong}\n{leaves}\n")
    clang.chmod(0o755)
    broken = dataclasses.replace(toolchain, clang=clang)
    result = rollout(_area(corpus), None, _INLINING, broken, scratch=scratch)
    assert result.failure is not None and result.is_transient == is_transient
    assert list(scratch.iterdir()) == []


def test_a_policy_for_another_compiler_is_an_error(corpus: Corpus, toolchain: Toolchain, scratch: Path) -> None:
    with pytest.raises(PolicyError, match="'unheard_of'"):
        rollout(_area(corpus), FeaturePolicy("unheard_of"), _INLINING, toolchain, scratch=scratch)


def test_bitcode_of_a_newer_compiler_is_explained(tmp_path: Path, scratch: Path) -> None:

    newer = shutil.which("clang-22")
    assert newer is not None
    root = tmp_path / "newer"
    root.mkdir()
    corpus = make_small_corpus(root, newer)
    assert json.loads((root / "corpus_description.json").read_text())["modules"]
    results = [rollout(module, None, _INLINING, probed("clang-19"), scratch=scratch) for module in corpus.modules]
    failures = [result.failure for result in results if result.failure is not None]
    # Not all code has an attribute that the older compiler does not know; if it fails, the message explains it.
    for failure in failures:
        assert "newer" in failure
