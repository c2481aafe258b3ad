"""The commands that make policies of others, or of nothing."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.export.random_policy import random_policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.tensorflow_loading import load_tensorflow
from tests import programs

load_tensorflow()
tf: Any = importlib.import_module("tensorflow")


def _run(program: str, *arguments: str) -> str:
    result = programs.run(f"compiler_opt/tools/{program}.py", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "advice", "types"),
    [
        ("inlining", ("inlining_decision", tf.int64), {"callsite_cost": tf.int64}),
        (
            *("regalloc_priority", ("priority", tf.float32)),
            {"li_size": tf.int64, "stage": tf.int64, "weight": tf.float32},
        ),
    ],
)
def test_models_for_tests_and_their_combination(
    task: str, advice: tuple[str, Any], types: dict[str, Any], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for seed, (path, flag) in enumerate(zip(paths, ("output_dir", "root_dir"), strict=True)):
        assert f"random weights, seed {seed}" in _run(
            "generate_test_model", f"--compile_task={task}", f"--{flag}={path}", f"--seed={seed}"
        )
    first, second = (NetworkWeights.load(path) for path in paths)
    assert first.features == problems.load(task).decision.feature_names and first.metadata["problem"] == task
    assert [len(bias) for bias in first.biases] == [16, 2]
    assert first.checksum() != second.checksum()
    feature = first.features[0]
    threshold = float(first.quantiles[0][len(first.quantiles[0]) // 2])
    output = tmp_path / "both"
    printed = _run(
        "policy/combine",
        *(f"--policy_path={path}" for path in paths),
        f"--feature={feature}",
        f"--threshold={threshold!r}",
        f"--output_dir={output}",
    )
    assert f"2 policies, by {feature} at {threshold:g}, dense layers 34-34-2" in printed
    for path in (paths[0], output):
        signature = tf.saved_model.load(str(path)).signatures["action"]
        assert signature.structured_outputs[advice[0]].dtype == advice[1]
        inputs = signature.structured_input_signature[1]
        assert {name: inputs[name].dtype for name in types} == types
        assert (path / "model.tflite").exists()


@pytest.mark.parametrize(("task", "num_outputs"), [("inlining", 2), ("regalloc_eviction", 1)])
def test_the_seed_gives_the_weights(task: str, num_outputs: int) -> None:
    problem = problems.load(task)
    quantiles = {name: np.arange(5.0) for name in problem.decision.feature_names}
    first, same, other = (random_policy(problem, quantiles, [5, 3], seed=seed) for seed in (7, 7, 8))
    assert first.checksum() == same.checksum() != other.checksum()
    assert [len(bias) for bias in first.biases] == [5, 3, num_outputs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocab_path=no/such"], "error: no/such: expected a vocabulary"),
        (["--fc_layer_params=16,x"], "expected numbers over 0, such as 64,64"),
    ],
)
def test_no_model_for_tests(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = programs.run("compiler_opt/tools/generate_test_model.py", *arguments, f"--output_dir={tmp_path / 'a'}")
    assert result.returncode == 2 and message in result.stderr
    assert not list(tmp_path.iterdir())
