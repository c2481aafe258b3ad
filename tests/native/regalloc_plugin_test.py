"""The register allocator's plugin in real compilers: it reports the default decisions and changes nothing else."""

import dataclasses
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.regalloc_eviction.rules import rebuilt_choices
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import plugin, regalloc_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, Site
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy
from compiler_opt.problem import Problem
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.spaces.masked_categorical import MaskedCategorical
from compiler_opt.spaces.native import native_blob
from tests.regalloc_networks import random_network
from tests.small_corpus import make_busy_corpus

_DEFAULT_FEATURES = {"regalloc_eviction": "eviction_default", "regalloc_priority": "priority_default"}
_CHANNEL = RolloutSettings(backend="channel")


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Path:
    return regalloc_plugin.regalloc_plugin(toolchain)


@pytest.fixture(scope="module")
def corpus(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_busy_corpus(tmp_path_factory.mktemp("busy"), str(toolchain.clang))


@pytest.fixture(params=_DEFAULT_FEATURES)
def problem(request: pytest.FixtureRequest) -> Problem:
    return problems.load(request.param)


class _LastLegal(Policy):
    """Evicts the last legal candidate in allocation order."""

    name = "last"

    def start(self, header: Header, seed: int) -> Decider:
        dtype = record_dtype(header.features)

        class Deciding(Decider):
            def __call__(self, observation: bytes) -> int:
                return int(np.flatnonzero(np.frombuffer(observation, dtype)["mask"].reshape(-1)[:-1])[-1])

        return Deciding()


def _other_policy(problem: Problem) -> Policy:
    """A policy whose decisions differ from the default's."""
    return _LastLegal() if isinstance(problem.decision.action_space, MaskedCategorical) else FeaturePolicy("stage")


def _compiled(
    module: Module,
    policy: Policy | None,
    problem: Problem,
    toolchain: Toolchain,
    place: Path,
    settings: RolloutSettings = RolloutSettings(),
) -> bytes:
    """Returns the object."""
    kept = place / "kept.o"
    result = rollout(module, policy, problem, toolchain, scratch=place, seed=1, settings=settings, keep_object=kept)
    assert result.failure is None
    return kept.read_bytes()


@pytest.mark.slow
def test_gcc_compiles_it_without_warnings(toolchain: Toolchain) -> None:
    # The library is built by LLVM's own compiler.
    gcc = shutil.which("g++")
    assert gcc is not None, "g++ is not installed; ./run_tests.sh installs what the tests need"
    flags = [*plugin.FLAGS, "-Wall", "-Wextra", "-Werror", *plugin.llvm_definitions(toolchain), "-fsyntax-only"]
    source = str(regalloc_plugin.SOURCES[0])
    subprocess.run([gcc, *flags, "-isystem", str(toolchain.plugin_headers), source], check=True)


@pytest.mark.both_compilers
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_another_layout_of_member_pointers_is_refused(target: str, toolchain: Toolchain) -> None:
    """In one line that says so, even where the target's headers are missing."""
    header = str(plugin.NATIVE / "model_runner.h")
    command = [str(toolchain.tool("clang++")), f"--target={target}", "-x", "c++", "-fsyntax-only", header]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if "error: " in line]
    assert "the register-allocation plugin needs x86-64" in errors[0]


@pytest.mark.ci
@pytest.mark.both_compilers
def test_reported_default_decisions_give_the_plain_object(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path
) -> None:
    assert library.is_file()
    default = FeaturePolicy(_DEFAULT_FEATURES[problem.name])
    differs = []
    for module in corpus.modules:
        plain = _compiled(module, None, problem, toolchain, tmp_path)
        assert _compiled(module, default, problem, toolchain, tmp_path) == plain
        differs.append(_compiled(module, _other_policy(problem), problem, toolchain, tmp_path) != plain)
    # The modules have decisions that matter.
    assert any(differs)


