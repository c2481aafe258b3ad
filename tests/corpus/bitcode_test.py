import io
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus import bitcode


def problem(data: bytes) -> str | None:
    return bitcode.problem(io.BytesIO(data), len(data))


@pytest.fixture(name="compiled", scope="module")
def compiled_fixture(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("bitcode")
    (folder / "a.c").write_text("int f(int x) { return x + 1; }\n")
    command = [clang_path, "-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "a.c", "-o", "a.bc"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "a.bc").read_bytes()


def wrapped(data: bytes, padding: int = 0) -> bytes:
    """Adds the wrapper header of Darwin targets: magic, version, offset, size, CPU type."""
    words = (0x0B17C0DE, 0, 20, len(data), 7)
    return b"".join(word.to_bytes(4, "little") for word in words) + data + bytes(padding)


@pytest.mark.both_compilers
def test_the_producer_is_the_compilers_version(compiled: bytes, clang_path: str) -> None:
    text = subprocess.run([clang_path, "--version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"version (\d+)\.(\d+)\.(\d+)", text)
    assert match is not None
    assert bitcode.producer_version(compiled[: bitcode.HEAD_BYTES]) == tuple(int(part) for part in match.groups())
    assert bitcode.producer_version(wrapped(compiled)[: bitcode.HEAD_BYTES]) == tuple(int(x) for x in match.groups())


def test_whole_bitcode_is_accepted(compiled: bytes) -> None:
    assert problem(compiled) is None
    assert problem(wrapped(compiled)) is None
    assert problem(wrapped(compiled, padding=12)) is None
    assert problem(compiled + bytes(16)) is None
    assert problem(compiled + compiled) is None


def test_every_truncation_is_detected(compiled: bytes) -> None:
    # Truncation between two top-level blocks leaves a well-formed file without its strings.
    ends = block_ends(compiled)
    assert len(ends) >= 3
    for size in range(len(compiled)):
        assert (problem(compiled[:size]) is None) == (size in ends), size


def block_ends(data: bytes) -> set[int]:
    ends = set()
    position = 4
    while position < len(data):
        position += 8 + 4 * int.from_bytes(data[position + 4 : position + 8], "little")
        ends.add(position)
    return ends


@pytest.mark.parametrize("data", [b"", b"BC", b"\x7fELF" + bytes(60), b"BC\xc0\xde", b"BC\xc0\xde" + bytes(12)])
def test_other_files_are_refused(data: bytes) -> None:
    assert problem(data) is not None
    assert bitcode.producer(data) is None


@given(st.binary(max_size=600))
def test_garbage_never_raises(data: bytes) -> None:
    for candidate in (data, b"BC\xc0\xde" + data, wrapped(data), b"\xde\xc0\x17\x0b" + data):
        problem(candidate)
        bitcode.producer(candidate)
        bitcode.producer_version(candidate)


@given(st.data())
def test_damaged_identification_never_raises(data: st.DataObject) -> None:
    head = bytearray(IDENTIFICATION)
    for _ in range(data.draw(st.integers(1, 4))):
        head[data.draw(st.integers(4, len(head) - 1))] = data.draw(st.integers(0, 255))
    bitcode.producer(bytes(head))


IDENTIFICATION = bytes.fromhex("4243c0de35140000050000006230244 9".replace(" ", "")) + bytes(range(48))
"""The start of a real file, then anything."""


def test_only_headers_are_read(compiled: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.bc"
    path.write_bytes(compiled)
    with path.open("rb", buffering=0) as file:
        bytes_read = 0

        class Counting(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                nonlocal bytes_read
                data = file.read(size)
                assert data is not None
                bytes_read += len(data)
                return data

            def seek(self, offset: int, whence: int = 0) -> int:
                return file.seek(offset, whence)

        assert bitcode.problem(Counting(), len(compiled)) is None  # type: ignore[arg-type]
    assert bytes_read < 100
