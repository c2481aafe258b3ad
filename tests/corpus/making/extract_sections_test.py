"""Damaged section headers; extract_test.py covers intact objects."""

import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds.objects import Member, ObjectFile
from compiler_opt.corpus.making.extract import BITCODE_SECTION, COMMAND_SECTION, Reader
from compiler_opt.errors import CorpusError, ProtocolError
from compiler_opt.llvm.elf import ElfFile

_SECTION_HEADER_BYTES = 64
_OFFSET, _SIZE, _NAME, _LINK = 24, 32, 0, 40
"""Offsets of fields in the section headers of 64-bit ELF."""


@pytest.fixture(name="path", scope="module")
def path_fixture(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sections") / "x.o"
    command = [clang_path, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=b"int twice(int x) { return 2 * x; }", check=True)
    return path


def header(path: Path, section: str) -> int:
    """The offset of a section's header in the file."""
    elf = ElfFile.read(path)
    (index,) = elf.sections_named(section)
    return int.from_bytes(elf.data[40:48], "little") + index * _SECTION_HEADER_BYTES


def damaged(path: Path, changes: dict[int, bytes]) -> ObjectFile:
    content = bytearray(path.read_bytes())
    for position, data in changes.items():
        content[position : position + len(data)] = data
    target = path.with_name("damaged.o")
    target.write_bytes(content)
    return ObjectFile(target, "damaged.o")


def read_or_refuse(item: ObjectFile) -> str | None:
    """The error message, one line; None if the object was read."""
    try:
        assert Reader().read(item)
    except (CorpusError, ProtocolError) as error:
        assert "\n" not in str(error)
        return str(error)
    return None


@pytest.mark.parametrize("section", [BITCODE_SECTION, COMMAND_SECTION])
@pytest.mark.parametrize(
    ("field", "value"), [(_SIZE, 4 << 30), (_SIZE, 1 << 63), (_OFFSET, 4 << 30), (_OFFSET, 1 << 63)]
)
def test_sections_that_claim_gigabytes_are_refused(path: Path, section: str, field: int, value: int) -> None:
    item = damaged(path, {header(path, section) + field: struct.pack("<Q", value)})
    reason = read_or_refuse(item)
    assert reason is not None
    assert "cut short or corrupt" in reason or "expected at most" in reason


def test_a_section_that_is_a_part_of_another_is_no_bitcode(path: Path) -> None:
    start = header(path, COMMAND_SECTION)
    where = path.read_bytes()[start + _OFFSET : start + _OFFSET + 16]
    item = damaged(path, {header(path, BITCODE_SECTION) + _OFFSET: where})
    assert "expected LLVM bitcode" in (read_or_refuse(item) or "")


def test_headers_that_claim_gigabytes_are_refused(path: Path) -> None:
    for changes, message in (
        ({60: struct.pack("<H", 0xFFFE)}, "section headers end at byte"),
        ({40: struct.pack("<Q", 4 << 30)}, "section headers end at byte"),
        ({62: struct.pack("<H", 0xFFFE)}, "section index"),
        ({58: struct.pack("<H", 1)}, "expected section headers of 64 bytes"),
    ):
        assert message in (read_or_refuse(damaged(path, changes)) or "")


def test_a_huge_sparse_file_is_not_read(path: Path) -> None:
    sparse = path.with_name("sparse.o")
    with sparse.open("wb") as file:
        file.write(path.read_bytes())
        file.truncate(3 << 30)
    assert "is over the limit" in (read_or_refuse(ObjectFile(sparse, "sparse.o")) or "")
    # Below the limit, a claimed size costs no more memory than the file has bytes.
    os.truncate(sparse, 1 << 30)
    assert read_or_refuse(ObjectFile(sparse, "sparse.o")) is None
    sparse.unlink()


def test_members_that_their_archive_does_not_have_are_refused(path: Path) -> None:
    size = path.stat().st_size
    item = ObjectFile(path, "x.o", Member("x.o", 8, size))
    assert f"ends at byte {size + 8} of {size}" in (read_or_refuse(item) or "")


def test_a_marker_section_is_refused(clang_path: str, tmp_path: Path) -> None:
    command = [clang_path, "-Xclang", "-fembed-bitcode=marker", "-c", "-x", "c", "-", "-o", str(tmp_path / "x.o")]
    subprocess.run(command, input=b"int x;", check=True)
    reason = read_or_refuse(ObjectFile(tmp_path / "x.o", "x.o")) or ""
    assert "compile with -Xclang -fembed-bitcode=all" in reason


fields = st.sampled_from([_OFFSET, _SIZE, _NAME, _LINK])
values = st.one_of(st.integers(0, 2048), st.integers(0, 2**64 - 1), st.sampled_from([1 << 32, (1 << 64) - 1, 1 << 31]))


@given(st.lists(st.tuples(st.sampled_from([BITCODE_SECTION, COMMAND_SECTION, ".symtab"]), fields, values), max_size=4))
@settings(max_examples=50)
def test_any_sections_are_read_or_refused_in_one_line(path: Path, lies: list[tuple[str, int, int]]) -> None:
    changes = {header(path, section) + field: struct.pack("<Q", value) for section, field, value in lies}
    read_or_refuse(damaged(path, changes))
