"""Costs of functions: of one call, as the compiler estimates, or of all that ran in programs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.cost_models.function_costs import BlockProfile, ObjectCode, costs_by_function
from compiler_opt.cost_models.throughput.blocks import Block, save_blocks
from compiler_opt.errors import CorpusError
from tests.cost_models.samples import block


def code_of(blocks: Sequence[Block], calls: Sequence[int] = ()) -> ObjectCode:
    """The object of blocks, which come function by function or not; `calls` of each function by its profile."""
    names = tuple(dict.fromkeys(each.function for each in blocks))
    return ObjectCode(
        names,
        np.array([names.index(each.function) for each in blocks], np.int32),
        np.array([each.block_id for each in blocks], np.int32),
        np.array([each.frequency for each in blocks], np.float32),
        tuple(each.code for each in blocks),
        np.array(calls or [0] * len(names), np.float64),
    )


def bytes_and_misses(blocks: Sequence[Block]) -> np.ndarray:
    return np.array([len(each.code) + 100 * np.nan_to_num(each.annotations[1]) for each in blocks])


def found(blocks: Sequence[Block], profile: BlockProfile | None = None) -> dict[str, float]:
    return costs_by_function(code_of(blocks), bytes_and_misses, profile)


LOOP = [block("f", 0, 10), block("f", 1, 500, 8.0, misses=0.5, code=b"12"), block("f", 2, 10)]


def test_estimated_executions_are_those_of_one_call() -> None:
    assert found([*LOOP, block("g", 0, 0, code=b"123")]) == {"f": 1 + 8 * 2 + 1, "g": 3}
    assert found([]) == {}


def test_measured_executions_come_with_misses() -> None:
    profile = BlockProfile([*LOOP, block("elsewhere", 0, 7)])
    assert len(profile) == 2
    # The allocator has made the loop one byte shorter; block 3, which the compiler takes to run twice, never ran.
    changed = [LOOP[0], block("f", 1, 0, 8.0, code=b"1"), LOOP[2], block("f", 3, 0, 2.0, code=b"1234")]
    expected = 10 + 500 * (1 + 50) + 10
    assert found([*changed, block("never", 0, 0)], profile) == pytest.approx({"f": expected, "never": 0})


def test_a_function_that_was_compiled_otherwise_runs_as_estimated() -> None:
    other = [block("f", 0, 0, 1.0), block("f", 1, 0, 4.0, code=b"12")]
    factor = (10 + 500 * 2 + 10) / (1 + 8 * 2 + 1)
    # Each execution has the misses of the average one.
    missed = 100 * 500 * 0.5 / (10 + 500 + 10)
    assert found(other, BlockProfile(LOOP)) == pytest.approx({"f": factor * (1 + missed + 4 * (2 + missed))})


def test_programs_are_added_up() -> None:
    again = [block("f", 0, 30), block("f", 1, 500, 8.0, misses=1.5, code=b"12")]
    assert found(LOOP, BlockProfile([*LOOP, *again])) == pytest.approx({"f": 40 + 1000 * (2 + 100) + 10})
    # Functions of the same name whose blocks differ: the one that ran more often counts.
    other = [block("f", 1, 5, 3.0, code=b"12")]
    assert found(LOOP, BlockProfile([*other, *LOOP])) == found(LOOP, BlockProfile(LOOP))


def test_profiles_without_counts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "blocks.npz"
    save_blocks(path, LOOP)
    assert found(LOOP, BlockProfile.load(path)) == found(LOOP, BlockProfile(LOOP))
    assert BlockProfile.load(path).identity.startswith("blocks ")
    save_blocks(path, [Block(b"1", "m", "f", 0, 1.0)])
    with pytest.raises(CorpusError, match=r"blocks\.npz: expected blocks of programs that ran, found none"):
        BlockProfile.load(path)
    path.write_bytes(b"no blocks")
    with pytest.raises(CorpusError, match=r"blocks\.npz: damaged"):
        BlockProfile.load(path)
