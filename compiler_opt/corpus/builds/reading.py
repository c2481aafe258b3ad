"""Reads build descriptions as text or JSON, up to a size limit.

Paths are bytes: those that are not UTF-8 become lone surrogates, as everywhere in Python.
"""

import json
from pathlib import Path
from typing import TypeVar

from compiler_opt.checked_values import convert
from compiler_opt.corpus.validation import reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import read_regular

_Model = TypeVar("_Model")


def read_text(path: Path, max_bytes: int, wanted: str) -> str:
    """Reads a text file: UTF-8 or, with a byte order mark, UTF-16.

    Raises:
      CorpusError: it cannot be read, or is too large; the message asks for `wanted`.
    """
    with reading(path, f"give {wanted}"):
        data = read_regular(path, max_bytes)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def read_json(path: Path, model: type[_Model], max_bytes: int, wanted: str) -> _Model:
    """Reads a JSON file into a model, see `checked_values`.

    Raises:
      CorpusError: it cannot be read, is too large, is not JSON, or holds something else; the message asks for `wanted`.
    """
    try:
        content = json.loads(read_text(path, max_bytes, wanted))
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected JSON, found something else ({error}); give {wanted}") from None
    try:
        return convert(content, model)
    except ValueError as error:
        raise CorpusError(f"{path}: {error}; give {wanted}") from None
