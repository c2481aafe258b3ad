"""What takes a compilation of every module, kept in a file of the run."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.module import Module
from compiler_opt.files import read_checked_json, set_aside, write_checked_json

_LOG = logging.getLogger(__name__)


def measured_once(
    path: Path, name: str, key: Mapping[str, Any], modules: Sequence[Module], measure: Callable[[], tuple[Any, bool]]
) -> Any:
    """What `measure` gives, or gave last time for the same key and modules; a damaged file is set aside.

    Args:
      path: the file.
      name: what it is called there.
      key: what else it depends on (corpus and compiler); JSON.
      modules: those that are measured.
      measure: gives JSON, and whether to keep it: not what is wrong for want of memory or disk today.

    Raises:
      OutputError: the file cannot be written.
    """
    # As it comes back from the file: tuples are lists there.
    key = json.loads(json.dumps({**key, "modules": sorted(module.name for module in modules)}))
    try:
        stored = read_checked_json(path)
        if stored.get("key") == key and name in stored:
            return stored[name]
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        _LOG.warning("%s: damaged (%s); kept as %s, measured again", path, reason, set_aside(path).name)
    value, is_lasting = measure()
    if is_lasting:
        write_checked_json(path, {"key": key, name: value})
    return value
