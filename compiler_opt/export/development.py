"""Converts policies to the TFLite models by which compilations in LLVM's development mode decide."""

from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow


def write_development_model(policies: PolicyFolder, policy: Policy, action_name: str, backend: str) -> None:
    """Writes a network's model, unless it exists or another backend than the development mode is set.

    Args:
      policies: where compilations look for it.
      policy: who is going to decide.
      action_name: the advice's name, such as `inlining_decision`.
      backend: of rollouts, see `RolloutSettings`.

    Raises:
      PolicyError: the policy has no such form.
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
    # Not before it is needed: it takes seconds.
    load_tensorflow()
    from compiler_opt.export.tflite import tflite_model

    model = tflite_model(policy.weights, action_name, temperature=policy.temperature)
    try:
        # The model last: compilations look for it.
        policies.file(policy, OUTPUT_SPEC_FILE, model.output_spec.encode)
        policies.file(policy, TFLITE_FILE, lambda: model.content)
    except OSError as error:
        raise OutputError(f"{policies.path(policy)}: the model cannot be written: {error.strerror}") from error
