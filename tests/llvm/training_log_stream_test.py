"""Training logs that come bit by bit: the same as when they are read at once, and no later than need be."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import MAX_LINE_BYTES
from compiler_opt.llvm.training_log_reader import LogStream, TrainingLog, decode_log
from compiler_opt.tensor_spec import TensorSpec
from tests.llvm.training_log_samples import Sample, check_all, same, samples, write


class _Pieces(io.RawIOBase):
    """A file of which each read gives the next piece, as a pipe does."""

    def __init__(self, content: bytes, sizes: list[int]):
        self._content = content
        self._sizes = sizes
        self._number = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._content[: min(size, self._sizes[self._number % len(self._sizes)])]
        self._content = self._content[len(piece) :]
        self._number += 1
        return piece


def _whole(stream: LogStream) -> TrainingLog:
    """All blocks as one log."""
    blocks = list(stream)
    place = 0
    for block in blocks:
        assert block.first == place
        assert block.left_bytes == 0
        place += len(block)
    empty = decode_log(write(list(stream.features), stream.score, [], seed=0).content)
    return TrainingLog(
        stream.features,
        stream.advice,
        stream.score,
        tuple(context for block in blocks for context in block.contexts),
        tuple(rows for block in blocks for rows in block.blocks),
        np.concatenate([empty.outcomes, *(block.outcomes for block in blocks)]),
        np.concatenate([empty.outcome_of, *(block.outcome_of for block in blocks)]),
        stream.left_bytes,
    )


_sizes = st.lists(st.integers(1, 400) | st.integers(1, 10_000), min_size=1, max_size=20)


@given(samples, _sizes)
def test_a_log_in_any_pieces_is_the_whole_log(sample: Sample, sizes: list[int]) -> None:
    stream = LogStream(_Pieces(sample.content, sizes))  # type: ignore[arg-type]
    check_all(_whole(stream), sample)
    assert stream.left_bytes == 0


@given(samples, _sizes, st.integers(0, 3), st.floats(0, 1), st.binary(max_size=9))
def test_damage_is_found_as_it_is_in_the_whole_log(
    sample: Sample, sizes: list[int], cut: int, where: float, inserted: bytes
) -> None:
    place = int(where * len(sample.content))
    content = sample.content[:place] + inserted + sample.content[place + cut :]
    found: list[TrainingLog | str] = []
    for read in (lambda: decode_log(content), lambda: _whole(LogStream(_Pieces(content, sizes)))):  # type: ignore[arg-type]
        try:
            found.append(read())
        except ProtocolError as error:
            found.append(str(error))
    at_once, in_pieces = found
    if isinstance(at_once, TrainingLog) and isinstance(in_pieces, TrainingLog):
        assert same(at_once, in_pieces)
    else:
        assert at_once == in_pieces


def test_what_has_come_is_there_before_the_rest_comes() -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (3,))], None, [("m", 0, "." * 9)], seed=1)
    source, target = os.pipe()
    with open(source, "rb") as reader, open(target, "wb", buffering=0) as writer:  # noqa: PTH123
        begin = 0
        ends = iter(sample.observation_ends)
        writer.write(sample.content[: (end := next(ends)) + 3])
        stream = LogStream(reader)
        blocks = iter(stream)
        assert [row.tobytes() for row in next(blocks).observations] == sample.observations[:1]
        for number, begin in enumerate(ends, 1):
            writer.write(sample.content[end + 3 : begin + 3])
            end = begin
            block = next(blocks)
            assert block.first == number
            assert [row.tobytes() for row in block.observations] == sample.observations[number : number + 1]
        writer.close()
        assert next(blocks, None) is None
        assert stream.left_bytes == 0


def test_an_outcome_may_come_later_than_its_observation() -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (3,))], TensorSpec("s", np.dtype("f4"), (1,)), [("m", 0, "o")], 1)
    first = sample.observation_ends[0]
    stream = LogStream(_Pieces(sample.content, [first, len(sample.content)]))  # type: ignore[arg-type]
    one, other = stream
    assert (len(one), len(one.outcomes), len(other), len(other.outcomes)) == (1, 0, 0, 1)
    assert (one.first, other.first, other.outcome_of.tolist()) == (0, 1, [0])


def test_no_more_is_held_than_a_block_and_a_record() -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (100,))], None, [("m", 0, "." * 500)], seed=1)
    lengths = [len(block) for block in LogStream(io.BytesIO(sample.content), block_bytes=10_000)]
    assert sum(lengths) == 500
    assert max(lengths) <= 13  # of 823 bytes or more: 10,000 and what was left of the block before


def test_a_record_may_be_larger_than_a_block() -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (5000,))], None, [("m", 0, "...")], seed=1)
    check_all(_whole(LogStream(io.BytesIO(sample.content), block_bytes=1000)), sample)


def test_a_compressed_file_is_a_stream_as_well(tmp_path: Path) -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (1,))], None, [("m", 0, "." * 1500)], seed=1)
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(sample.content))
    with gzip.open(path) as file:
        check_all(_whole(LogStream(file)), sample)  # type: ignore[arg-type]


def test_what_is_left_is_reported_at_the_end() -> None:
    sample = write([TensorSpec("a", np.dtype("i8"), (1,))], None, [("m", 0, "...")], seed=1)
    stream = LogStream(io.BytesIO(sample.content[:-1]))
    assert [len(block) for block in stream] == [2]
    assert stream.left_bytes == len(b'{"observation":2}\n12345678')
    assert list(stream) == []


@pytest.mark.parametrize("content", [b"", b'{"features":'])
def test_a_stream_without_a_first_line_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="first line is not complete"):
        LogStream(io.BytesIO(content))


def test_a_line_that_never_ends_is_not_read_to_its_end() -> None:
    endless = io.BytesIO(b"x" * (4 * MAX_LINE_BYTES))
    with pytest.raises(ProtocolError, match="expected a line, found none within"):
        LogStream(endless, block_bytes=1 << 16)
    assert endless.tell() <= MAX_LINE_BYTES + (1 << 16)
