"""Samples on disk: those up to the iteration that a run resumes from are loaded."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithms.counterfactuals.samples import (  # noqa: E402
    Samples,
    load_samples,
    save_samples,
)


def samples(seed: int, count: int) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.random((count, 2, 3), np.float32), rng.random(count, np.float32))


def test_those_up_to_an_iteration_come_back_and_later_ones_go(tmp_path: Path) -> None:
    directory = tmp_path / "samples"
    assert load_samples(directory, 0) == []
    saved = {iteration: samples(iteration, iteration + 1) for iteration in (1, 2, 5)}
    for iteration, content in saved.items():
        save_samples(directory, iteration, content)
    found = load_samples(directory, 3)
    assert [len(content) for content in found] == [2, 3]
    for content, expected in zip(found, (saved[1], saved[2]), strict=True):
        np.testing.assert_array_equal(content.ranks, expected.ranks)
        np.testing.assert_array_equal(content.gains, expected.gains)
    assert [path.name for path in sorted(directory.iterdir())] == ["000001.npz", "000002.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing", "half", "another kind"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: bytes | str, caplog: pytest.LogCaptureFixture) -> None:
    for iteration in (1, 2):
        save_samples(tmp_path, iteration, samples(iteration, 4))
    path = tmp_path / "000001.npz"
    if damage == "another kind":
        np.savez(path, something=np.zeros(3))
    else:
        path.write_bytes(path.read_bytes()[:200] if isinstance(damage, str) else damage)
    assert [len(found) for found in load_samples(tmp_path, 2)] == [4]
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: no samples of this run (")
    assert record.getMessage().endswith("kept as 000001.npz.damaged, lost")
    assert (tmp_path / "000001.npz.damaged").is_file()
