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
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.advisors import LOGITS, OUTPUT_SPEC_FILE, SEED_MARKS, TFLITE_FILE
from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, Thresholds
from compiler_opt.tensor_spec import TensorSpec
from compiler_opt.tensorflow_loading import stderr_held

SIGNATURE = "action"
"""Name of the SavedModel's signature, with which TensorFlow prefixes the inputs' names."""


class _Network(tf.Module):
    def __init__(self, weights: NetworkWeights, head: Head, action_name: str, temperature: float):
        super().__init__()
        self._head = head
        self._action_name = action_name
        self._temperature = temperature
        self._margin = weights.margin
        self._encoder = QuantileEncoder(weights.quantiles)
        # Variables, because the outputs of functions without variables are named differently.
        self._layers = [
            (tf.Variable(kernel), tf.Variable(bias))
            for kernel, bias in zip(weights.kernels, weights.biases, strict=True)
        ]

    def __call__(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        observed = self._head.observe_tensors(tensors, self._ranks)
        activations = networks.expanded(observed[networks.RANKS])
        *hidden, (kernel, bias) = self._layers
        for hidden_kernel, hidden_bias in hidden:
            activations = tf.nn.relu(tf.matmul(activations, hidden_kernel) + hidden_bias)
        logits = tf.matmul(activations, kernel) + bias
        if not self._temperature:
            return {self._action_name: self._head.advice(logits, observed, self._margin)}
        # As `BinaryPolicy` samples: 1 if a uniform number is below the probability of 1.
        seed, seed2 = SEED_MARKS
        uniform = tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32, seed=seed, seed2=seed2)
        probability = tf.sigmoid((logits[:, 1] - logits[:, 0]) / self._temperature)
        return {self._action_name: tf.cast(uniform < probability, tf.int64), LOGITS: logits}

    def _ranks(self, columns: Sequence[tf.Tensor]) -> tf.Tensor:
        places: list[int] = []
        parts: list[tf.Tensor] = []
        for dtype, thresholds in (
            (tf.int64, self._encoder.integer_thresholds),
            (tf.float32, self._encoder.float_thresholds),
        ):
            here = [place for place, column in enumerate(columns) if column.dtype == dtype]
            if here:
                places += here
                parts.append(_ranked([columns[place] for place in here], [thresholds[place] for place in here]))
        ranks = tf.concat(parts, axis=-1)
        return ranks if len(parts) == 1 else tf.gather(ranks, np.argsort(places), axis=-1)


def _ranked(columns: Sequence[tf.Tensor], thresholds: Sequence[Thresholds]) -> tf.Tensor:
    """Ranks `[..., F]` of features of one type, `[...]` each, by comparing them with all of their thresholds."""
    longest = max(len(each.values) for each in thresholds)
    # Padding has a count of 0.
    padded = np.array([np.pad(each.values, (0, longest - len(each.values))) for each in thresholds])  # [F, K]
    counts = [np.pad(each.counts, (0, longest - len(each.values))) for each in thresholds]
    values = tf.stack(columns, axis=-1)[..., tf.newaxis]  # [..., F, 1]
    # NaN is below nothing, and so in the last bucket.
    reached = tf.cast(tf.logical_not(values < padded), tf.float32) * np.array(counts, np.float32)
    return tf.reduce_sum(reached, axis=-1) / np.array([each.num_quantiles for each in thresholds], np.float32)


def tflite_files(
    weights: NetworkWeights,
    space: ActionSpace,
    action_name: str,
    compiler_features: Sequence[TensorSpec] = (),
    *,
    temperature: float = 0.0,
) -> dict[str, bytes]:
    """Converts a policy to a model that takes one decision at a time (some 0.3 s for inlining, 2 s for eviction).

    Args:
      weights: of the policy.
      space: its action space.
      action_name: the advice's name, such as `inlining_decision`.
      compiler_features: the compiler's tensors, which give the types of features that are not scalar integers.
      temperature: 0 to decide greedily; over 0 to sample, see `collect.backends.development` for the seed. Only
        policies with binary actions are sampled.

    Returns:
      contents of `model.tflite` and `output_spec.json` by name.

    Raises:
      PolicyError: TensorFlow cannot convert the policy.
    """
    head = space.head(dict(zip(weights.features, weights.quantiles, strict=True)), compiler_features)
    network = _Network(weights, head, action_name, temperature)
    inputs = {name: tf.TensorSpec([1, *spec.shape], spec.dtype, name) for name, spec in head.compiler_tensors().items()}
    function: Any = tf.function(lambda **tensors: network(**tensors), autograph=False).get_concrete_function(**inputs)
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
