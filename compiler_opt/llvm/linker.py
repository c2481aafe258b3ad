"""Measures the linked text bytes of a project without its build system.

All objects are linked into one program without an entry point; undefined symbols are ignored. As in the real build, one
copy of each COMDAT group is kept and equal constants are merged. There is no garbage collection, which without an
entry point would remove everything.
"""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import CompileError
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import read_text_bytes
from compiler_opt.llvm.scratch import scratch_directory

_OPTIONS = (
    "--unresolved-symbols=ignore-all",
    "--entry=0",
    "-z",
    "muldefs",  # several programs of a project have a `main`
    "--no-gc-sections",
    "--noinhibit-exec",  # a jump to an undefined symbol may be out of range, which does not change sizes
    "--no-warnings",
    "--strip-all",
    "--whole-archive",
    "--threads=1",
)


def linked_text_bytes(
    lld: Path, objects: Sequence[Path], *, scratch: Path | None = None, timeout_s: float = 600
) -> int:
    """Links objects into one program and returns its text bytes.

    Args:
      lld: `ld.lld`; see `Toolchain.tool`.
      objects: ELF objects, or archives of them, of one target. The first copy of a COMDAT group is kept, so the order
        matters.
      scratch: folder for temporary files.
      timeout_s: wall-clock limit in seconds.

    Returns:
      total size of the allocated sections that are executable or not writable; 0 for no objects.

    Raises:
      CompileError: the linker failed.
      ProtocolError: its output is not an ELF file.
      ToolchainError: `lld` cannot be run.
    """
    if not objects:
        return 0
    with scratch_directory(scratch) as directory:
        program, arguments = directory / "program", directory / "objects.rsp"
        # A large project has more objects than fit on a command line.
        arguments.write_text("".join(f"{_quoted(path)}\n" for path in objects))
        result = processes.run([str(lld), *_OPTIONS, "-o", str(program), f"@{arguments}"], timeout_s=timeout_s)
        if not result.ok or not program.exists():
            raise CompileError(f"linking {len(objects)} objects: {result.describe()}")
        return read_text_bytes(program)


def _quoted(path: Path) -> str:
    """Quotes an argument in GNU response-file syntax."""
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
