"""The classes for LLVM's ReleaseModeModelRunner: compiled against the real one, they decide as numpy does."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.export.release_model import (
    EMBEDDED_MODELS,
    EmbeddedModel,
    header_text,
    source_text,
    write_release_model,
)
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tensor_spec import TensorSpec
from tests.native.cpp import COMPILERS, build
from tests.native.release_models import build_runner, check_decisions, run_runner
from tests.real_observations import Decisions, weights_for
from tests.regalloc_networks import random_network_over

_INLINING = problems.load("inlining")
_MODEL = EMBEDDED_MODELS["inlining"]
_ONE_COMPILER = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clang_path", "own"),
    [
        pytest.param("clang-22", False, id="clang-22-gcc"),
        # Further tests compile the header alone with this clang.
        pytest.param("clang-22", True, id="clang-22"),
        pytest.param("clang-19", False, id="clang-19-gcc"),
        pytest.param("clang-19", True, id="clang-19"),
    ],
    indirect=["clang_path"],
)
def test_llvms_runner_takes_it_and_decides_alike(
    own: bool, toolchain: Toolchain, observations: dict[str, np.ndarray], tmp_path: Path
) -> None:
    weights = weights_for(observations)
    written = write_release_model({"": weights}, _INLINING.decision, _MODEL, tmp_path)
    assert [path.name for path in written] == ["InlinerSizeModel.h", "InlinerSizeModel.cpp", "InlinerSizeModel.o"]
    compiler = str(toolchain.tool("clang++")) if own else "g++"
    # The header alone is enough; the object may be linked too, as LLVM's cmake does.
    runner = build_runner(_MODEL, toolchain, compiler, tmp_path, [] if own else [written[2]])
    # The compiler's features come in another order, and there is one that the policy does not know.
    names = ["inlining_default", *reversed(weights.features)]
    columns = {**observations, "inlining_default": np.ones_like(observations["callsite_cost"])}
    rows = np.stack([columns[name] for name in names], axis=-1)
    specs = [TensorSpec(name, np.dtype("i8"), (1,)) for name in names]
    decisions = run_runner(runner, _MODEL, specs, rows.tobytes(), tmp_path)
    _check_inlining(weights, observations, decisions)


def _check_inlining(weights: NetworkWeights, observations: Mapping[str, np.ndarray], decisions: np.ndarray) -> None:
    off, on = BinaryPolicy(weights).logits(observations).T
    certainty = np.abs(on - off) - weights.margin
    decided = np.abs(certainty) > 1e-5
    rebuilt_default = observations["cost_estimate"] < observations["threshold"]
    expected = np.where(certainty < 0, rebuilt_default, on > off)
    assert 0.2 < expected.mean() < 0.8
    np.testing.assert_array_equal(decisions[decided], expected[decided])


@pytest.mark.slow
@_ONE_COMPILER
def test_evictions_are_numpys_with_the_default_rebuilt(
    toolchain: Toolchain, evictions: Decisions, tmp_path: Path
) -> None:
    _check_selected(evictions, toolchain, tmp_path)


@pytest.mark.slow
@_ONE_COMPILER
def test_priorities_are_numpys(toolchain: Toolchain, priorities: Decisions, tmp_path: Path) -> None:
    _check_selected(priorities, toolchain, tmp_path)


def _check_selected(decisions: Decisions, toolchain: Toolchain, directory: Path) -> None:
    """Two policies in one class, chosen by their names."""
    model = EMBEDDED_MODELS[decisions.problem.name]
    policies = {
        name: random_network_over(decisions.problem, decisions.features, seed)
        for seed, name in enumerate(("small", "fast-2"))
    }
    write_release_model(policies, decisions.problem.decision, model, directory)
    runner = build_runner(model, toolchain, str(toolchain.tool("clang++")), directory)
    specs, rows = decisions.header.features, decisions.records.tobytes()
    found = {name: run_runner(runner, model, specs, rows, directory, selector=name) for name in policies}
    for name, weights in policies.items():
        check_decisions(decisions, weights, found[name])
    assert (found["small"] != found["fast-2"]).mean() > 0.2


@pytest.mark.ci
@_ONE_COMPILER
def test_an_inlining_policy_is_selected_by_its_name(
    toolchain: Toolchain, observations: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Also if the policies observe different features, or one has a margin."""
    fewer = {name: observations[name] for name in list(observations)[5:]}
    careful = weights_for(observations, seed=3).with_margin(10.0)
    policies = {"first": weights_for(observations, seed=1), "second": weights_for(fewer, seed=2), "careful": careful}
    write_release_model(policies, _INLINING.decision, _MODEL, tmp_path)
    runner = build_runner(_MODEL, toolchain, str(toolchain.tool("clang++")), tmp_path)
    specs = [TensorSpec(name, np.dtype("i8"), (1,)) for name in observations]
    rows = np.stack(list(observations.values()), axis=-1).tobytes()
    for name, weights in policies.items():
        _check_inlining(weights, observations, run_runner(runner, _MODEL, specs, rows, tmp_path, selector=name))
    for selector, message in (
        ("third", "llvm::InlinerSizeModel: has no policy of the name .* expected one of first, second, careful"),
        ("", "A model selector was not specified"),
    ):
        with pytest.raises(AssertionError, match=message):
            run_runner(runner, _MODEL, specs, rows, tmp_path, selector=selector)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "compiler"),
    [
        # By default each problem and each compiler once.
        pytest.param(problem, compiler, marks=() if row == column else pytest.mark.slow)
        for row, problem in enumerate(EMBEDDED_MODELS)
        for column, compiler in enumerate(COMPILERS)
    ],
)
def test_it_compiles_without_warnings_for_every_problem(compiler: str, problem: str, tmp_path: Path) -> None:
    """As LLVM is built: without exceptions and type information."""
    model = EMBEDDED_MODELS[problem]
    (tmp_path / f"{model.class_name}.h").write_text(_header({"": _small_weights(problem)}, problem))
    source = tmp_path / f"{model.class_name}.cpp"
    source.write_text(source_text(model))
    build([source], tmp_path / "model.o", compiler, "-c", "-fno-exceptions", "-fno-rtti")


