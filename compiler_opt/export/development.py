"""Gives compilations in LLVM's development mode the model that they decide by; made once for each policy."""

import tempfile
from pathlib import Path

from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.files import remove_oldest
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

_MAX_MODELS = 8
"""Kept in a folder: a run has one policy at a time, an evaluation a few."""


def models_folder(backend: str, policy: Policy, action_name: str, scratch: Path) -> Path | None:
    """Makes a network's model where it is to decide in the development mode.

    Args:
      backend: of rollouts, see `RolloutSettings`.
      policy: who is going to decide.
      action_name: the advice's name, such as `inlining_decision`.
      scratch: below which models are kept, each in a folder by its policy's key.

    Returns:
      for `RolloutSettings.models`; None when no model is needed.

    Raises:
      PolicyError: the policy has no such form.
      OutputError: the model cannot be written.
    """
    if backend != "development" or not isinstance(policy, LearnedPolicy):
        return None
    if not policy.runs_in_development_mode:
        raise PolicyError(
            f"policy {policy.name!r}: only binary policies are converted for the development mode; use the backend "
            "auto, which hands such decisions over the channel"
        )
    directory = scratch / "models"
    if not (directory / policy.key).is_dir():
        # Not before it is needed: it takes seconds.
        load_tensorflow()
        from compiler_opt.export.tflite import tflite_model

        model = tflite_model(policy.weights, action_name, temperature=policy.temperature)
        _write(directory, policy.key, {TFLITE_FILE: model.content, OUTPUT_SPEC_FILE: model.output_spec.encode()})
    return directory


def _write(directory: Path, key: str, contents: dict[str, bytes]) -> None:
    """Writes a folder, all or nothing; the oldest of too many go."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_oldest(directory.iterdir(), _MAX_MODELS - 1)
        partial = Path(tempfile.mkdtemp(dir=directory))
        for name, content in contents.items():
            (partial / name).write_bytes(content)
        partial.rename(directory / key)
    except OSError as error:
        raise OutputError(f"{directory}: the model cannot be written: {error.strerror}") from error
