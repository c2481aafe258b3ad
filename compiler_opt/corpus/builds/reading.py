"""Reads build descriptions as text or JSON, up to a size limit.

Paths are bytes: those that are not UTF-8 become lone surrogates, as everywhere in Python.
"""

import json
from pathlib import Path
from typing import Any

from compiler_opt.errors import CorpusError
from compiler_opt.files import read_regular


def read_text(path: Path, limit_bytes: int, what: str) -> str:
    """Reads a text file: UTF-8 or, with a byte order mark, UTF-16.

    Raises:
      CorpusError: it cannot be read, or exceeds the limit; the message asks for `what`.
    """
    try:
        data = read_regular(path, limit_bytes)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); give {what}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def read_json(path: Path, limit_bytes: int, what: str) -> Any:
    """Reads a JSON file.

    Raises:
      CorpusError: it cannot be read, exceeds the limit, or is not JSON; the message asks for `what`.
    """
    try:
        return json.loads(read_text(path, limit_bytes, what))
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected JSON, found something else ({error}); give {what}") from None
