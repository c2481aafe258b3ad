"""The writer of training logs: LLVM's own bytes, and the inverse of the reader."""

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.tensor_spec import TensorSpec
from tests.llvm.training_log_samples import Sample, samples_of_llvm
from tests.llvm.training_log_writer import TrainingLogWriter

DRIVER = Path(__file__).with_name("training_log_driver.cpp")


@given(samples_of_llvm)
def test_a_log_that_was_read_is_written_again(sample: Sample) -> None:
    log = decode_log(sample.content)
    file = io.BytesIO()
    writer = TrainingLogWriter(file, log.features, advice=log.advice, score=log.score)
    arrays = log.arrays()
    outcomes = dict(zip(log.outcome_of.tolist(), log.outcomes, strict=True))
    ends = [*(begin for _, begin in log.contexts), len(log)][1:]
    for (name, begin), end in zip(log.contexts, ends, strict=True):
        writer.context(name)
        numbers = range(begin, end)
        if numbers and all(number in outcomes for number in numbers):
            rows = {name: array[begin:end] for name, array in arrays.items()}
            writer.observations(rows, [outcomes[number] for number in numbers])
            continue
        for number in numbers:
            writer.observation({name: array[number] for name, array in arrays.items()})
            if number in outcomes:
                writer.outcome(outcomes[number])
    assert file.getvalue() == sample.content


@pytest.fixture(scope="module")
def driver(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("driver") / "driver"
    config = Path(clang_path).name.replace("clang", "llvm-config")
    options = [
        subprocess.run([config, *query], capture_output=True, text=True, check=True).stdout.split()
        for query in (["--cxxflags"], ["--ldflags", "--libs"])
    ]
    command = ["g++", *options[0], str(DRIVER), *options[1], "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return output


_FEATURES = [
    TensorSpec("float", np.dtype("f4"), (2,)),
    TensorSpec("double", np.dtype("f8"), (1, 2), port=3),
    TensorSpec("int8", np.dtype("i1"), (2,)),
    TensorSpec("uint8", np.dtype("u1"), (2,)),
    TensorSpec("int16", np.dtype("i2"), (2,)),
    TensorSpec("uint16", np.dtype("u2"), (2,)),
    TensorSpec("int32", np.dtype("i4"), (2, 1)),
    TensorSpec("uint32", np.dtype("u4"), (2,)),
    TensorSpec("int64", np.dtype("i8"), (2,)),
    TensorSpec('a "name"\b\f\n\x01\x7f\\/é', np.dtype("u8"), (2,)),
]
_ADVICE, _REWARD = TensorSpec("advice", np.dtype("i8"), (1,)), TensorSpec("reward", np.dtype("f4"), (1,))


@pytest.mark.ci
@pytest.mark.both_compilers
@pytest.mark.parametrize("with_reward", [True, False])
def test_the_bytes_are_those_of_llvm(driver: Path, with_reward: bool) -> None:
    file = io.BytesIO()
    if with_reward:
        writer = TrainingLogWriter(file, _FEATURES, advice=_ADVICE, score=_REWARD)
    else:
        writer = TrainingLogWriter(file, _FEATURES)
    writer.context('one "\\\b\f\t\n\r\x1f\x7f/é')
    numbers = np.arange(12)[:, np.newaxis] + [0, 1]
    outcomes = np.arange(12) / 2 if with_reward else None
    writer.observations({spec.name: numbers for spec in _FEATURES}, outcomes)
    writer.context("two")
    writer.observation({spec.name: [50, 51] for spec in _FEATURES})
    writer.context("")
    writer.context("two")
    writer.observation({spec.name: [51, 52] for spec in _FEATURES})
    if with_reward:
        writer.outcome(-1)
    arguments = [] if with_reward else ["no reward"]
    by_llvm = subprocess.run([str(driver), *arguments], capture_output=True, check=True).stdout
    assert file.getvalue() == by_llvm
    log = decode_log(by_llvm)
    for spec, column in zip(_FEATURES, log.columns().values(), strict=True):
        np.testing.assert_array_equal(column, np.reshape([*numbers, [50, 51], [51, 52]], (14, *spec.shape)))
    if with_reward:
        np.testing.assert_array_equal(log.outcomes[:, 0], [*np.arange(12) / 2, -1])
        assert log.outcome_of.tolist() == [*range(12), 13]
    assert log.contexts[1:] == (("two", 12), ("", 13), ("two", 13))


_A, _S = TensorSpec("a", np.dtype("u1"), (2,)), TensorSpec("s", np.dtype("f4"), (1,))


def test_a_header_that_cannot_be_read_is_not_written() -> None:
    file = io.BytesIO()
    for features in ([], [_A, _A]):
        with pytest.raises(ProtocolError):
            TrainingLogWriter(file, features)
    assert file.getvalue() == b""


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "expected the features a; found "),
        ({"a": [1, 2], "b": [1, 2]}, "expected the features a; found a, b"),
        ({"a": [1, 2, 3]}, r"tensor 'a': expected the shape \(1, 2\), found \(1, 3\)"),
        ({"a": [1, 256]}, "tensor 'a': not all numbers are of the type uint8"),
        ({"a": [-1, 0]}, "tensor 'a': not all numbers are of the type uint8"),
        ({"a": [0.5, 0]}, "tensor 'a': not all numbers are of the type uint8"),
        ({"a": [float("nan"), 0]}, "tensor 'a': not all numbers are of the type uint8"),
    ],
)
def test_an_observation_that_does_not_fit_is_not_written(tensors: dict[str, list[float]], message: str) -> None:
    file = io.BytesIO()
    writer = TrainingLogWriter(file, [_A])
    before = file.getvalue()
    with pytest.raises(ValueError, match=message):
        writer.observation(tensors)
    assert file.getvalue() == before


def test_an_outcome_needs_an_observation_without_one() -> None:
    file = io.BytesIO()
    writer = TrainingLogWriter(file, [_A], score=_S)
    writer.context("m")
    with pytest.raises(ValueError, match="no observation that could have an outcome"):
        writer.outcome(1)
    writer.observation({"a": [1, 2]})
    writer.context("n")
    with pytest.raises(ValueError, match="context 'n': there is no observation"):
        writer.outcome(1)
    writer.context("m")
    writer.outcome(1)
    with pytest.raises(ValueError, match="no observation that could have an outcome"):
        writer.outcome(1)
    log = decode_log(file.getvalue())
    assert (len(log), log.outcomes.tolist(), log.outcome_of.tolist()) == (1, [[1.0]], [0])


def test_a_log_without_a_score_has_no_outcomes() -> None:
    writer = TrainingLogWriter(io.BytesIO(), [_A])
    writer.observation({"a": [1, 2]})
    with pytest.raises(ValueError, match="without a score"):
        writer.outcome(1)
    with pytest.raises(ValueError, match="without a score"):
        writer.observations({"a": [[1, 2]]}, [1])
