"""Training logs in memory and in files: decoded in blocks, the same as record by record."""

import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import MAX_FEATURES, MAX_LINE_BYTES, Header, parse_header, parse_json_line
from compiler_opt.llvm.training_log_reader import decode_log, read_log
from compiler_opt.tensor_spec import TensorSpec
from tests.llvm.training_log_samples import ADVICE, Sample, check_all, same, samples, write


@given(samples)
def test_every_log_is_read_as_it_was_written(sample: Sample) -> None:
    log = decode_log(sample.content)
    assert log.left_bytes == 0
    check_all(log, sample)


@given(samples)
def test_each_feature_has_its_bytes_of_every_observation(sample: Sample) -> None:
    log = decode_log(sample.content)
    arrays, columns = log.arrays(), log.columns()
    assert list(arrays) == list(columns) == [spec.name for spec in sample.features]
    begin = 0
    for spec in sample.features:
        expected = b"".join(payload[begin : begin + spec.num_bytes] for payload in sample.observations)
        for array in (arrays[spec.name], columns[spec.name], log.columns([spec.name])[spec.name]):
            assert array.dtype == spec.dtype
            assert array.shape == (len(sample.observations), *spec.shape)
            assert array.tobytes() == expected
        begin += spec.num_bytes


def test_a_log_from_a_file_is_that_from_memory(tmp_path: Path) -> None:
    sample = write([TensorSpec("a", np.dtype("i4"), (3,))], None, [("m", 0, "." * 2345), ("n", 0, ".")], seed=1)
    path = tmp_path / "log"
    path.write_bytes(sample.content + b'{"observ')
    log = read_log(path)
    assert log.left_bytes == 8
    assert same(log, decode_log(path.read_bytes()))
    check_all(log, sample)
    path.unlink()
    assert log.columns()["a"].tobytes() == b"".join(sample.observations)


def test_a_pipe_is_a_file_too(tmp_path: Path) -> None:
    sample = write([TensorSpec("a", np.dtype("i4"), (3,))], None, [("m", 0, "...")], seed=1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(sample.content,))
    writer.start()
    check_all(read_log(pipe), sample)
    writer.join()


def test_a_file_without_a_first_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    with pytest.raises(ProtocolError, match="first line is not complete"):
        read_log(path)
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "absent")


def test_a_log_without_decisions_has_empty_arrays() -> None:
    features = [TensorSpec("a", np.dtype("i8"), (1, 33)), TensorSpec("b", np.dtype("f4"), ())]
    for contexts in ([], [("m", 0, "")]):
        log = decode_log(write(features, TensorSpec("s", np.dtype("f8"), (2,)), contexts, seed=1).content)
        assert (len(log), len(log.contexts), log.left_bytes) == (0, len(contexts), 0)
        assert log.outcomes.shape == (0, 2)
        for arrays in (log.arrays(), log.columns()):
            assert arrays["a"].shape == (0, 1, 33)
            assert arrays["b"].shape == (0,)


def test_nothing_is_copied_from_a_block() -> None:
    features = [TensorSpec("a", np.dtype("i8"), (1,)), TensorSpec("b", np.dtype("f4"), (3,))]
    content = write(features, None, [("m", 1000, "." * 5000)], seed=1).content
    log = decode_log(content)
    assert [len(block) for block in log.blocks] == [5000]
    whole = np.frombuffer(content, np.uint8)
    for array in log.arrays().values():
        assert np.shares_memory(array, whole)
        assert not array.flags.writeable
    assert not any(np.shares_memory(column, whole) for column in log.columns().values())


def test_there_are_as_many_blocks_as_contexts_and_lengths_of_numbers() -> None:
    features = [TensorSpec("a", np.dtype("i8"), (1,))]
    score = TensorSpec("s", np.dtype("f4"), (1,))
    log = decode_log(write(features, score, [("m", 0, "o" * 12_345), ("n", 0, "." * 150)], seed=1).content)
    assert [len(block) for block in log.blocks] == [10, 90, 900, 9000, 2345, 10, 90, 50]
    assert not log.observations.flags.writeable


def test_a_feature_that_is_not_there_is_a_key_error() -> None:
    log = decode_log(write([TensorSpec("a", np.dtype("i8"), (1,))], None, [], seed=1).content)
    with pytest.raises(KeyError, match="b"):
        log.columns(["b"])


def test_spaces_in_lines_are_allowed() -> None:
    rest = b'{"observation": 3}\nx\n{"outcome": 3}\n1234\n{"observation": 4}\ny\n'
    log = decode_log(_HEADER + _SCORE + rest)
    assert log.arrays()["a"][:, 0].tobytes() == b"xy"
    assert log.outcome_of.tolist() == [0]
    assert log.left_bytes == 0


def test_an_outcome_may_come_after_its_context_was_taken_up_again() -> None:
    # LLVM allocates registers of a RISC-V function twice, and logs one reward for both.
    rest = b'{"context":"f"}\n{"observation":0}\nx\n{"context":"f"}\n{"outcome":0}\n1234\n'
    log = decode_log(_HEADER + _SCORE + rest)
    assert log.contexts == (("f", 0), ("f", 1))
    assert log.outcome_of.tolist() == [0]


