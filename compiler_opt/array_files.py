"""Named arrays in `.npz` files, which are untrusted: nothing in them is executed or unpickled."""

import io
import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.files import one_line, read_regular, write_atomically

_SUFFIX = ".npy"
_NUMBERS = "biuf"
"""Kinds of element types: booleans, integers and real numbers."""


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
    """Writes arrays of numbers atomically.

    Raises:
      OutputError: the file cannot be written.
    """
    write_atomically(path, pack_arrays(arrays, compressed=compressed))


def pack_arrays(arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> bytes:
    """The content of a file of arrays; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def load_arrays(path: Path, max_bytes: int) -> dict[str, np.ndarray]:
    """Reads a file that `save_arrays` has written; `max_bytes` limits its size, and that of its unpacked contents.

    Raises:
      OSError: it cannot be read, or is too large.
      ValueError: it is damaged, is no such file, or unpacks to too much; the message is one line.
    """
    content = read_regular(path, max_bytes)
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(io.BytesIO(content)) as archive:
            # For example about headers of Python 2, which `save_arrays` never writes.
            warnings.simplefilter("error")
            if sum(entry.file_size for entry in archive.infolist()) > max_bytes:
                raise ValueError(f"it unpacks to more than {max_bytes} bytes")
            return {
                entry.filename.removesuffix(_SUFFIX): _array(entry.filename, _unpacked(archive, entry))
                for entry in archive.infolist()
            }
    except Exception as error:
        # On damaged files, zipfile, its decompressors and numpy raise many kinds of exceptions: IndexError, LZMAError,
        # OverflowError, ...
        raise ValueError(f"{type(error).__name__}: {one_line(str(error)):.200}") from error


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of an entry, of which no more is unpacked than the size that it states."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # The others unpack all that they are given, whatever they are asked for.
        raise ValueError(f"{entry.filename!r:.80}: expected no compression, or deflate")
    with archive.open(entry) as file:
        content = file.read(entry.file_size)
        # At the end, the checksum is compared.
        if len(content) != entry.file_size or file.read(1):
            raise ValueError(f"{entry.filename!r:.80}: expected {entry.file_size} bytes, found {len(content)}")
        return content


def _array(name: str, content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if not name.endswith(_SUFFIX) or version != (1, 0):
        raise ValueError(f"{name!r:.80}: expected an array")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    size_bytes = len(content) - file.tell()
    if dtype.kind not in _NUMBERS or math.prod(shape) * dtype.itemsize != size_bytes:
        raise ValueError(f"{name!r:.80}: expected numbers, as many as fit its {size_bytes} bytes")
    flat: np.ndarray = np.frombuffer(content, dtype, offset=file.tell())
    # The copy is writable, and does not keep the file's content in memory.
    return flat.reshape(shape, order="F" if is_fortran else "C").copy()
