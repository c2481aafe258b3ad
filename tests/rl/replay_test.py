"""What a run remembers: in memory, on disk, and after it was interrupted."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.rl.replay import Replay

_EMPTY = {"ranks": np.empty((0, 2, 3), np.float32), "gains": np.empty(0, np.float32)}


def _rows(seed: int, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"ranks": rng.random((count, 2, 3), np.float32), "gains": rng.random(count, np.float32)}


def _replay(directory: Path, max_rows: int = 1000) -> Replay:
    return Replay(directory, _EMPTY, max_rows)


def _check(replay: Replay, *expected: dict[str, np.ndarray]) -> None:
    found = replay.rows()
    assert len(replay) == len(found["gains"])
    for name, values in found.items():
        np.testing.assert_array_equal(values, np.concatenate([_EMPTY[name], *(rows[name] for rows in expected)]))


def test_it_keeps_the_latest_rows(tmp_path: Path) -> None:
    replay = _replay(tmp_path / "replay", max_rows=5)
    _check(replay)
    parts = {iteration: _rows(iteration, 3) for iteration in range(1, 8)}
    replay.add(1, parts[1])
    _check(replay, parts[1])
    replay.add(2, parts[2])
    _check(replay, {name: values[1:] for name, values in parts[1].items()}, parts[2])
    for iteration in range(3, 8):
        replay.add(iteration, parts[iteration])
    _check(replay, {name: values[1:] for name, values in parts[6].items()}, parts[7])
    # A run that resumes two iterations earlier needs 4 and 5.
    assert [path.name for path in sorted((tmp_path / "replay").iterdir())] == [f"00000{i}.npz" for i in range(3, 8)]
    resumed = _replay(tmp_path / "replay", max_rows=5)
    resumed.restore(5)
    _check(resumed, {name: values[1:] for name, values in parts[4].items()}, parts[5])


def test_one_iteration_may_be_too_large(tmp_path: Path) -> None:
    replay = _replay(tmp_path, max_rows=5)
    rows = _rows(1, 8)
    replay.add(1, rows)
    _check(replay, {name: values[3:] for name, values in rows.items()})


def test_rows_up_to_an_iteration_are_restored_and_later_ones_removed(tmp_path: Path) -> None:
    directory = tmp_path / "samples"
    replay = _replay(directory)
    replay.restore(0)
    _check(replay)
    saved = {iteration: _rows(iteration, iteration + 1) for iteration in (1, 2, 5)}
    for iteration, rows in saved.items():
        replay.add(iteration, rows)
    resumed = _replay(directory)
    resumed.restore(3)
    _check(resumed, saved[1], saved[2])
    assert [path.name for path in sorted(directory.iterdir())] == ["000001.npz", "000002.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing", "half", "other columns", "other shapes"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: bytes | str, caplog: pytest.LogCaptureFixture) -> None:
    replay = _replay(tmp_path)
    for iteration in (1, 2):
        replay.add(iteration, _rows(iteration, 4))
    path = tmp_path / "000001.npz"
    if damage == "other columns":
        np.savez(path, something=np.zeros(3))
    elif damage == "other shapes":
        np.savez(path, ranks=np.zeros((4, 2, 9), np.float32), gains=np.zeros(4, np.float32))
    else:
        path.write_bytes(path.read_bytes()[:200] if isinstance(damage, str) else damage)
    replay.restore(2)
    _check(replay, _rows(2, 4))
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: no samples of this run (")
    assert record.getMessage().endswith("kept as 000001.npz.damaged, lost")
    assert (tmp_path / "000001.npz.damaged").is_file()
