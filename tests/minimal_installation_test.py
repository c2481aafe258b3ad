"""A minimal installation, without TensorFlow: a Python that finds what its lock lists, and no other package."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.pretrained_index import ENVIRONMENT, PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights
from tests.linked_environment import make_linked_environment
from tests.packaging_test import RUNNING, locked
from tests.small_corpus import SOURCES, make_small_corpus

ROOT = Path(__file__).parents[1]
CLANG = "clang-22"
LACKS = "needs tensorflow and tf_agents, which this minimal installation lacks; run ./bootstrap.sh, or pip install"


@pytest.fixture(scope="module", name="python")
def python_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = (*locked(f"minimal-python{RUNNING}"), "pip")  # pip comes with an environment
    return make_linked_environment(tmp_path_factory.mktemp("minimal") / "venv", names)


@pytest.fixture(scope="module", name="place")
def place_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one pretrained policy, a corpus, its bitcode, and a build with embedded bitcode."""
    place = tmp_path_factory.mktemp("place")
    kernel = np.array([[0, -1], [0, 0], [0, 0]], np.float32)
    quantiles = (np.arange(-100.0, 101.0),)
    weights = NetworkWeights(
        ("callsite_cost",), quantiles, (kernel,), (np.array([0, 0.55], np.float32),), {"problem": "inlining"}
    )
    weights.save(place / "policy")
    PretrainedIndex(place / "pretrained").add("cheap", weights, weights.card())
    (place / "corpus").mkdir()
    make_small_corpus(place / "corpus", CLANG)
    name, source = next(iter(SOURCES.items()))
    (place / "build").mkdir()
    (place / "build" / Path(name).name).write_text(source)
    options = [CLANG, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", Path(name).name, "-o", "x.o"]
    subprocess.run(options, cwd=place / "build", check=True)
    entry = {"directory": str(place / "build"), "file": Path(name).name, "arguments": options}
    (place / "build" / "compile_commands.json").write_text(json.dumps([entry]))
    return place


def run(python: Path, module: str, *flags: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(python), "-m", f"compiler_opt.{module}", *flags],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), ENVIRONMENT: str(cwd / "pretrained")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_it_has_no_tensorflow(python: Path) -> None:
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('tensorflow', 'tf_agents', 'pytest')])"
    printed = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[None, None, None]\n"


WORKING = {
    "doctor": ("tools.doctor", (), "policies can be deployed and evaluated with this compiler"),
    "deploy": ("tools.deploy", ("--output_dir=prefix",), "policy pretrained:cheap "),
    "evaluate": (
        "tools.evaluate",
        ("--data_path=corpus", "--output_dir=results", "--num_workers=2", "--baselines=never"),
        "report: results/report.html",
    ),
    "extract_ir": (
        "tools.extract_ir",
        ("--input=build/compile_commands.json", "--input_type=json", "--output_dir=extracted"),
        "1 modules of 1 objects",
    ),
    "make_corpus": (
        "tools.make_corpus",
        ("--input_dir=corpus", "--output_dir=made", "--default_args=-cc1 -Oz"),
        "4 modules",
    ),
    "combine_training_corpus": ("tools.combine_training_corpus", ("--root_dir=.",), ""),
    "search": (
        "tools.search",
        ("--data_path=corpus", "--output_dir=found", "--budget=3", "--policy_path=pretrained:cheap"),
        "",
    ),
    "optimize": (
        "tools.optimize",
        (
            "--compile_commands=build/compile_commands.json",
            "--link_command=ar rc x.a x.o",
            "--output_dir=searched",
            "--minutes=0.05",
        ),
        "== 3/7 Training: none, pretrained:cheap decides",
    ),
    "fetch_corpus": ("tools.fetch_corpus", ("--list",), "marisa"),
    "export_policy": (
        "tools.export_policy",
        ("--policy_path=pretrained:cheap", "--output_dir=exported", "--format=native,cpp,release_model"),
        "native: exported/network.mlgo",
    ),
}


FIRST = ("evaluate", "export_policy")
"""They import what the others import."""


@pytest.mark.ci
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in WORKING]
)
def test_a_command_that_needs_none(command: str, python: Path, place: Path) -> None:
    module, flags, printed = WORKING[command]
    result = run(python, module, *flags, *_clang(command), cwd=place)
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout


NEEDING = {
    "generate_default_trace": ("tools.generate_default_trace", ("--data_path=corpus", "--output_path=trace")),
    "train_locally": (
        "rl.train_locally",
        ("--output_dir=root", "--data_path=corpus", "--warmstart_policy_dir=pretrained:cheap"),
    ),
    "optimize": (
        "tools.optimize",
        (
            "--compile_commands=build/compile_commands.json",
            "--link_command=ar rc x.a x.o",
            "--output_dir=optimized",
            "--search_minutes=0",
        ),
    ),
    "export_policy": (
        "tools.export_policy",
        ("--policy_path=pretrained:cheap", "--output_dir=exported", "--format=tflite"),
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("command", NEEDING)
def test_a_command_that_trains_says_what_it_lacks(command: str, python: Path, place: Path) -> None:
    module, flags = NEEDING[command]
    result = run(python, module, *flags, *_clang(command), cwd=place)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert LACKS in result.stderr
    assert not {"trace", "root", "optimized"} & {path.name for path in place.iterdir()}, "nothing is left"


def _clang(command: str) -> tuple[str, ...]:
    if command in ("doctor", "deploy", "evaluate", "search", "generate_default_trace", "train_locally", "optimize"):
        return (f"--clang_path={CLANG}",)
    return ()
