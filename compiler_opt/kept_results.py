"""Results that take long to make are kept, so that the next run goes on after them.

They are files, each named by all that its result depends on:

    path = folder / f"{key_of(module.content_digest(), repr((VERSION, toolchain.identity())))}.npz"
    part = kept(path, load, pack, lambda: make(module))

or lines of one file, a JSON object each (`RecordFile`), beside a file of what they depend on (`check_conditions`).
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError, OutputError
from compiler_opt.files import one_line, parse_json, read_regular, set_aside, write_atomically, write_json

_T = TypeVar("_T")
_Record = TypeVar("_Record")

_LOG = logging.getLogger(__name__)
_MAX_BYTES = 1 << 30
_REMEDY = "remove it, or give another --output_dir"


def key_of(*about: bytes | str) -> str:
    """32 hexadecimal digits that identify what a result depends on: contents, versions, settings."""
    content = (each if isinstance(each, bytes) else each.encode("utf-8", "surrogateescape") for each in about)
    return hashlib.sha256(b"".join(content)).hexdigest()[:32]


def find_kept(
    path: Path,
    load: Callable[[Path], _T],
    *,
    consequence: str = "made again",
    warn: Callable[[str], object] = _LOG.warning,
) -> _T | None:
    """The result in a file; None if there is none. A damaged file is set aside (`NAME.damaged`) and logged.

    `load` raises OSError, ValueError, KeyError or TypeError if the file is damaged. `warn` gets one line, which ends
    with the consequence.
    """
    try:
        return load(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = one_line(str(getattr(error, "strerror", None) or error))
        try:
            place = f"kept as {set_aside(path).name}"
        except OutputError:
            if not path.exists():  # Another thread has set it aside.
                return None
            place = "it cannot be renamed"
        warn(f"{path}: damaged ({reason:.200}); {place}, {consequence}")
        return None


def kept(path: Path, load: Callable[[Path], _T], pack: Callable[[_T], bytes], make: Callable[[], _T]) -> _T:
    """The result in a file, by `find_kept`, or else that of `make`, which is written there.

    The file appears whole or not at all. After a loss of power it may be damaged; then its result is made again.

    Raises:
      OutputError: the file cannot be written.
    """
    found = find_kept(path, load)
    if found is None:
        found = make()
        write_atomically(path, pack(found), durable=False)
    return found


class RecordFile(Generic[_Record]):
    """A file of records, each a dataclass.

    Attributes:
      records: those in the file.
    """

    def __init__(self, path: Path, model: type[_Record]):
        """Reads the file, and cuts off a line that a killed process has left incomplete.

        Raises:
          ConfigError: the file is damaged.
        """
        self._path = path
        content = read_regular(path, _MAX_BYTES) if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        try:
            self.records = [convert(parse_json(line), model) for line in whole.splitlines()]
        except ValueError as error:
            raise ConfigError(f"{path}: damaged ({error}); {_REMEDY}") from None
        if whole != content:
            write_atomically(path, whole)

    def append(self, records: Iterable[_Record]) -> None:
        """Adds records, which are in the file together if the process is not killed meanwhile."""
        added = list(records)
        self.records += added
        with self._path.open("a", encoding="ascii") as file:
            file.write("".join(json.dumps(dataclasses.asdict(each)) + "\n" for each in added))  # type: ignore[call-overload]


def check_conditions(path: Path, conditions: Mapping[str, Any]) -> None:
    """Writes what results in a folder depend on, or compares it with what an earlier run has written.

    Raises:
      ConfigError: the folder's results are of other conditions, or the file is damaged.
    """
    if not path.exists():
        write_json(path, conditions)
        return
    try:
        found = dict(parse_json(read_regular(path, _MAX_BYTES)))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: damaged ({error}); {_REMEDY}") from None
    if changed := sorted(name for name in conditions if found.get(name) != conditions[name]):
        raise ConfigError(
            f"{path.parent}: its results are of other conditions ({', '.join(changed)}); give another --output_dir"
        )
