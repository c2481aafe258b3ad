"""A policy that sees embeddings, saved: TensorFlow decides as numpy does, by tensors of the compiler's own shapes."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError
from compiler_opt.export.formats import export_policy
from compiler_opt.export.saved_model import save_policy
from compiler_opt.llvm.ir2vec import components
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.heads.networks import assign
from compiler_opt.tensor_spec import TensorSpec
from tests.ir2vec_vocabulary import random_network

# After `compiler_opt.export`, which says which Keras it is to use.
tf: Any = importlib.import_module("tensorflow")

_INLINING = problems.load("inlining")
_COUNT, _DIMENSIONS = 300, 4
_NUMBERS = tuple(f"{side}_embedding_{index}" for side in ("callee", "caller") for index in range(_DIMENSIONS))
_HEADER = Header(
    tuple(TensorSpec(name, np.dtype("i8"), (1,)) for name in ("threshold", "cost_estimate"))
    + tuple(TensorSpec(name, np.dtype("f4"), ()) for name in _NUMBERS),
    TensorSpec("inlining_decision", np.dtype("i8"), (1,)),
)


@pytest.fixture(scope="module")
def records() -> np.ndarray:
    """Decisions as the compiler sends them; numbers that are quantiles, infinite ones and ties among them."""
    draw = np.random.default_rng(2)
    records = np.zeros(_COUNT, [(spec.name, spec.dtype, spec.shape) for spec in _HEADER.features])
    records["threshold"], records["cost_estimate"] = draw.integers(-50, 50, (2, _COUNT, 1))
    for name in _NUMBERS:
        records[name] = np.where(draw.random(_COUNT) < 0.2, 0.5, draw.normal(size=_COUNT))
    records["caller_embedding_1"][:9] = np.inf
    return records


@pytest.fixture(scope="module")
def weights(records: np.ndarray) -> NetworkWeights:
    return random_network({name: np.nan_to_num(records[name][::3]) for name in _HEADER.names})


@pytest.fixture(scope="module")
def saved(weights: NetworkWeights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved") / "policy"
    save_policy(directory, weights, _INLINING.decision.action_space, "inlining_decision", _HEADER.features)
    return directory


@pytest.mark.ci
def test_all_forms_decide_the_same(records: np.ndarray, weights: NetworkWeights, saved: Path) -> None:
    features = _HEADER.decode(records.tobytes())
    logits = BinaryPolicy(weights).logits(features)
    decide = BinaryPolicy(NetworkWeights.load(saved)).start(_HEADER, 0)
    expected = np.array([decide(record.tobytes()) for record in records])
    assert 20 < expected.sum() < _COUNT - 20
    np.testing.assert_array_equal(expected, logits.argmax(axis=-1))

    quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
    kind = _INLINING.decision.head(quantiles, _HEADER.features)
    assert set(kind.features) == set(weights.features)
    order = [weights.features.index(name) for name in kind.features]
    kernel = weights.kernels[0].reshape(len(order), 3, -1)[order].reshape(weights.kernels[0].shape)
    actor = kind.actor("inlining_decision", NetworkConfig((16,), (8,)), seed=1)
    assign(
        actor,
        NetworkWeights(kind.features, kind.quantiles, (kernel, *weights.kernels[1:]), weights.biases),
    )
    observations = {name: tf.constant(values) for name, values in kind.observe(features).items()}
    distribution, _ = actor(observations, step_type=tf.ones(_COUNT, tf.int32), network_state=())
    np.testing.assert_allclose(distribution.logits.numpy(), logits, atol=1e-4)

    model: Any = tf.saved_model.load(str(saved))  # its variables live as long as it does
    action = model.signatures["action"]
    inputs = {name: spec for name, spec in action.structured_input_signature[1].items() if "embedding" in name}
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in inputs.items()} == {
        name: ([1, _DIMENSIONS], tf.float32) for name in ("callee_embedding", "caller_embedding")
    }
    others = {"step_type": tf.zeros([1], tf.int32), "reward": tf.zeros([1]), "discount": tf.ones([1])}
    for record, advice in zip(records[:60], expected[:60], strict=True):
        sent: dict[str, Any] = {name: tf.constant(record[name]) for name in ("threshold", "cost_estimate")}
        for side in ("callee", "caller"):
            sent[f"{side}_embedding"] = tf.constant([[record[f"{side}_embedding_{i}"] for i in range(_DIMENSIONS)]])
        assert action(**sent, **others)["inlining_decision"].numpy().tolist() == [advice]


def test_forms_of_integers_are_refused(saved: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in saved.iterdir() if path.suffix in (".mlgo", ".tflite")) == []
    assert components(NetworkWeights.load(saved).features)
    for form in ("native", "cpp", "release_model", "tflite"):
        with pytest.raises(PolicyError, match=f"observes IR2Vec embeddings, which the format {form} cannot"):
            export_policy(saved, tmp_path, ["saved_model", form])
    with pytest.raises(PolicyError, match="observes IR2Vec embeddings, so it has no native form"):
        _INLINING.decision.native_form(NetworkWeights.load(saved))
    assert list(tmp_path.iterdir()) == []
