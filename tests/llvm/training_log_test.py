"""Training logs: decoded in blocks, the same as record by record; and no harm from any bytes."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log import TrainingLog, decode_log
from compiler_opt.tensor_spec import TensorSpec

_TYPES = [np.dtype(code) for code in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]


@dataclasses.dataclass
class Written:
    """What was written, one Python object each."""

    content: bytes
    features: list[TensorSpec]
    score: TensorSpec | None
    contexts: list[tuple[str, int]]
    observations: list[bytes]
    outcomes: list[tuple[int, bytes]]


def _write(
    features: list[TensorSpec],
    score: TensorSpec | None,
    contexts: list[tuple[str, int, str]],
    rng: np.random.Generator,
    advice: bool = True,
) -> Written:
    """As LLVM's `Logger` does; a context has a name, a first index, and `.`, `o` (with an outcome) per observation."""
    header: dict[str, Any] = {"features": [spec.to_json() for spec in features]}
    if advice:
        header["advice"] = TensorSpec("advice", np.dtype("i8"), (1,)).to_json()
    if score is not None:
        header["score"] = score.to_json()
    written = Written(json.dumps(header).encode() + b"\n", features, score, [], [], [])
    for name, first, observations in contexts:
        written.contexts.append((name, len(written.observations)))
        written.content += json.dumps({"context": name}).encode() + b"\n"
        for index, kind in enumerate(observations, first):
            payload = rng.bytes(sum(spec.num_bytes for spec in features))
            written.content += b'{"observation":%d}\n' % index + payload + b"\n"
            if kind == "o" and score is not None:
                outcome = rng.bytes(score.num_bytes)
                written.content += b'{"outcome":%d}\n' % index + outcome + b"\n"
                written.outcomes.append((len(written.observations), outcome))
            written.observations.append(payload)
    return written


def _check(log: TrainingLog, written: Written, num_observations: int, num_outcomes: int) -> None:
    assert list(log.features) == written.features
    assert log.score == written.score
    assert [row.tobytes() for row in log.observations] == written.observations[:num_observations]
    assert [row.tobytes() for row in log.outcomes] == [raw for _, raw in written.outcomes[:num_outcomes]]
    assert log.outcome_of.tolist() == [position for position, _ in written.outcomes[:num_outcomes]]
    joined = b"".join(written.observations[:num_observations])
    offset = 0
    for spec in written.features:
        array = log.arrays()[spec.name]
        assert array.shape == (num_observations, *spec.shape)
        assert array.dtype == spec.dtype
        stride = len(written.observations[0]) if num_observations else 0
        for row in range(num_observations):
            start = row * stride + offset
            assert array[row].tobytes() == joined[start : start + spec.num_bytes]
        offset += spec.num_bytes


_specs = st.builds(
    TensorSpec, st.just("x"), st.sampled_from(_TYPES), st.lists(st.integers(1, 4), max_size=3).map(tuple)
)
_features = st.lists(_specs, min_size=1, max_size=5).map(
    lambda specs: [dataclasses.replace(spec, name=f"feature {index}") for index, spec in enumerate(specs)]
)
_contexts = st.lists(
    st.tuples(st.text(max_size=5), st.sampled_from([0, 7, 98, 10**9 - 2]), st.text(".o", max_size=25)), max_size=4
)


@settings(deadline=None)
@given(_features, st.none() | _specs, _contexts, st.integers(0, 1 << 32), st.booleans())
def test_every_log_is_read_as_it_was_written(
    features: list[TensorSpec],
    score: TensorSpec | None,
    contexts: list[tuple[str, int, str]],
    seed: int,
    advice: bool,
) -> None:
    written = _write(features, score, contexts, np.random.default_rng(seed), advice)
    log = decode_log(written.content)
    assert log.left_bytes == 0
    assert (log.advice is not None) == advice
    assert list(log.contexts) == written.contexts
    _check(log, written, len(written.observations), len(written.outcomes))


