"""What an interrupted build of a ready-made corpus has compiled, kept for the next one.

The objects of a project stay in a folder of the output until the project is complete. A stamp says what they were made
of and how: those of another project, compiler or level are removed.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import OutputError
from compiler_opt.files import write_atomically

# Whatever else is called so in a folder of the user's is not ours to remove: the name is one that nobody gives.
FOLDER_NAME = "compiler_opt-unfinished"

_STAMP_NAME = "stamp.json"


@contextlib.contextmanager
def objects_folder(output_dir: Path, name: str, stamp: Mapping[str, Any]) -> Iterator[Path]:
    """The folder for the objects of one project, with those that an interrupted build has left.

    It is removed at the end, unless that is an exception.

    Args:
      output_dir: of all projects.
      name: of the project.
      stamp: what the objects depend on; those that were made with another are removed.

    Raises:
      OutputError: it cannot be written.
    """
    folder = output_dir / FOLDER_NAME / name
    try:
        if _found(folder / _STAMP_NAME) != stamp:
            if folder.exists():
                shutil.rmtree(folder)
            (folder / "objects").mkdir(parents=True)
            write_atomically(folder / _STAMP_NAME, json.dumps(stamp).encode())
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}); remove it") from None
    yield folder / "objects"
    shutil.rmtree(folder, ignore_errors=True)
    # Only succeeds for the last one.
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _found(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
