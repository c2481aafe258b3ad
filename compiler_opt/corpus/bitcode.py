"""Reads the headers of bitcode files without LLVM: whether a file is whole, which LLVM wrote it, its target.

Format: https://llvm.org/docs/BitCodeFormat.html. A file starts with `BC` 0xC0DE (or the wrapper header, 5 words: magic,
version, offset, size, CPU type), and its first block is IDENTIFICATION_BLOCK: record STRING holds the producer, e.g.
`LLVM22.1.8`; record TRIPLE of a MODULE_BLOCK holds the target. Top-level blocks are aligned to 32 bits and state their
length, so truncation is detected without reading their contents.
"""

import io
import re
from typing import BinaryIO

from compiler_opt.errors import CorpusError

_RAW_MAGIC = b"BC\xc0\xde"
_WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"

_WRAPPER_BYTES = 20
_FIRST_BYTES = 64

HEAD_BYTES = 512
"""How many bytes of a file `producer` needs."""

MAX_FILE_BYTES = 1 << 30
"""The largest file that becomes a module."""

_IDENTIFICATION_BLOCK = 13
_STRING_RECORD = 1
_MODULE_BLOCK = 8
_TRIPLE_RECORD = 2
_END_BLOCK, _ENTER_SUBBLOCK, _DEFINE_ABBREV, _UNABBREV_RECORD = range(4)
_FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(1, 6)
_CHAR6_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"


def problem(file: BinaryIO, size_bytes: int) -> str | None:
    """Describes what is wrong with a bitcode file, None if it looks whole; reads only the headers of its blocks.

    The file must be positioned at its start.
    """
    # The first blocks are short: one read covers several headers.
    head = file.read(_FIRST_BYTES)
    start, end = 0, size_bytes
    if head.startswith(_WRAPPER_MAGIC):
        if len(head) < _WRAPPER_BYTES:
            return f"expected bitcode, found {size_bytes} bytes (truncated)"
        start = int.from_bytes(head[8:12], "little")
        end = start + int.from_bytes(head[12:16], "little")
        if end > size_bytes:
            return f"expected {end} bytes of bitcode, found {size_bytes} (truncated)"
        file.seek(start)
        head = file.read(_FIRST_BYTES)
    if not head.startswith(_RAW_MAGIC):
        return f"expected LLVM bitcode (it starts with 'BC' 0xC0DE), found {head[:4]!r}"
    return _blocks_problem(file, head, start, end)


def check(data: bytes, shown: str, remedy: str) -> None:
    """Checks bitcode in memory; raises CorpusError with the name to show, what is wrong, and the remedy."""
    if wrong := problem(io.BytesIO(data), len(data)):
        raise CorpusError(f"{shown}: {wrong}; {remedy}")


def _blocks_problem(file: BinaryIO, first: bytes, start: int, end: int) -> str | None:
    """Follows the top-level blocks from byte `start` (the magic) to `end`; `first` holds the bytes at `start`."""
    num_blocks = 0
    position = start + 4
    while position < end:
        head = first[position - start : position - start + 8]
        if len(head) < 8:
            file.seek(position)
            head = file.read(8)
        if head[:4] == _RAW_MAGIC:  # Bitcode files may be concatenated.
            position += 4
            continue
        if num_blocks and not any(head):  # Padding.
            break
        if len(head) < 8 or head[0] & 3 != _ENTER_SUBBLOCK:
            return (
                f"expected a block of bitcode at byte {position} of {end}, found something else (truncated or damaged)"
            )
        # 2 bits abbreviation, 8 bits block ID (always one chunk), 4 bits width; aligned; length in 32-bit words.
        position += 8 + 4 * int.from_bytes(head[4:8], "little")
        num_blocks += 1
    if position > end:
        return f"expected {position} bytes of bitcode, found {end} (truncated)"
    return None if num_blocks else f"expected blocks of bitcode, found {end} bytes (truncated)"


