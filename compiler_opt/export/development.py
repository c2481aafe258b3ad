"""Gives compilations in LLVM's development mode the model that they decide by; made once for each policy."""

import dataclasses
import tempfile
from pathlib import Path

from compiler_opt.collect.compilation import RolloutSettings
from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.files import remove_oldest
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import LearnedPolicy, NetworkPolicy
from compiler_opt.tensorflow_loading import load_tensorflow

_MAX_MODELS = 8
"""Kept in a folder: a run has one policy at a time, an evaluation a few."""


def with_model(settings: RolloutSettings, policy: Policy, action_name: str, scratch: Path) -> RolloutSettings:
    """Settings under which a policy can decide where they say: for the development mode its model is made.

    Args:
      settings: of rollouts.
      policy: who is going to decide.
      action_name: the advice's name, such as `inlining_decision`.
      scratch: below which models are kept, each in a folder by its policy's key.

    Raises:
      PolicyError: the policy has no such form.
      OutputError: the model cannot be written.
    """
    if settings.backend != "development" or not isinstance(policy, LearnedPolicy):
        return settings
    if not isinstance(policy, NetworkPolicy):
        raise PolicyError(
            f"policy {policy.name!r}: only yes-or-no networks are converted for the development mode; use the backend "
            "auto, which hands such decisions over the channel"
        )
    directory = scratch / "models"
    if not (directory / policy.key).is_dir():
        # Not before it is needed: it takes seconds.
        load_tensorflow()
        from compiler_opt.export.tflite import tflite_model

        model = tflite_model(policy.weights, action_name, temperature=policy.temperature)
        _write(directory, policy.key, {TFLITE_FILE: model.content, OUTPUT_SPEC_FILE: model.output_spec.encode()})
    return dataclasses.replace(settings, models=directory)


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
