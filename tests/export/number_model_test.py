"""A policy that answers with a number, saved: TensorFlow's advice is numpy's, on what compilers send."""

import dataclasses
import importlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import rollout
from compiler_opt.decisions.regalloc_priority import ADVICE, FEATURES
from compiler_opt.errors import PolicyError
from compiler_opt.export.formats import export_policy
from compiler_opt.export.saved_model import save_policy
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.continuous import ContinuousPolicy
from tests.small_corpus import make_busy_corpus

# After `compiler_opt.export`, which says which Keras it is to use.
tf: Any = importlib.import_module("tensorflow")

_PROBLEM = problems.load("regalloc_priority")


@pytest.fixture(scope="module")
def sent(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Header, bytes]:
    """Header and observations of real compilations."""
    place = tmp_path_factory.mktemp("sent")
    corpus = make_busy_corpus(place, str(toolchain.clang))
    results = [
        rollout(module, _PROBLEM.decision.default_policy, _PROBLEM, toolchain, scratch=place)
        for module in corpus.modules
    ]
    trajectories = [result.trajectory for result in results if result.trajectory is not None]
    return trajectories[0].header, b"".join(trajectory.observations for trajectory in trajectories)


def _weights(features: dict[str, np.ndarray]) -> NetworkWeights:
    """Random, over the quantiles of what was sent; its advice goes beyond both ends of the scale."""
    rng = np.random.default_rng(1)
    columns = [np.nan_to_num(features[name].reshape(-1)).astype("f8") for name in FEATURES]
    sizes = (3 * len(columns), 16, 16, 2)
    kernels = [rng.normal(0, np.sqrt(2 / rows), (rows, width)) for rows, width in itertools.pairwise(sizes)]
    kernels[-1] *= 8
    return NetworkWeights(
        FEATURES,
        tuple(np.quantile(column, np.linspace(0, 1, 40), method="inverted_cdf") for column in columns),
        tuple(kernel.astype("f4") for kernel in kernels),
        tuple(rng.normal(0, 0.3, size).astype("f4") for size in sizes[1:]),
        {"problem": "regalloc_priority"},
    )


@pytest.mark.ci
def test_the_saved_model_advises_as_numpy_does(sent: tuple[Header, bytes], tmp_path: Path) -> None:
    header, observations = sent
    features = header.decode(observations)
    weights = _weights(features)
    save_policy(tmp_path / "policy", weights, _PROBLEM.decision.action_space, header.advice.name, header.features)
    decide = ContinuousPolicy(weights, ADVICE).start(header, 0)
    size = header.observation_bytes
    expected = np.array(
        [decide(observations[start : start + size]) for start in range(0, len(observations), size)], "f4"
    )
    assert len(expected) > 100 and len(set(expected.tolist())) > 30
    assert np.isposinf(features["weight"]).any()

    model: Any = tf.saved_model.load(str(tmp_path / "policy"))  # its variables live as long as it does
    signature_of_model = model.signatures["action"]
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}

    def advise(row: dict[str, Any]) -> Any:
        inputs = {name: tf.reshape(value, [1]) for name, value in row.items()}
        return signature_of_model(**inputs, **others)[header.advice.name][0]

    rows = {name: features[name].reshape(-1) for name in FEATURES}
    found = tf.function(lambda rows: tf.map_fn(advise, rows, fn_output_signature=tf.float32))(rows).numpy()
    np.testing.assert_array_equal(found, np.rint(found))
    # TensorFlow's sums differ from numpy's by rounding errors; a step of the advice is less than that.
    np.testing.assert_allclose(ADVICE.to_actions(found), ADVICE.to_actions(expected), atol=1e-4)
    names = {path.name for path in (tmp_path / "policy").iterdir()}
    forms = {"saved_model.pb", "network.mlgo", "model.tflite", "output_spec.json"}
    assert {*forms, "network.npz", "model_card.json"} <= names


@pytest.mark.parametrize(
    ("problem", "name", "mend"),
    [
        ("regalloc_eviction", "tflite", "expected a network with 1 outputs, found 2"),
        ("inlinning", "native", "expected one of inlining, regalloc_eviction"),
    ],
)
def test_formats_that_are_not_there_are_refused(problem: str, name: str, mend: str, tmp_path: Path) -> None:
    features = {"li_size": np.arange(9), "stage": np.ones(9, int), "weight": np.ones(9, "f4")}
    dataclasses.replace(_weights(features), metadata={"problem": problem}).save(tmp_path)
    with pytest.raises(PolicyError, match=mend):
        export_policy(tmp_path, tmp_path / "out", [name])
    assert not (tmp_path / "out").exists()


def test_a_compiler_that_sends_less_is_refused(sent: tuple[Header, bytes], tmp_path: Path) -> None:
    header, observations = sent
    weights = _weights(header.decode(observations))
    less = [spec for spec in header.features if spec.name != "stage"]
    with pytest.raises(PolicyError, match="does not send: stage"):
        save_policy(tmp_path / "policy", weights, _PROBLEM.decision.action_space, header.advice.name, less)
    assert not (tmp_path / "policy").exists()