@settings(deadline=None)
@given(_features, st.none() | _specs, _contexts, st.integers(0, 1 << 32), st.data())
def test_a_log_that_breaks_off_keeps_its_whole_records(
    features: list[TensorSpec],
    score: TensorSpec | None,
    contexts: list[tuple[str, int, str]],
    seed: int,
    data: st.DataObject,
) -> None:
    written = _write(features, score, contexts, np.random.default_rng(seed))
    header_end = written.content.index(b"\n") + 1
    cut = data.draw(st.integers(0, len(written.content)))
    content = written.content[:cut]
    if cut < header_end:
        with pytest.raises(ProtocolError, match="first line"):
            decode_log(content)
        return
    log = decode_log(content)
    _check(log, written, len(log), len(log.outcomes))
    # What is left is less than the next record, and what was kept is all that comes before it.
    kept = cut - log.left_bytes
    longer = decode_log(written.content[:kept])
    assert (len(longer), longer.left_bytes) == (len(log), 0)
    record = max(map(len, written.content[kept:].split(b"\n", 1)), default=0) + 1
    assert log.left_bytes == 0 or log.left_bytes < record + sum(spec.num_bytes for spec in features) + 100


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 32), st.data())
def test_damage_is_an_error_or_other_numbers_but_nothing_else(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    features = [TensorSpec("a", np.dtype("i8"), (2,)), TensorSpec("b", np.dtype("f4"), ())]
    written = _write(features, TensorSpec("s", np.dtype("f4"), (1,)), [("m", 0, "oo.o" * 4), ("n", 0, "...")], rng)
    content = bytearray(written.content)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        log = decode_log(bytes(content))
    except ProtocolError as error:
        assert "\n" not in str(error)
        return
    assert len(log) <= len(written.observations) + 1


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_log(content)


_HEADER = b'{"features":[{"name":"a","type":"int8_t","port":0,"shape":[1]}]'
_SCORE = b',"score":{"name":"s","type":"float","port":0,"shape":[1]}}\n'


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b"}\nnonsense\n", "JSON"),
        (b'}\n{"observation":-1}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":true}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":0,"more":1}\nx\n', "expected a context, an observation or an outcome"),
        (b'}\n{"context":3}\n', "expected a context, an observation or an outcome"),
        (b'}\n{"observation":0}\nxy', "expected a newline after observation 0"),
        (b'}\n{"observation":0}\nx\n{"outcome":0}\n', "the header has no score"),
        (_SCORE + b'{"observation":0}\nx\n{"outcome":1}\n1234\n', "expected the outcome of the observation before it"),
        (_SCORE + b'{"observation":0}\nx\n{"outcome":0}\n1234\n{"outcome":0}\n1234\n', "expected the outcome"),
        (_SCORE + b'{"observation": 0}\nx\n{"outcome": 0}\n12345\n', "expected a newline after outcome 0"),
    ],
)
def test_what_is_not_of_the_format_is_named_with_its_place(rest: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as caught:
        decode_log(_HEADER + rest)
    assert "JSON" in message or "at byte " in str(caught.value)


def test_spaces_in_lines_are_allowed() -> None:
    rest = b'{"observation": 3}\nx\n{"outcome": 3}\n1234\n{"observation": 4}\ny\n'
    log = decode_log(_HEADER + _SCORE + rest)
    assert log.arrays()["a"][:, 0].tobytes() == b"xy"
    assert log.outcome_of.tolist() == [0]
    assert log.left_bytes == 0


def test_a_long_log_is_read_in_blocks() -> None:
    features = [TensorSpec("a", np.dtype("i8"), (1,))]
    header = json.dumps({"features": [features[0].to_json()]}).encode() + b"\n"
    numbers = np.arange(123_456)
    body = b"".join(b'{"observation":%d}\n%b\n' % (number, np.int64(number).tobytes()) for number in numbers.tolist())
    log = decode_log(header + body)
    np.testing.assert_array_equal(log.arrays()["a"][:, 0], numbers)
