"""Damaged training logs: an error that says where, or what comes before the damage; never anything else."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log_reader import TrainingLog, decode_log, read_log
from compiler_opt.tensor_spec import TensorSpec
from tests.llvm.training_log_samples import Sample, check, check_all, samples, write


def _decode(content: bytes) -> TrainingLog | None:
    """None for a log that is refused, in one line."""
    try:
        return decode_log(content)
    except ProtocolError as error:
        assert "\n" not in str(error)
        return None


@given(samples, st.data())
def test_a_log_that_breaks_off_keeps_its_whole_records(sample: Sample, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(sample.content)))
    if end < sample.header_bytes:
        with pytest.raises(ProtocolError, match="first line"):
            decode_log(sample.content[:end])
        return
    log = decode_log(sample.content[:end])
    check(log, sample, end)
    ends = [sample.header_bytes, *sample.context_ends, *sample.observation_ends, *sample.outcome_ends]
    assert log.left_bytes == end - max(place for place in ends if place <= end)
    for found, places in (
        (len(log.contexts), sample.context_ends),
        (len(log), sample.observation_ends),
        (len(log.outcomes), sample.outcome_ends),
    ):
        assert found == sum(place <= end for place in places)


@settings(max_examples=150)
@given(samples, st.data())
def test_a_byte_that_is_changed_changes_what_it_stands_for_or_is_found(sample: Sample, data: st.DataObject) -> None:
    place = data.draw(st.integers(sample.header_bytes - 1, len(sample.content) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != sample.content[place]))
    content = sample.content[:place] + bytes([value]) + sample.content[place + 1 :]
    log = _decode(content)
    if log is None:
        return
    check(log, sample, place)
    if log.left_bytes:
        assert log.left_bytes >= len(content) - place
        return
    # It is in a name or in a tensor: all the others are as they were.
    for name, _ in sample.contexts:
        assert sum(one == name for one, _ in log.contexts) >= sum(one == name for one, _ in sample.contexts) - 1
    size = sum(spec.num_bytes for spec in sample.features)
    for end, found in zip(sample.observation_ends, log.observations, strict=True):
        assert found.tobytes() == content[end - 1 - size : end - 1]
    score_size = sample.score.num_bytes if sample.score is not None else 0
    for end, found in zip(sample.outcome_ends, log.outcomes, strict=True):
        assert found.tobytes() == content[end - 1 - score_size : end - 1]


@settings(max_examples=150)
@given(samples, st.data())
def test_what_comes_before_bytes_cut_or_inserted_is_right(sample: Sample, data: st.DataObject) -> None:
    place = data.draw(st.integers(sample.header_bytes, len(sample.content)))
    cut = data.draw(st.integers(0, 200))
    other = data.draw(st.integers(0, len(sample.content)))
    copied = sample.content[other : other + data.draw(st.integers(0, 200))]
    inserted = data.draw(st.just(b"") | st.just(copied) | st.binary(max_size=20))
    content = sample.content[:place] + inserted + sample.content[place + cut :]
    log = _decode(content)
    if log is not None:
        check(log, sample, place)


@pytest.mark.ci
@settings(max_examples=150)
@given(
    st.integers(0, 1 << 32), st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.binary(max_size=9)), min_size=1)
)
def test_any_damage_is_an_error_or_other_numbers(seed: int, faults: list[tuple[int, float, bytes]]) -> None:
    features = [TensorSpec("a", np.dtype("i8"), (2,)), TensorSpec("b", np.dtype("f4"), ())]
    contexts = [("m", 0, "oo.o" * 4), ("n", 0, "..."), ("o", 0, "o" * 130)]
    content = bytearray(write(features, TensorSpec("s", np.dtype("f4"), (1,)), contexts, seed).content)
    for cut, where, inserted in faults:
        place = int(where * len(content))
        content[place : place + cut] = inserted
    log = _decode(bytes(content))
    if log is not None:
        for arrays in (log.arrays(), log.columns()):
            assert {len(array) for array in arrays.values()} == {len(log)}
        assert all(0 <= number < len(log) for number in log.outcome_of)
        assert log.left_bytes <= len(content)


@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_log(content)


@pytest.mark.parametrize("num_records", [3, 300])
def test_each_byte_of_a_file_matters_or_is_a_number(tmp_path: Path, num_records: int) -> None:
    sample = write([TensorSpec("a", np.dtype("u1"), (1,))], None, [("m", 0, "." * num_records)], seed=1)
    path = tmp_path / "log"
    path.write_bytes(sample.content)
    check_all(read_log(path), sample)
    numbers = {end - 2 for end in sample.observation_ends}
    name = sample.content.index(b'"m"') + 1
    for place in range(sample.header_bytes, len(sample.content) - 1):
        content = bytearray(sample.content)
        content[place] ^= 1
        log = _decode(bytes(content))
        if place in numbers or place == name:
            assert log is not None and len(log) == num_records
        else:
            assert log is None
