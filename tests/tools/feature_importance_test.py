"""The command, with both compilers: over a corpus and over its trace it finds the same."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.weights import NetworkWeights
from tests import programs
from tests.small_corpus import make_small_corpus


def _run(program: str, *arguments: str) -> str:
    result = programs.run(f"compiler_opt/tools/{program}.py", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.ci
def test_a_policy_of_one_feature(clang_path: str, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    corpus = make_small_corpus(sources, clang_path)
    kernel = np.zeros((6, 2), np.float32)
    kernel[0] = -1, 1  # By the rank of the first feature.
    costs = np.linspace(-200, 300, 50)
    weights = NetworkWeights(
        ("callsite_cost", "node_count"), (costs, np.arange(9.0)), (kernel,), (np.array([1, 0], np.float32),)
    )
    weights.save(tmp_path / "policy")
    trace = tmp_path / "trace"
    shared = [f"--clang_path={clang_path}", f"--data_path={corpus.root}", "--num_workers=1"]
    _run("generate_default_trace", *shared, f"--output_path={trace}")
    found = []
    for name, source in (("corpus", shared), ("trace", [f"--trace_path={trace}", "--json"])):
        output = tmp_path / f"from_{name}"
        settings = ("--repeats=4", "--num_decisions=400", f"--output_dir={output}")
        printed = _run("feature_importance", *source, f"--policy_path={tmp_path / 'policy'}", *settings)
        if name == "trace":
            result = json.loads(printed)
            assert [each["feature"] for each in result["features"]] == ["callsite_cost", "node_count"]
            assert result["num_projects"] == 2 and result["features"][1]["changed"] == 0
        else:
            assert "of 2 projects, which count the same" in printed
        with (output / "importance.csv").open() as file:
            found.append(list(csv.DictReader(file)))
        assert (output / "importance.svg").read_text().startswith("<?xml")
    first, second = found[0]
    assert (first["feature"], second["feature"]) == ("callsite_cost", "node_count")
    assert float(first["log_prob_change_low"]) > 0
    assert float(second["changed"]) == float(second["log_prob_change"]) == 0
    # Modules come in another order, so other decisions are drawn.
    assert float(found[1][0]["log_prob_change"]) == pytest.approx(float(first["log_prob_change"]), rel=0.5)


def test_corpus_or_trace(tmp_path: Path) -> None:
    result = programs.run(
        "compiler_opt/tools/feature_importance.py", "--policy_path=no/such", f"--output_dir={tmp_path / 'out'}"
    )
    assert result.returncode == 2
    assert "error: expected one of --data_path, a corpus, and --trace_path, a default trace" in result.stderr
    assert not (tmp_path / "out").exists()
