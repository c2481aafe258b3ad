"""Keeps the objects of an interrupted build of a ready-made corpus, so that the next one resumes it.

The objects of a project stay in a folder of the output until the project is complete. A stamp records what they depend
on; objects of another version of the project, compiler or level are removed.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import OutputError
from compiler_opt.files import write_atomically

# The folder is removed in the end, so its name must be one that no user would choose.
FOLDER_NAME = "compiler_opt-unfinished"

_STAMP_NAME = "stamp.json"


@contextlib.contextmanager
def objects_folder(output_dir: Path, name: str, stamp: Mapping[str, Any]) -> Iterator[Path]:
    """The folder for the objects of one project, with those of an interrupted build; removed at the end if all is well.

    `stamp` is what the objects depend on; objects with another stamp are removed.

    Raises:
      OutputError: the folder cannot be written.
    """
    folder = output_dir / FOLDER_NAME / name
    try:
        if _read_stamp(folder / _STAMP_NAME) != stamp:
            if folder.exists():
                shutil.rmtree(folder)
            (folder / "objects").mkdir(parents=True)
            write_atomically(folder / _STAMP_NAME, json.dumps(stamp).encode())
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}); remove it") from None
    yield folder / "objects"
    shutil.rmtree(folder, ignore_errors=True)
    # Succeeds only for the last project.
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _read_stamp(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