def _small_weights(problem: str) -> NetworkWeights:
    names: Sequence[str] = ("f",) if problem == "inlining" else problems.load(problem).decision.feature_names
    weights = weights_for({name: np.arange(9) for name in names}, hidden=(4,))
    outputs = problems.load(problem).decision.action_space.num_outputs
    kernels = (*weights.kernels[:-1], weights.kernels[-1][:, :outputs])
    biases = (*weights.biases[:-1], weights.biases[-1][:outputs])
    return NetworkWeights(weights.features, weights.quantiles, kernels, biases, {"problem": problem})


def _header(policies: Mapping[str, NetworkWeights], problem: str) -> str:
    return header_text(policies, problems.load(problem).decision, EMBEDDED_MODELS[problem])


def test_what_is_not_its_own_is_refused() -> None:
    weights = weights_for({"f": np.arange(9), "g": np.arange(9) % 5})
    with pytest.raises(PolicyError, match="expected the name of a feature"):
        _header({"": dataclasses.replace(weights, features=("f", 'x"};'))}, "inlining")
    with pytest.raises(PolicyError, match="expected the name of a policy, found 'a b'"):
        _header({"a b": weights}, "inlining")
    with pytest.raises(PolicyError, match="expected a network with 1 outputs, found 2"):
        _header({"": weights}, "regalloc_eviction")
    with pytest.raises(PolicyError, match="name of a C\\+\\+ class"):
        EmbeddedModel("Model; int x", _MODEL.advice)


def test_the_features_are_those_that_compilers_send(evictions: Decisions, priorities: Decisions) -> None:
    for decisions in (evictions, priorities):
        model = EMBEDDED_MODELS[decisions.problem.name]
        assert (model.features, model.advice) == (decisions.header.features, decisions.header.advice)


def test_without_a_compiler_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="install the package g\\+\\+"):
        write_release_model({"": weights_for({"f": np.arange(9)})}, _INLINING.decision, _MODEL, tmp_path)
    assert list(tmp_path.iterdir()) == []