@pytest.mark.ci
@pytest.mark.both_compilers
def test_other_decisions_give_the_object_of_llvms_channel(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    policy = _other_policy(problem)
    for module in corpus.modules:
        by_plugin = _compiled(module, policy, problem, toolchain, tmp_path)
        assert by_plugin == _compiled(module, policy, problem, toolchain, tmp_path, _CHANNEL)


def test_a_trajectory_has_one_feature_more_than_that_of_llvms_channel(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    name = _DEFAULT_FEATURES[problem.name]
    found = rollout(corpus.modules[0], FeaturePolicy(name), problem, toolchain, scratch=tmp_path).trajectory
    assert found is not None
    assert problem.decision.default_policy is not None
    default = rollout(
        corpus.modules[0], problem.decision.default_policy, problem, toolchain, scratch=tmp_path, settings=_CHANNEL
    ).trajectory
    assert default is not None
    assert found.header.names == (*default.header.names, name)
    assert found.header.features[:-1] == default.header.features
    assert found.header.advice == default.header.advice
    features = found.features()
    np.testing.assert_array_equal(features[name].reshape(-1), found.advice)
    if problem.name == "regalloc_eviction":
        # The decisions rebuilt from the channel's features are mostly the same.
        assert (rebuilt_choices(features) == found.advice).mean() > 0.9
        assert len(set(found.advice.tolist())) > 3


def _command(
    library: Path, problem: Problem, corpus: Corpus, toolchain: Toolchain, place: Path
) -> tuple[list[str], Path]:
    module, output = corpus.modules[0], place / "own.o"
    flags = regalloc_plugin.options(library, problem.decision.advisor, regalloc_plugin.make_nowhere(place))
    return compile_command(toolchain.clang, module.options(), module.bitcode_path, output, flags), output


def test_it_writes_a_log(problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path) -> None:
    command, output = _command(library, problem, corpus, toolchain, tmp_path)
    log = tmp_path / "log"
    subprocess.run(command, env=regalloc_plugin.environment(log=log), check=True)
    read = decode_log(log.read_bytes())
    expected = rollout(
        corpus.modules[0], FeaturePolicy(_DEFAULT_FEATURES[problem.name]), problem, toolchain, scratch=tmp_path
    )
    assert expected.trajectory is not None
    assert len(read) == len(expected.trajectory) > 20
    name = _DEFAULT_FEATURES[problem.name]
    np.testing.assert_array_equal(read.columns([name])[name].reshape(-1), expected.trajectory.advice)
    assert output.read_bytes() == _compiled(corpus.modules[0], None, problem, toolchain, tmp_path)


@pytest.mark.ci
@pytest.mark.both_compilers
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_policy_decides_in_the_compiler_as_it_does_over_the_channel(
    seed: int, problem: Problem, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    policy = problem.decision.policy(random_network(problem, corpus, toolchain, tmp_path, seed))
    # An overriding policy runs in this process, over the plugin's channel.
    over_channel = OverridingPolicy(policy, Decisions({Site.in_function("none such", 0): 0}))
    num_decisions = 0
    for module in corpus.modules:
        within = rollout(module, policy, problem, toolchain, scratch=tmp_path).trajectory
        asked = rollout(module, over_channel, problem, toolchain, scratch=tmp_path).trajectory
        assert (within is None) == (asked is None)
        if within is None or asked is None:
            continue
        assert within.header == asked.header
        if isinstance(problem.decision.action_space, Continuous):
            # Rounding errors of the network change priorities by some steps, and thereby all later features.
            np.testing.assert_allclose(within.advice[:5], asked.advice[:5], atol=4)
        else:
            np.testing.assert_array_equal(within.advice, asked.advice)
            assert within.observations == asked.observations
            by_plugin = _compiled(module, policy, problem, toolchain, tmp_path)
            assert by_plugin == _compiled(module, over_channel, problem, toolchain, tmp_path)
        num_decisions += len(within)
    assert num_decisions > 100


def test_an_unusable_policy_is_an_error_only_if_strict(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path
) -> None:
    weights = random_network(problem, corpus, toolchain, tmp_path, 0)
    good, plain = (
        problem.decision.native_form(weights),
        _compiled(corpus.modules[0], None, problem, toolchain, tmp_path),
    )
    renamed = dataclasses.replace(weights, features=("no_such_input", *weights.features[1:]))
    for content, reason in (
        (b"", "empty, or not a regular file"),
        (good[:-8], "the policy network is truncated"),
        (problem.decision.native_form(renamed), "needs the input no_such_input"),
        (native_blob(weights, of_integers=False, about={"problem": "inlining"}), "found one for inlining"),
    ):
        blob = tmp_path / "policy.mlgo"
        blob.write_bytes(content)
        command, output = _command(library, problem, corpus, toolchain, tmp_path)
        for strict in (False, True):
            output.unlink(missing_ok=True)
            variables = regalloc_plugin.environment(policy=blob, strict=strict)
            result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            assert reason in result.stderr
            assert result.stderr.startswith("error: mlgo: " if strict else "warning: mlgo: ")
            assert result.returncode == int(strict)
            assert len(result.stderr.splitlines()) == 1
            if not strict:
                assert output.read_bytes() == plain


def test_settings_without_effect_are_an_error_if_strict(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path
) -> None:
    command, output = _command(library, problem, corpus, toolchain, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGO_")}
    module = corpus.modules[0]
    unasked = compile_command(
        toolchain.clang, module.options(), module.bitcode_path, output, [plugin.load_option(library)]
    )
    log = {"MLGO_REGALLOC_MODE": "default", "MLGO_REGALLOC_LOG": str(tmp_path / "log")}
    for words, variables, reason in (
        (command, {}, "no policy: none is built in, and MLGO_REGALLOC_POLICY names none"),
        (unasked, log, "the channel or log cannot be used: the command line does not enable an ML advisor"),
    ):
        strict = environment | variables | {"MLGO_REGALLOC_STRICT": "1"}
        result = subprocess.run(words, env=strict, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith(f"error: mlgo: {reason}")
        assert not output.exists()


def test_a_file_that_cannot_be_opened_is_named(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path
) -> None:
    command, output = _command(library, problem, corpus, toolchain, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGO_")}
    for variables, reason in (
        ({"MLGO_REGALLOC_LOG": str(tmp_path / "no" / "log")}, "no/log: No such file or directory"),
        ({"MLGO_REGALLOC_CHANNEL": str(tmp_path / "no")}, "no.in: No such file or directory"),
    ):
        result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("error: mlgo: ")
        assert result.stderr.rstrip().endswith(reason)
        assert not output.exists()


def test_it_fails_when_the_channel_is_closed(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, library: Path, tmp_path: Path
) -> None:
    command, output = _command(library, problem, corpus, toolchain, tmp_path)
    base = tmp_path / "channel"
    for ending in (".in", ".out"):
        os.mkfifo(f"{base}{ending}")
    with subprocess.Popen(
        command, env=regalloc_plugin.environment(channel=base), stderr=subprocess.PIPE, text=True
    ) as child:
        with Path(f"{base}.in").open("wb"), Path(f"{base}.out").open("rb") as observations:
            assert observations.readline().startswith(b'{"features":')
        _, said = child.communicate(timeout=60)
    # Depends on which end it notices first. LLVM's own runner would read for ever.
    assert (child.returncode == 1 and "error: mlgo: " in said) or child.returncode == -signal.SIGPIPE
    assert not output.exists()


def test_a_compiler_without_headers_uses_llvms_channel(
    problem: Problem, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    bare = dataclasses.replace(toolchain, clang=toolchain.clang.resolve(), plugin_headers=None)
    with pytest.raises(ToolchainError, match="building the regalloc plugin needs LLVM's headers"):
        regalloc_plugin.regalloc_plugin(bare)
    assert problem.decision.default_policy is not None
    for policy in (problem.decision.default_policy, _other_policy(problem)):
        found = rollout(corpus.modules[0], policy, problem, bare, scratch=tmp_path)
        assert found.failure is None and found.trajectory is not None
        assert _DEFAULT_FEATURES[problem.name] not in found.trajectory.header.names
        with pytest.raises(ToolchainError, match="needs LLVM's headers"):
            settings = RolloutSettings(backend="plugin")
            rollout(corpus.modules[0], policy, problem, bare, scratch=tmp_path, settings=settings)
