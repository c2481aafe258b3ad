"""Files of blocks: what is written is read, and what is damaged is refused by name."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.cost_models.throughput.blocks import Block, load_blocks, save_blocks
from compiler_opt.errors import CorpusError

BLOCKS = [
    Block(b"\x90", "p/a.o", "f", 0, 1.0, labels={"mca": 0.5, "measured": 2.0}),
    Block(b"\x55\xc3", "p/a.o", "g", 3, 0.25, count=7.0, num_copies=2, annotations=(0.0, 0.5, math.nan, 1.0)),
    Block(b"\x90\x90", "q/ü.o", "f", 1, 10.0, labels={"mca": 1.0}),
]


def equal(one: Block, other: Block) -> bool:
    """NaN is equal to NaN."""
    return repr(one) == repr(other)


def test_round_trip(tmp_path: Path) -> None:
    for blocks in (BLOCKS, []):
        save_blocks(tmp_path / "x.npz", blocks)
        read = load_blocks(tmp_path / "x.npz")
        assert len(read) == len(blocks) and all(map(equal, read, blocks))


def test_missing_and_truncated(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(CorpusError, match=r"x\.npz: cannot be read: No such file"):
        load_blocks(path)
    save_blocks(path, BLOCKS)
    content = path.read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(CorpusError, match=r"x\.npz: damaged.*make it again with compiler_opt cost_model blocks"):
            load_blocks(path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("format", lambda array: array + 1, "format"),
        ("code_ends", lambda array: array[::-1].copy(), "ascending"),
        ("code_ends", lambda array: array + 1, "ascending"),
        ("module", lambda array: array - 1, "expected numbers of"),
        ("function", lambda array: array + 100, "expected numbers of"),
        ("frequency", lambda array: array * np.nan, "finite"),
        ("frequency", lambda array: array[:-1], "shape"),
        ("labels", lambda array: -array, "positive"),
        ("labels", lambda array: array[:, :1], "shape"),
        ("annotations", lambda array: array[:, :1], "shape"),
    ],
)
def test_damaged_arrays(name: str, change: Callable[[np.ndarray], np.ndarray], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save_blocks(path, BLOCKS)
    arrays = load_arrays(path, 1 << 20)
    save_arrays(path, {**arrays, name: change(arrays[name])})
    with pytest.raises(CorpusError, match=message):
        load_blocks(path)
    del arrays[name]
    save_arrays(path, arrays)
    with pytest.raises(CorpusError, match=f"lacks '{name}'"):
        load_blocks(path)
