"""The text bytes of a project once it is linked, without its build system.

All objects of a project go into one program: whatever they do not define is ignored, and there is no entry point. What
matters happens as in the real build: of each COMDAT group one copy stays, equal constants are merged. Nothing is
garbage collected, since without an entry point everything would be.
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
    "muldefs",  # Several programs of a project may each have a `main`.
    "--no-gc-sections",
    "--noinhibit-exec",  # A jump to what does not exist may be out of range; the sizes are right all the same.
    "--no-warnings",
    "--strip-all",
    "--whole-archive",
    "--threads=1",
)


def linked_text_bytes(
    lld: Path, objects: Sequence[Path], *, scratch: Path | None = None, timeout_s: float = 600
) -> int:
    """Links objects into one program and measures its text.

    Args:
      lld: `ld.lld`; see `Toolchain.tool`.
      objects: ELF objects, or archives of them, of one target; of equal COMDAT groups the first object's is kept, so
        the order matters.
      scratch: where to put temporary files.
      timeout_s: wall-clock seconds that the link may take.

    Returns:
      bytes of the allocated sections that are executable or not writable; 0 for no objects.

    Raises:
      CompileError: the linker failed.
      ProtocolError: its output is not an ELF file.
      ToolchainError: `lld` cannot be run.
    """
    if not objects:
        return 0
    with scratch_directory(scratch) as directory:
        program, arguments = directory / "program", directory / "objects.rsp"
        # A large project has more objects than fit a command line.
        arguments.write_text("".join(f"{_quoted(path)}\n" for path in objects))
        result = processes.run([str(lld), *_OPTIONS, "-o", str(program), f"@{arguments}"], timeout_s=timeout_s)
        if not result.ok or not program.exists():
            raise CompileError(f"linking {len(objects)} objects: {result.describe()}")
        return read_text_bytes(program)


def _quoted(path: Path) -> str:
    """An argument as the GNU syntax of response files has it."""
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
