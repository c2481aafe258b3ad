"""Policies without a network, and the random stream."""

import numpy as np
import pytest

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import (
    ConstantPolicy,
    FeaturePolicy,
    RandomPolicy,
    ReplayPolicy,
    uniforms,
)
from compiler_opt.tensor_spec import TensorSpec

_HEADER = Header(
    (TensorSpec("x", np.dtype("f4"), (2,)), TensorSpec("default", np.dtype("i8"), (1,))),
    TensorSpec("advice", np.dtype("i8"), (1,)),
)


def _observation(default: int) -> bytes:
    return np.array([1, 2], "f4").tobytes() + np.array([default], "i8").tobytes()


def test_constant() -> None:
    assert ConstantPolicy(1).start(_HEADER, 0)(_observation(0)) == 1


def test_a_feature_as_advice() -> None:
    decider = FeaturePolicy("default").start(_HEADER, 0)
    assert [decider(_observation(value)) for value in (0, 1, -7)] == [0, 1, -7]
    with pytest.raises(PolicyError, match="'nothing'"):
        FeaturePolicy("nothing").start(_HEADER, 0)


def test_replay_gives_what_was_recorded_and_no_more() -> None:
    decider = ReplayPolicy(np.array([1, 0])).start(_HEADER, 0)
    assert [decider(_observation(5)) for _ in range(2)] == [1, 0]
    with pytest.raises(ProtocolError, match="more than the 2 decisions"):
        decider(_observation(5))


def test_random_has_its_probability() -> None:
    decider = RandomPolicy(0.25).start(_HEADER, 3)
    ones = sum(decider(_observation(0)) for _ in range(10_000))
    # 2,500 with a standard deviation of 43.
    assert abs(ones - 2500) < 4 * 43


def _splitmix64(state: int) -> float:
    mask = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 11) * 2**-53


@pytest.mark.parametrize("seed", [0, 5, (1 << 64) - 1])
def test_the_stream_is_splitmix64_over_blocks(seed: int) -> None:
    draw = uniforms(seed)
    for index in range(2500):
        assert draw() == _splitmix64((seed + index * 0x9E3779B97F4A7C15) & ((1 << 64) - 1))
