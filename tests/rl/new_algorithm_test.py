"""An algorithm is added as `docs/new_algorithm.md` says: one file and one gin file."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.policies.weights import NetworkWeights
from tests import programs
from tests.small_corpus import make_small_corpus

_ITERATIONS = "--gin_bindings=train_eval.num_iterations="


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this package, with what the page shows in it."""
    tree = tmp_path / "tree"
    for folder in ("compiler_opt", "gin_configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(programs.ROOT / folder, tree / folder, ignore=ignored, symlinks=True)
    page = (programs.ROOT / "docs/new_algorithm.md").read_text()
    python, gin, commands = re.findall(r"```(?:python)?\n(.*?)```", page, re.S)
    (tree / "compiler_opt/rl/algorithms/random_search.py").write_text(python)
    (tree / "gin_configs/inlining/random_search_nn_agent.gin").write_text(gin)
    (tree / "command").write_text(commands)
    return tree


def _start(directory: Path) -> NetworkWeights:
    """Decides at random, but always alike."""
    rng, quantiles = np.random.default_rng(0), np.arange(-5.0, 60.0)
    kernels = tuple(rng.normal(0, 0.3, shape).astype("f4") for shape in ((3 * len(FEATURES), 8), (8, 2)))
    weights = NetworkWeights(
        FEATURES, (quantiles,) * len(FEATURES), kernels, (np.zeros(8, "f4"), np.zeros(2, "f4")), {"problem": "inlining"}
    )
    directory.mkdir()
    weights.save(directory)
    return weights


@pytest.mark.slow
def test_the_command_of_the_page_trains_by_it(tree: Path, tmp_path: Path) -> None:
    clang = shutil.which("clang-22")
    assert clang is not None
    (tmp_path / "corpus").mkdir()
    make_small_corpus(tmp_path / "corpus", clang)
    start = _start(tmp_path / "start")
    text = (tree / "command").read_text().replace("\\\n", " ")
    for name, place in {"CORPUS": "corpus", "POLICY": "start", "OUTPUT": "training"}.items():
        text = text.replace(f"${name}", str(tmp_path / place))
    verb, *arguments = text.split()[1:]
    for iterations in (4, 12):
        # The second time, it resumes from its state.
        more = [f"--clang_path={clang}", "--num_workers=2", f"{_ITERATIONS}{iterations}"]
        result = programs.run(f"compiler_opt/tools/{verb}.py", *arguments, *more, tree=tree)
        assert result.returncode == 0, result.stderr
    history = [json.loads(line) for line in (tmp_path / "training/history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in history] == list(range(1, 13))
    kept = np.cumsum([entry["improvement"] > 0 for entry in history])
    assert [entry["kept"] for entry in history] == kept.tolist()
    assert kept[-1] > 0
    found = NetworkWeights.load(tmp_path / "training/policy")
    assert found.metadata["method"] == "random search over the weights"
    np.testing.assert_allclose(np.std(found.kernels[0] - start.kernels[0]), 0.2 * kept[-1] ** 0.5, rtol=0.1)
