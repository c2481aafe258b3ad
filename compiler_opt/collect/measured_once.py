"""What takes a compilation of every module, kept in a file of the run."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.description import Module
from compiler_opt.files import write_atomically


def measured_once(
    path: Path, name: str, key: Mapping[str, Any], modules: Sequence[Module], measure: Callable[[], Any]
) -> Any:
    """What `measure` gives, or gave last time for the same key and modules.

    Args:
      path: the file.
      name: what it is called there.
      key: what else it depends on (corpus and compiler); JSON.
      modules: those that are measured.
      measure: gives JSON.

    Raises:
      OutputError: the file cannot be written.
    """
    # As it comes back from the file: tuples are lists there.
    key = json.loads(json.dumps({**key, "modules": sorted(module.name for module in modules)}))
    if path.is_file():
        stored = json.loads(path.read_text())
        if stored.get("key") == key:
            return stored[name]
    value = measure()
    write_atomically(path, json.dumps({"key": key, name: value}).encode())
    return value
