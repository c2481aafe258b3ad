"""A policy compiled by TensorFlow's AOT compiler: the header and object that LLVM's own build makes.

It runs `saved_model_cli aot_compile_cpu` as a process of its own, as LLVM's cmake does; some 10 s. The result needs
TensorFlow's runtime sources to be linked; `release_model` makes a class with the same interface that needs nothing.
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

SAVED_MODEL_FILE = "saved_model.pb"
TIMEOUT_S = 900.0
_MEMORY_BYTES = 1 << 36  # address space, of which TensorFlow reserves plenty


def write_aot(
    policy_dir: Path,
    model: EmbeddedModel,
    directory: Path,
    *,
    target_triple: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[Path]:
    """Compiles the SavedModel in a policy's folder.

    Args:
      policy_dir: the policy's folder.
      model: what LLVM calls it.
      directory: where header and object are to be.
      target_triple: what the object is for; by default this machine with Linux.
      timeout_s: wall-clock seconds that it may take.

    Returns:
      header and object.

    Raises:
      PolicyError: there is no SavedModel, or TensorFlow does not compile it.
      ToolchainError: TensorFlow cannot be started.
      OutputError: a file cannot be written.
    """
    if not (policy_dir / SAVED_MODEL_FILE).is_file():
        raise PolicyError(
            f"{policy_dir}: expected {SAVED_MODEL_FILE} in it, found none; give a folder that training left"
        )
    if target_triple is None:
        target_triple = f"{platform.machine()}-unknown-linux-gnu"
    with scratch_directory() as scratch:
        # Its files go beside the output and into the temporary folder; here both are ours.
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
            raise PolicyError(f"{policy_dir}: TensorFlow's AOT compiler left no {made[0].name} and {made[1].name}")
        for path in made:
            write_atomically(directory / path.name, path.read_bytes())
        return [directory / path.name for path in made]
