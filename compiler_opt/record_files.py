"""Records of work that takes long, in files of one JSON object a line: the next run goes on after them."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.files import parse_json, read_regular, write_atomically, write_json

_Record = TypeVar("_Record")

_MAX_BYTES = 1 << 30
_REMEDY = "remove it, or give another --output_dir"


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
