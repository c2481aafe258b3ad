"""A policy as `model.tflite`, for a clang in LLVM's development mode.

LLVM (`llvm/lib/Analysis/TFLiteUtils.cpp`) looks up each input by `action_` + the feature's name, and the advice by the
name in `output_spec.json`, each followed by its port. The model may lack some of LLVM's features, but LLVM must fill
all of its inputs. LLVM's interpreter has only TFLite's builtin operations, so quantile ranks are computed by
comparisons instead of a search.

A model decides greedily or samples; one that samples also outputs its logits, from which log probabilities are
computed.
"""

import json
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.collect.backends.development import LOGITS, OUTPUT_SPEC_FILE, SEED_MARKS, TFLITE_FILE
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.quantile_encoder import QuantileEncoder
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tensorflow_loading import stderr_held

SIGNATURE = "action"
"""Name of the SavedModel's signature, with which TensorFlow prefixes the inputs' names."""


class _Network(tf.Module):
    def __init__(self, weights: NetworkWeights, action_name: str, temperature: float):
        super().__init__()
        self._action_name = action_name
        self._temperature = temperature
        self._features = weights.features
        thresholds = QuantileEncoder(weights.quantiles).integer_thresholds
        longest = max(len(each.values) for each in thresholds)
        # Padding has a count of 0.
        self._thresholds = np.array([np.pad(each.values, (0, longest - len(each.values))) for each in thresholds])
        counts = [np.pad(each.counts, (0, longest - len(each.values))) for each in thresholds]
        self._counts = np.array(counts, np.float32)
        self._lengths = np.array([[len(column)] for column in weights.quantiles], np.float32)
        # Variables, because the outputs of functions without variables are named differently.
        self._layers = [
            (tf.Variable(kernel), tf.Variable(bias))
            for kernel, bias in zip(weights.kernels, weights.biases, strict=True)
        ]

    def __call__(self, **features: tf.Tensor) -> dict[str, tf.Tensor]:
        values = tf.stack([tf.reshape(features[name], [1]) for name in self._features])  # [F, 1]
        reached = tf.cast(values >= self._thresholds, tf.float32) * self._counts  # [F, K]
        ranks = tf.reduce_sum(reached, axis=1, keepdims=True) / self._lengths  # [F, 1]
        expanded = tf.concat([ranks, tf.sqrt(ranks), tf.square(ranks)], axis=1)
        activations = tf.reshape(expanded, [1, -1])
        *hidden, (kernel, bias) = self._layers
        for hidden_kernel, hidden_bias in hidden:
            activations = tf.nn.relu(tf.matmul(activations, hidden_kernel) + hidden_bias)
        logits = tf.matmul(activations, kernel) + bias
        if not self._temperature:
            return {self._action_name: tf.argmax(logits, axis=1, output_type=tf.int64)}
        # As `BinaryPolicy` samples: 1 if a uniform number is below the probability of 1.
        seed, seed2 = SEED_MARKS
        uniform = tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32, seed=seed, seed2=seed2)
        probability = tf.sigmoid((logits[:, 1] - logits[:, 0]) / self._temperature)
        return {self._action_name: tf.cast(uniform < probability, tf.int64), LOGITS: logits}


def tflite_files(weights: NetworkWeights, action_name: str, *, temperature: float = 0.0) -> dict[str, bytes]:
    """Converts a binary policy of integer features to a model that takes one decision at a time (some 0.3 s).

    Args:
      weights: of the policy.
      action_name: the advice's name, such as `inlining_decision`.
      temperature: 0 to decide greedily; over 0 to sample, see `collect.backends.development` for the seed.

    Returns:
      contents of `model.tflite` and `output_spec.json` by name.

    Raises:
      PolicyError: TensorFlow cannot convert the policy.
    """
    network = _Network(weights, action_name, temperature)
    inputs = {name: tf.TensorSpec([1], tf.int64, name) for name in weights.features}
    function: Any = tf.function(lambda **features: network(**features), autograph=False).get_concrete_function(**inputs)
    with scratch_for_libraries() as scratch:
        directory = str(scratch / "saved_model")
        tf.saved_model.save(network, directory, signatures={SIGNATURE: function})
        try:
            with stderr_held():
                model: bytes = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=[SIGNATURE]).convert()
        except (ValueError, tf.errors.OpError) as error:
            raise PolicyError(f"TFLite: cannot convert the policy: {' '.join(str(error).split())[:200]}") from error
    return {TFLITE_FILE: model, OUTPUT_SPEC_FILE: _output_spec(model, action_name).encode()}


def _output_spec(model: bytes, action_name: str) -> str:
    """The content of `output_spec.json`: the decision first, as LLVM expects, then the other outputs."""
    with warnings.catch_warnings():
        # It warns that it will move to another package.
        warnings.simplefilter("ignore", UserWarning)
        interpreter = tf.lite.Interpreter(model_content=model)
    details: dict[str, Any] = interpreter.get_signature_runner(SIGNATURE).get_output_details()
    entries = []
    for logging_name in sorted(details, key=lambda name: name != action_name):
        detail = details[logging_name]
        name, _, port = detail["name"].rpartition(":")
        spec = TensorSpec(name, np.dtype(detail["dtype"]), tuple(detail["shape"].tolist()), int(port))
        entries.append({"logging_name": logging_name, "tensor_spec": spec.to_json()})
    return json.dumps(entries, indent=2) + "\n"
