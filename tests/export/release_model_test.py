"""The class for LLVM's ReleaseModeModelRunner: compiled against the real one, it decides as numpy does."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.export.release_model import (
    EMBEDDED_MODELS,
    EmbeddedModel,
    header_text,
    source_text,
    write_release_model,
)
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.spaces.binary import BinaryPolicy
from tests.native.cpp import COMPILERS, DRIVER, build
from tests.real_observations import weights_for

_MODEL = EMBEDDED_MODELS["inlining"]
_RUNNER = DRIVER.with_name("release_model_driver.cpp")


def _build_runner(toolchain: Toolchain, compiler: str, directory: Path, objects: list[Path]) -> Path:
    """With the headers and the library of an installed LLVM."""
    assert toolchain.plugin_headers is not None, f"llvm-{toolchain.version[0]}-dev is not installed"
    config = str(toolchain.tool("llvm-config"))
    libraries = subprocess.run(
        [config, "--link-shared", "--ldflags", "--libs"], capture_output=True, text=True, check=True
    ).stdout.split()
    headers = ["-isystem", str(toolchain.plugin_headers), f"-I{directory}"]
    library_dir = next(word.removeprefix("-L") for word in libraries if word.startswith("-L"))
    options = ["-O1", "-fno-rtti", *headers, *libraries, f"-Wl,-rpath,{library_dir}"]
    return build([_RUNNER, *objects], directory / "runner", compiler, *options)


@pytest.mark.parametrize(
    ("clang_path", "own"),
    [
        pytest.param("clang-22", True, id="clang-22"),
        pytest.param("clang-19", False, id="clang-19-gcc"),
        pytest.param("clang-22", False, id="clang-22-gcc", marks=pytest.mark.slow),
        pytest.param("clang-19", True, id="clang-19", marks=pytest.mark.slow),
    ],
    indirect=["clang_path"],
)
def test_llvms_runner_takes_it_and_decides_alike(
    own: bool, toolchain: Toolchain, observations: dict[str, np.ndarray], tmp_path: Path
) -> None:
    weights = weights_for(observations)
    written = write_release_model(weights, _MODEL, tmp_path)
    assert [path.name for path in written] == ["InlinerSizeModel.h", "InlinerSizeModel.cpp", "InlinerSizeModel.o"]
    compiler = str(toolchain.tool("clang++")) if own else "g++"
    # The header alone is enough; the object may be linked too, as LLVM's cmake does.
    runner = _build_runner(toolchain, compiler, tmp_path, [] if own else [written[2]])
    # The compiler's features come in another order, and there is one that the policy does not know.
    names = ["inlining_default", *reversed(weights.features)]
    columns = {**observations, "inlining_default": np.ones_like(observations["callsite_cost"])}
    np.stack([columns[name] for name in names], axis=-1).tofile(tmp_path / "features")
    subprocess.run([runner, tmp_path / "features", tmp_path / "decisions", *names], check=True)
    logits = BinaryPolicy(weights).logits(observations)
    decided = np.abs(logits[:, 1] - logits[:, 0]) > 1e-5
    expected = logits.argmax(axis=1)
    assert 0.2 < expected.mean() < 0.8
    decisions = np.fromfile(tmp_path / "decisions", np.int64)
    np.testing.assert_array_equal(decisions[decided], expected[decided])


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("problem", EMBEDDED_MODELS)
def test_it_compiles_without_warnings_for_every_problem(compiler: str, problem: str, tmp_path: Path) -> None:
    """As LLVM is built: without exceptions and type information."""
    model = EMBEDDED_MODELS[problem]
    (tmp_path / f"{model.class_name}.h").write_text(header_text(weights_for({"f": np.arange(9)}), model))
    source = tmp_path / f"{model.class_name}.cpp"
    source.write_text(source_text(model))
    build([source], tmp_path / "model.o", compiler, "-c", "-fno-exceptions", "-fno-rtti")


def test_what_is_not_its_own_is_refused() -> None:
    weights = weights_for({"f": np.arange(9), "g": np.arange(9) % 5})
    with pytest.raises(PolicyError, match="expected the name of a feature"):
        header_text(dataclasses.replace(weights, features=("f", 'x"};')), _MODEL)
    with pytest.raises(PolicyError, match="name of a C\\+\\+ class"):
        EmbeddedModel("Model; int x", _MODEL.advice)


def test_without_a_compiler_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="install the package g\\+\\+"):
        write_release_model(weights_for({"f": np.arange(9)}), _MODEL, tmp_path)
    assert list(tmp_path.iterdir()) == []
