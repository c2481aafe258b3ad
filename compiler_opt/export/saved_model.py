"""A policy's folder: TensorFlow's SavedModel for LLVM and TF-Agents, `network.npz` for compiler_opt.

saved_model.pb, variables/      signature `action`, inputs by LLVM's feature names (TF-Agents' PolicySaver)
output_spec.json                which output is the advice, for LLVM's development mode
model.tflite                    the policy for LLVM's development mode, see `spaces.heads.tflite`
network.npz                     see `policies.weights`
network.mlgo                    the native form, see `spaces.native`
model_card.json, MODEL_CARD.md  see `policies.model_card`

`ActionSpace.formats` says which of the forms for LLVM a policy has. LLVM does not give its models the default decision,
so those of a binary policy with a margin rebuild it from features; one that observes embeddings has the SavedModel
only. The action is the advice.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
from tf_agents.policies import policy_saver, tf_policy

from compiler_opt.errors import OutputError
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.scratch import scratch_for_libraries
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.action_space import ActionSpace
from compiler_opt.spaces.heads.tflite import tflite_files
from compiler_opt.spaces.native import NATIVE_FILE
from compiler_opt.tensor_spec import TensorSpec


def save_policy(
    directory: Path,
    weights: NetworkWeights,
    space: ActionSpace,
    action_name: str,
    compiler_features: Sequence[TensorSpec] = (),
) -> None:
    """Writes a greedy policy, all or nothing; an earlier folder is replaced when the new one is complete.

    Args:
      directory: the policy's folder.
      weights: of the policy.
      space: its action space.
      action_name: the advice's name, such as `inlining_decision`.
      compiler_features: the compiler's tensors, which give the types of features that are not scalar integers.

    Raises:
      OutputError: the folder cannot be written.
    """
    formats = space.formats(weights)
    try:
        with replaced_folder(directory) as partial:
            if "saved_model" in formats:
                head = space.head(dict(zip(weights.features, weights.quantiles, strict=True)), compiler_features)
                _save_tensorflow_policy(partial, head.signature(weights, action_name))
            files = tflite_files(weights, space, action_name, compiler_features) if "tflite" in formats else {}
            if "native" in formats:
                files[NATIVE_FILE] = space.native_form(weights, str(weights.metadata.get("problem", "inlining")))
            for name, content in files.items():
                (partial / name).write_bytes(content)
            weights.save(partial)
            weights.card().save(partial)
    except (OSError, tf.errors.OpError) as error:
        reason = str(getattr(error, "strerror", None) or getattr(error, "message", error))
        raise OutputError(f"{directory}: the policy cannot be written: {reason.splitlines()[0]}") from error


def _save_tensorflow_policy(directory: Path, policy: tf_policy.TFPolicy) -> None:
    with warnings.catch_warnings(), scratch_for_libraries():
        # The warning is about a distribution in TF-Agents' metadata, which no user of the signature loads.
        warnings.filterwarnings("ignore", "Encoding a StructuredValue", UserWarning)
        policy_saver.PolicySaver(policy, batch_size=1, use_nest_path_signatures=False).save(str(directory))
