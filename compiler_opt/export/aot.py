"""Compiles a policy ahead of time by TensorFlow, to the header and object that LLVM's own build generates.

Like LLVM's CMake files, it runs `saved_model_cli aot_compile_cpu` (some 10 s). Linking the result takes TensorFlow's
runtime sources; `release_model` writes a class with the same interface that needs nothing else.
"""

import os
import platform
import sys
from pathlib import Path

from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.export.release_model import EmbeddedModel
from compiler_opt.files import write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory

_SAVED_MODEL_FILE = "saved_model.pb"
_TIMEOUT_S = 900.0
_MEMORY_BYTES = 1 << 36  # address space, much of which TensorFlow only reserves


def write_aot(
    policy_dir: Path,
    model: EmbeddedModel,
    directory: Path,
    *,
    target_triple: str | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> list[Path]:
    """Compiles the SavedModel in a policy's folder.

    Args:
      policy_dir: the policy's folder.
      model: its names in LLVM.
      directory: the folder for header and object.
      target_triple: target of the object; by default this machine's architecture with Linux.
      timeout_s: wall-clock seconds that it may take.

    Returns:
      paths of header and object.

    Raises:
      PolicyError: there is no SavedModel, or TensorFlow cannot compile it.
      ToolchainError: TensorFlow cannot be started.
      OutputError: a file cannot be written.
    """
    if not (policy_dir / _SAVED_MODEL_FILE).is_file():
        raise PolicyError(
            f"{policy_dir}: expected {_SAVED_MODEL_FILE} in it, found none; give the policy's folder of a training"
        )
    if target_triple is None:
        target_triple = f"{platform.machine()}-unknown-linux-gnu"
    with scratch_directory() as scratch:
        # It leaves files beside its output and in the temporary folder; both are this folder.
        command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", "aot_compile_cpu"]
        options = {
            "multithreading": "false",
            "dir": str(policy_dir.resolve()),
            "tag_set": "serve",
            "signature_def_key": "action",
            "output_prefix": str(scratch / model.class_name),
            "cpp_class": f"llvm::{model.class_name}",
            "target_triple": target_triple,
        }
        result = processes.run(
            [*command, *(word for name, value in options.items() for word in (f"--{name}", value))],
            timeout_s=timeout_s,
            memory_bytes=_MEMORY_BYTES,
            cwd=scratch,
            environment={**os.environ, "TMPDIR": str(scratch), "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        made = [scratch / f"{model.class_name}{suffix}" for suffix in (".h", ".o")]
        if result.timed_out:
            raise PolicyError(f"{policy_dir}: TensorFlow's AOT compiler is not done after {timeout_s:.0f} s")
        if not result.ok:
            raise ToolchainError(f"TensorFlow's AOT compiler (saved_model_cli): {result.describe()}")
        if not all(path.is_file() for path in made):
            raise PolicyError(f"{policy_dir}: TensorFlow's AOT compiler wrote no {made[0].name} and {made[1].name}")
        for path in made:
            write_atomically(directory / path.name, path.read_bytes())
        return [directory / path.name for path in made]
