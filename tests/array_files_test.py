"""Arrays on disk: any other content raises ValueError."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import load_arrays, save_arrays

_MAX_BYTES = 1 << 20


@pytest.mark.parametrize("compressed", [False, True])
def test_round_trip(compressed: bool, tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "empty": np.zeros((0, 3), np.float32),
        "one": np.array(7, np.uint8),
        "by column": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    save_arrays(tmp_path / "a.npz", arrays, compressed=compressed)
    found = load_arrays(tmp_path / "a.npz", _MAX_BYTES)
    assert found.keys() == arrays.keys()
    for name, expected in arrays.items():
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)


def _header(text: str) -> bytes:
    """An array in numpy's format with an arbitrary header."""
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + len(padded).to_bytes(2, "little") + padded + bytes(64)


def _zip(name: str, content: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def _array(descr: str = "'<f8'", shape: str = "(8,)") -> bytes:
    return _zip("a.npy", _header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"))


def _npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values)
    return buffer.getvalue()


_LZMA = _zip("a.npy", _npy(np.arange(9.0)), zipfile.ZIP_LZMA)

DAMAGE = {
    "nothing": b"",
    "no zip": b"PK\x03\x04 and then nothing",
    "an array before a zip": _npy(np.zeros(3)) + _zip("a.npy", b"x"),
    "no array": _zip("a.npy", b"hello world"),
    "an empty entry": _zip("a.npy", b""),
    "an entry of another kind": _zip("a.txt", _npy(np.zeros(3))),
    "lzma": _LZMA,
    "bzip2": _zip("a.npy", _npy(np.arange(9.0)), zipfile.ZIP_BZIP2),
    "more than the memory": _array(shape="(99999999999,)"),
    "more than 64 bits": _array(shape="(99999999999999999999999,)"),
    "less than nothing": _array(shape="(-1,)"),
    "a type of no fields": _array(descr="()"),
    "long strings": _array(descr="'|S999999999'"),
    "dates": _array(descr="'<M8[Y]'"),
    "complex numbers": _array(descr="'<c8'"),
    "objects": _array(descr="'|O'"),
    "Python 2": _array(shape="(8L,)"),
    "brackets": _zip("a.npy", _header("(" * 100)),
    "a bomb": _zip("a.npy", _npy(np.zeros(1 << 20)), zipfile.ZIP_DEFLATED),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_anything_else_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(DAMAGE[what])
    with pytest.raises(ValueError) as error:
        load_arrays(tmp_path / "a.npz", _MAX_BYTES)
    assert str(error.value) and "\n" not in str(error.value)


def test_no_more_is_unpacked_than_an_entry_states(tmp_path: Path) -> None:
    content = bytearray(_zip("a.npy", bytes(1 << 26), zipfile.ZIP_DEFLATED))
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = content.index(signature) + place
        content[start : start + 4] = (1000).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="CRC"):
            load_arrays(tmp_path / "a.npz", _MAX_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="expected at most 1048576 bytes"):
        load_arrays(tmp_path / "a.npz", _MAX_BYTES)
