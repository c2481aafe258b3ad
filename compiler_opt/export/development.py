"""TFLite models for compilations in LLVM's development mode, converted once per policy."""

import functools

from compiler_opt.collect.backends.development import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow


def write_development_model(policies: PolicyFolder, policy: Policy, action_name: str, backend: str) -> None:
    """Converts a learned policy if the development mode is to decide by it, unless its model exists.

    Args:
      policies: where compilations look for the model.
      policy: decides the rollouts.
      action_name: the advice's name, such as `inlining_decision`.
      backend: of rollouts, see `RolloutSettings`.

    Raises:
      PolicyError: the policy cannot be converted.
      OutputError: the model cannot be written.
    """
    if backend != "development" or not isinstance(policy, LearnedPolicy):
        return
    if not policy.runs_in_development_mode:
        raise PolicyError(
            f"policy {policy.name!r}: only binary policies are converted for the development mode; use the backend "
            "auto, which hands such decisions over the channel"
        )
    if (policies.path(policy) / TFLITE_FILE).exists():
        return
    load_tensorflow()
    from compiler_opt.export.tflite import tflite_files

    files = tflite_files(policy.weights, action_name, temperature=policy.temperature)
    try:
        # The model last: compilations look for it.
        for name in (OUTPUT_SPEC_FILE, TFLITE_FILE):
            policies.file(policy, name, functools.partial(files.__getitem__, name))
    except OSError as error:
        raise OutputError(f"{policies.path(policy)}: the model cannot be written: {error.strerror}") from error