def split(data: bytes) -> list[bytes]:
    """Splits a section that `ld -r` concatenated into its bitcode files, which may have padding between them.

    Raises ValueError if it is not a sequence of raw bitcode files.
    """
    if data.startswith(_WRAPPER_MAGIC):
        return [data]
    starts: list[int] = []
    position = 0
    while position < len(data):
        head = data[position : position + 8]
        if head[:4] == _RAW_MAGIC:
            starts.append(position)
            position += 4
        elif not starts or not any(head):
            position += 4
        elif len(head) == 8 and head[0] & 3 == _ENTER_SUBBLOCK:
            position += 8 + 4 * int.from_bytes(head[4:], "little")
        else:
            raise ValueError(f"expected a block of bitcode at byte {position}")
    return [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


def producer(head: bytes) -> str | None:
    """The producer of a bitcode file, e.g. `LLVM22.1.8`, from its first `HEAD_BYTES`; None if not recorded."""
    if head.startswith(_WRAPPER_MAGIC) and len(head) >= 20:
        head = head[int.from_bytes(head[8:12], "little") :]
    if not head.startswith(_RAW_MAGIC):
        return None
    try:
        return _text_record(_Bits(head[:HEAD_BYTES], position=32), _IDENTIFICATION_BLOCK, _STRING_RECORD)
    except (EOFError, ValueError):
        return None


def producer_version(head: bytes) -> tuple[int, int, int] | None:
    """The producer's LLVM version, e.g. `(22, 1, 8)`; None if not recorded."""
    match = re.match(r"LLVM(\d{1,4})\.(\d{1,4})\.(\d{1,4})", producer(head) or "")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def target_triple(data: bytes) -> str | None:
    """The target triple of the first module in a bitcode file, e.g. `x86_64-pc-linux-gnu`; None if not recorded."""
    if not data.startswith(_RAW_MAGIC):
        return None
    try:
        return _text_record(_Bits(data, position=32), _MODULE_BLOCK, _TRIPLE_RECORD)
    except (EOFError, ValueError):
        return None


class _Bits:
    """Reads little-endian bit fields; raises EOFError if the data ends before the field."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._end = 8 * len(data)
        self._position = position

    def fixed(self, width: int) -> int:
        end = self._position + width
        if not 0 <= width <= 64 or end > self._end:
            raise EOFError
        part = int.from_bytes(self._data[self._position >> 3 : (end + 7) >> 3], "little")
        value = (part >> (self._position & 7)) & ((1 << width) - 1)
        self._position = end
        return value

    def vbr(self, width: int) -> int:
        """Reads a variable bit rate integer: chunks of `width` bits whose top bit means that another follows."""
        if width < 2:
            raise ValueError(f"VBR width: expected at least 2, found {width}")
        more = 1 << (width - 1)
        value = shift = 0
        while True:
            chunk = self.fixed(width)
            value |= (chunk & (more - 1)) << shift
            shift += width - 1
            if not chunk & more:
                return value

    def align32(self) -> None:
        self._position = (self._position + 31) & ~31

    def block(self) -> tuple[int, int, int]:
        """Reads a block header after ENTER_SUBBLOCK: block ID, abbreviation width, length in bits."""
        kind, width = self.vbr(8), self.vbr(4)
        self.align32()
        return kind, width, 32 * self.fixed(32)

    def skip(self, width: int) -> None:
        self._position += width


def _text_record(bits: _Bits, block: int, code: int) -> str | None:
    """The first record `code` in the first top-level block with ID `block`, as text; None if there is none."""
    while bits.fixed(2) == _ENTER_SUBBLOCK:
        kind, width, length = bits.block()
        if kind == block:
            return _text_record_within(bits, width, code)
        bits.skip(length)
    return None


def _text_record_within(bits: _Bits, width: int, code: int) -> str | None:
    abbreviations: list[list[tuple[int, int]]] = []
    while (kind := bits.fixed(width)) != _END_BLOCK:
        if kind == _ENTER_SUBBLOCK:
            bits.skip(bits.block()[2])
            continue
        if kind == _DEFINE_ABBREV:
            abbreviations.append(_abbreviation(bits))
            continue
        if kind == _UNABBREV_RECORD:
            record = [bits.vbr(6)]
            record += [bits.vbr(6) for _ in range(bits.vbr(6))]
        elif kind - 4 < len(abbreviations):
            record = _record(bits, abbreviations[kind - 4])
        else:
            return None
        if record and record[0] == code:
            return "".join(chr(letter) for letter in record[1:] if 0 < letter < 128)
    return None


def _abbreviation(bits: _Bits) -> list[tuple[int, int]]:
    """Reads the operands of an abbreviation: pairs of encoding and argument; encoding 0 is a literal."""
    operands = []
    for _ in range(bits.vbr(5)):
        if bits.fixed(1):
            operands.append((0, bits.vbr(8)))
        else:
            encoding = bits.fixed(3)
            operands.append((encoding, bits.vbr(5) if encoding in (_FIXED, _VBR) else 0))
    return operands


def _record(bits: _Bits, operands: list[tuple[int, int]]) -> list[int]:
    record: list[int] = []
    for index, operand in enumerate(operands):
        if operand[0] == _ARRAY:
            if index + 2 != len(operands):
                raise ValueError("an array must be followed by its element type only")
            length = bits.vbr(6)
            return record + [_scalar(bits, operands[-1]) for _ in range(length)]
        record.append(_scalar(bits, operand))
    return record


def _scalar(bits: _Bits, operand: tuple[int, int]) -> int:
    encoding, argument = operand
    if encoding == 0:
        return argument
    if encoding == _FIXED:
        return bits.fixed(argument)
    if encoding == _VBR:
        return bits.vbr(argument)
    if encoding == _CHAR6:
        return ord(_CHAR6_LETTERS[bits.fixed(6)])
    raise ValueError(f"expected a scalar encoding, found {encoding}")
