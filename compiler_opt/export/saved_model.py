"""A policy on disk: TensorFlow's SavedModel for LLVM and TF-Agents, `network.npz` for everything here.

saved_model.pb, variables/    signature `action`, inputs by LLVM's feature names (TF-Agents' PolicySaver)
output_spec.json              which output is the advice, as LLVM's development mode reads it
network.npz                   see `policies.weights`
network.mlgo                  the native form, see `spaces.native`
model.tflite                  the same for LLVM's development mode, see `export.tflite`
model_card.json, MODEL_CARD.md  see `policies.model_card`

The action space says which of the forms for LLVM there are (`ActionSpace.formats`): native and TFLite are for binary
policies that see integers alone; masked categorical ones have no SavedModel either. Its action is the advice.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

from tf_agents.policies import policy_saver, tf_policy

from compiler_opt.errors import OutputError
from compiler_opt.export.tflite import tflite_model
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.native import NATIVE_FILE, native_blob
from compiler_opt.tensor_spec import TensorSpec


def save_policy(
    directory: Path,
    weights: NetworkWeights,
    space: ActionSpace,
    action_name: str,
    compiler_features: Sequence[TensorSpec] = (),
) -> None:
    """Writes a greedy policy, all or nothing: what stood at `directory` is replaced when the new one is complete.

    Args:
      directory: the policy's folder.
      weights: what it decides by.
      space: of its actions.
      action_name: the advice's name, such as `inlining_decision`.
      compiler_features: what the compiler sends; of a policy that sees other than scalar integers their types are read
        off it.

    Raises:
      OutputError: it cannot be written.
    """
    try:
        with replaced_folder(directory) as partial:
            _write(partial, weights, space, action_name, compiler_features)
    except OSError as error:
        raise OutputError(f"{directory}: the policy cannot be written: {error.strerror or error}") from error


def _write(
    directory: Path,
    weights: NetworkWeights,
    space: ActionSpace,
    action_name: str,
    compiler_features: Sequence[TensorSpec],
) -> None:
    formats = space.formats(weights)
    if "aot" in formats:
        head = space.head(dict(zip(weights.features, weights.quantiles, strict=True)), compiler_features)
        _save_tensorflow_policy(directory, head.signature(weights, action_name))
    if "native" in formats:
        (directory / NATIVE_FILE).write_bytes(native_blob(weights))
    if "tflite" in formats:
        model = tflite_model(weights, action_name)
        (directory / TFLITE_FILE).write_bytes(model.content)
        (directory / OUTPUT_SPEC_FILE).write_text(model.output_spec)
    weights.save(directory)
    weights.card().save(directory)


def _save_tensorflow_policy(directory: Path, policy: tf_policy.TFPolicy) -> None:
    with warnings.catch_warnings(), scratch_for_libraries():
        # Of a distribution in the policy's own bookkeeping, which no reader of the signature loads.
        warnings.filterwarnings("ignore", "Encoding a StructuredValue", UserWarning)
        policy_saver.PolicySaver(policy, batch_size=1, use_nest_path_signatures=False).save(str(directory))
