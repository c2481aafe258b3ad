"""Builds and runs programs around LLVM's ReleaseModeModelRunner, and compares their decisions with numpy's."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler_opt.export.release_model import EmbeddedModel
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.spaces.learned_policy import outputs
from compiler_opt.tensor_spec import TensorSpec
from tests.native.cpp import build
from tests.real_observations import Decisions

_DRIVER = Path(__file__).with_name("release_model_driver.cpp")


def build_runner(
    model: EmbeddedModel,
    toolchain: Toolchain,
    compiler: str,
    directory: Path,
    objects: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> Path:
    """With the headers and the library of an installed LLVM, and the class's header in a directory."""
    assert toolchain.plugin_headers is not None, f"llvm-{toolchain.version[0]}-dev is not installed"
    config = str(toolchain.tool("llvm-config"))
    libraries = subprocess.run(
        [config, "--link-shared", "--ldflags", "--libs"], capture_output=True, text=True, check=True
    ).stdout.split()
    library_dir = next(word.removeprefix("-L") for word in libraries if word.startswith("-L"))
    macros = {
        "MODEL": model.class_name,
        "MODEL_HEADER": f'"{model.class_name}.h"',
        "ADVICE_TYPE": "float" if model.advice.dtype.kind == "f" else "int64_t",
    }
    return build(
        [_DRIVER, *objects],
        directory / "runner",
        compiler,
        *(f"-D{name}={value}" for name, value in macros.items()),
        *("-O1", "-fno-rtti", "-isystem", str(toolchain.plugin_headers), f"-I{directory}", *options),
        *(*libraries, f"-Wl,-rpath,{library_dir}"),
    )


def run_runner(
    runner: Path,
    model: EmbeddedModel,
    specs: Sequence[TensorSpec],
    rows: bytes,
    directory: Path,
    *,
    selector: str = "",
) -> np.ndarray:
    """The advice for rows of tensors, `[T]`; an AssertionError with what the program printed if it fails."""
    (directory / "features").write_bytes(rows)
    shapes = [(spec, ",".join(map(str, spec.shape))) for spec in specs]
    arguments = [f"{spec.name}:{'f' if spec.dtype.kind == 'f' else 'i'}:{shape}" for spec, shape in shapes]
    command: list[str | Path] = [
        runner,
        directory / "features",
        directory / "decisions",
        selector,
        model.advice.name,
        *arguments,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return np.fromfile(directory / "decisions", model.advice.dtype)


def check_decisions(decisions: Decisions, weights: NetworkWeights, found: np.ndarray) -> None:
    """Advice must be that of the policy in numpy, except where rounding errors decide."""
    space = decisions.problem.decision.action_space
    policy = space.policy(weights)
    inputs = policy.network_inputs(decisions.features)
    greedy = policy.greedy_decisions(inputs, np.zeros(len(decisions.records)))
    assert len(found) == len(decisions.records) > 1000
    if isinstance(space, Continuous):
        assert len(np.unique(greedy.advice)) > 30
        np.testing.assert_array_equal(found, np.rint(found))
        # One rounding error is less than a step, several are a few steps.
        np.testing.assert_allclose(space.quantizer.to_actions(found), greedy.actions, rtol=0, atol=2e-5)
        return
    scores = outputs(weights, inputs.ranks)[:, 0]
    mask = decisions.records["mask"].reshape(len(found), -1) != 0
    by_candidate = np.full(mask.shape, -np.inf)
    by_candidate[mask] = scores
    expected = by_candidate.argmax(axis=1)
    assert mask[np.arange(len(found)), found].all()
    second, best = np.sort(np.where(mask, by_candidate, -np.inf), axis=1)[:, -2:].T
    decided = best - second > 1e-5
    # Candidates with the same inputs tie exactly; the first of them is chosen.
    decided |= best == second
    assert decided.mean() > 0.99 and len(np.unique(expected)) > 10
    np.testing.assert_array_equal(found[decided], expected[decided])
