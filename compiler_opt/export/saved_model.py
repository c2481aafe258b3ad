"""A policy on disk: TensorFlow's SavedModel for LLVM and TF-Agents, `network.npz` for everything here.

saved_model.pb, variables/    signature `action`, inputs by LLVM's feature names (TF-Agents' PolicySaver)
output_spec.json              which output is the advice, as LLVM's development mode reads it
network.npz                   see `policies.network`
network.mlgo                  the native form, see `policies.native`
model.tflite                  the same for LLVM's development mode, see `export.tflite`
model_card.json, MODEL_CARD.md  see `policies.model_card`

The native form and TFLite are for policies that say yes or no by integers. One that answers with a number, or sees
embeddings, has the SavedModel, whose action is the advice, beside `network.npz`; one that scores candidates has that
and the card only.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

from tf_agents.policies import actor_policy, greedy_policy, policy_saver, tf_policy
from tf_agents.trajectories import time_step as ts

from compiler_opt.errors import OutputError
from compiler_opt.export.embeddings_model import embeddings_policy
from compiler_opt.export.number_model import number_policy
from compiler_opt.export.tflite import tflite_model
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.ir2vec import components
from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import NetworkConfig
from compiler_opt.spaces.continuous import NumberScale
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.native import NATIVE_FILE, native_blob
from compiler_opt.tensor_spec import TensorSpec


def save_policy(
    directory: Path,
    weights: NetworkWeights,
    action_name: str,
    *,
    scale: NumberScale | None = None,
    sent: Sequence[TensorSpec] = (),
) -> None:
    """Writes a greedy policy, all or nothing: what stood at `directory` is replaced when the new one is complete.

    Args:
      directory: the policy's folder.
      weights: what it decides by.
      action_name: the advice's name, such as `inlining_decision`.
      scale: of a policy that answers with a number.
      sent: what the compiler sends, such a policy's features among it.

    Raises:
      OutputError: it cannot be written.
    """
    try:
        with replaced_folder(directory) as partial:
            _write(partial, weights, action_name, scale, sent)
    except OSError as error:
        raise OutputError(f"{directory}: the policy cannot be written: {error.strerror or error}") from error


def _write(
    directory: Path,
    weights: NetworkWeights,
    action_name: str,
    scale: NumberScale | None,
    sent: Sequence[TensorSpec],
) -> None:
    if scale is not None:
        _save_tensorflow_policy(directory, number_policy(weights, action_name, scale, sent))
    elif components(weights.features):
        _save_tensorflow_policy(directory, embeddings_policy(weights, action_name))
    elif len(weights.biases[-1]) > 1:
        _save_for_tensorflow(directory, weights, action_name)
        (directory / NATIVE_FILE).write_bytes(native_blob(weights))
        model = tflite_model(weights, action_name)
        (directory / TFLITE_FILE).write_bytes(model.content)
        (directory / OUTPUT_SPEC_FILE).write_text(model.output_spec)
    weights.save(directory)
    weights.card().save(directory)


def _save_for_tensorflow(directory: Path, weights: NetworkWeights, action_name: str) -> None:
    hidden = tuple(len(bias) for bias in weights.biases[:-1])
    action = networks.action_spec(action_name, len(weights.biases[-1]))
    actor = networks.actor_network(
        weights.features, weights.quantiles, action, NetworkConfig(fc_layer_params=hidden), seed=0
    )
    networks.assign(actor, weights)
    steps: ts.TimeStep = networks.time_step_spec(weights.features)
    _save_tensorflow_policy(directory, greedy_policy.GreedyPolicy(actor_policy.ActorPolicy(steps, action, actor)))


def _save_tensorflow_policy(directory: Path, policy: tf_policy.TFPolicy) -> None:
    with warnings.catch_warnings(), scratch_for_libraries():
        # Of a distribution in the policy's own bookkeeping, which no reader of the signature loads.
        warnings.filterwarnings("ignore", "Encoding a StructuredValue", UserWarning)
        policy_saver.PolicySaver(policy, batch_size=1, use_nest_path_signatures=False).save(str(directory))
