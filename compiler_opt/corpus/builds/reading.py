"""Files that describe builds: all of them at once, up to a limit.

Paths are bytes: those that are not UTF-8 travel as lone surrogates, as everywhere in Python.
"""

import json
from pathlib import Path
from typing import Any

from compiler_opt.errors import CorpusError
from compiler_opt.files import read_regular


def read_text(path: Path, limit_bytes: int, what: str) -> str:
    """The text of a file, in UTF-8 or, with a mark, UTF-16.

    Raises:
      CorpusError: it cannot be read, or is larger than the limit; the message says `what` was wanted.
    """
    try:
        data = read_regular(path, limit_bytes)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); give {what}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def read_json(path: Path, limit_bytes: int, what: str) -> Any:
    """The JSON in a file.

    Raises:
      CorpusError: it cannot be read, is larger than the limit, or is no JSON; the message says `what` was wanted.
    """
    try:
        return json.loads(read_text(path, limit_bytes, what))
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected JSON, found something else ({error}); give {what}") from None