_HEADER = b'{"features":[{"name":"a","type":"int8_t","port":0,"shape":[1]}]'
_SCORE = b',"score":{"name":"s","type":"float","port":0,"shape":[1]}}\n'


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b"}\nnonsense\n", "JSON object"),
        (b"}\n[1]\n", "JSON object"),
        (b'}\n{"observation":-1}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":true}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":0,"more":1}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"context":3}\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":0}\nxy', "expected a newline after observation 0"),
        (b'}\n{"observation":0}\nx\n{"observation":2}\nx\n', "expected observation 1, found 2"),
        (b'}\n{"observation":0}\nx\n{"outcome":0}\n', "the header has no score"),
        (_SCORE + b'{"observation":0}\nx\n{"outcome":1}\n1234\n', "expected the outcome of the observation before it"),
        (_SCORE + b'{"observation":0}\nx\n{"outcome":0}\n1234\n{"outcome":0}\n1234\n', "expected the outcome"),
        (_SCORE + b'{"observation": 0}\nx\n{"outcome":0}\n1234\n{"outcome":0}\n1234\n', "expected the outcome"),
        (_SCORE + b'{"observation": 0}\nx\n{"outcome": 0}\n12345\n', "expected a newline after outcome 0"),
        (b"}\n" + b" " * MAX_LINE_BYTES, "expected a line, found none within 1048576 bytes"),
    ],
)
def test_what_is_not_of_the_format_is_named_with_its_place(rest: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as caught:
        decode_log(_HEADER + rest)
    assert "JSON" in message or "at byte " in str(caught.value)


def test_an_error_is_placed_where_it_is_also_far_into_a_long_context() -> None:
    content = write([TensorSpec("a", np.dtype("i1"), (1,))], None, [("m", 0, "." * 3000)], seed=1).content
    place = content.index(b'{"observation":2345}')
    with pytest.raises(ProtocolError, match=f"at byte {place}: expected observation 2345, found 9345"):
        decode_log(content.replace(b":2345}", b":9345}"))
    place = content.index(b'\n{"observation":2346}')
    with pytest.raises(ProtocolError, match=f"at byte {place}: expected a newline after observation 2345"):
        decode_log(content[:place] + b"?" + content[place + 1 :])


def test_a_long_log_is_read_in_blocks() -> None:
    features = [TensorSpec("a", np.dtype("i8"), (1,))]
    header = json.dumps({"features": [features[0].to_json()]}).encode() + b"\n"
    numbers = np.arange(123_456)
    body = b"".join(b'{"observation":%d}\n%b\n' % (number, np.int64(number).tobytes()) for number in numbers.tolist())
    log = decode_log(header + body)
    np.testing.assert_array_equal(log.arrays()["a"][:, 0], numbers)
    np.testing.assert_array_equal(log.columns()["a"][:, 0], numbers)


_A = {"name": "a", "type": "int64_t", "port": 0, "shape": [1]}


def test_a_header_tells_what_an_observation_holds() -> None:
    line = json.dumps({"features": [_A, {**_A, "name": "b", "shape": [2]}], "advice": _A}).encode()
    header = parse_header(line)
    int64 = np.dtype("i8")
    assert header == Header((TensorSpec("a", int64, (1,)), TensorSpec("b", int64, (2,))), TensorSpec("a", int64, (1,)))
    assert (header.observation_bytes, header.names) == (24, ("a", "b"))
    decoded = header.decode(np.arange(6).tobytes())
    assert decoded["a"].tolist() == [[0], [3]]
    assert decoded["b"].tolist() == [[1, 2], [4, 5]]


@given(samples)
def test_a_process_holds_each_header_that_is_sent_to_it_once(sample: Sample) -> None:
    header = Header(tuple(sample.features), ADVICE, sample.score)
    first, second = (pickle.loads(pickle.dumps(header)) for _ in range(2))  # noqa: S301 (our own)
    assert first == header
    assert first is second


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"features": [_A]}, "expected the key 'advice', found none"),
        ({"advice": _A}, "expected a list of 1 to 4096 features, found None"),
        ({"features": [], "advice": _A}, "expected a list of 1 to 4096 features"),
        ({"features": [_A] * (MAX_FEATURES + 1), "advice": _A}, "expected a list of 1 to 4096 features"),
        ({"features": [_A, _A], "advice": _A}, "the feature 'a' is given twice"),
        (
            {"features": [{**_A, "name": f"f{index}", "shape": [1 << 21]} for index in range(17)], "advice": _A},
            "an observation takes 285212672 bytes, over the limit 268435456",
        ),
        ({"features": [{**_A, "type": "int128_t"}], "advice": _A}, "tensor 'a': expected an element type"),
    ],
)
def test_a_header_that_promises_what_cannot_be_is_refused(header: dict[str, object], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        parse_header(json.dumps(header).encode())


@pytest.mark.parametrize("line", [b"", b"3", b"[" * 100_000, b"\xff\xfe", b'{"a": 1', b"1" * 5000])
def test_a_line_that_is_no_json_object_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON object, found"):
        parse_json_line(line)
