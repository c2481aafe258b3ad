"""Samples on disk: what was saved is loaded, and nothing that came after the iteration one goes on from."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithms.counterfactuals.sample_files import SampleFiles  # noqa: E402
from compiler_opt.rl.algorithms.counterfactuals.samples import Samples  # noqa: E402


def samples(seed: int, count: int) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.random((count, 2, 3), np.float32), rng.random(count, np.float32))


def test_those_up_to_an_iteration_come_back_and_later_ones_go(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path / "samples")
    assert files.load(0) == []
    saved = {iteration: samples(iteration, iteration + 1) for iteration in (1, 2, 5)}
    for iteration, content in saved.items():
        files.save(iteration, content)
    found = files.load(3)
    assert [len(content) for content in found] == [2, 3]
    for content, expected in zip(found, (saved[1], saved[2]), strict=True):
        np.testing.assert_array_equal(content.positions, expected.positions)
        np.testing.assert_array_equal(content.gains, expected.gains)
    assert [path.name for path in sorted((tmp_path / "samples").iterdir())] == ["000001.npz", "000002.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing", "half", "another kind"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: bytes | str, caplog: pytest.LogCaptureFixture) -> None:
    files = SampleFiles(tmp_path)
    for iteration in (1, 2):
        files.save(iteration, samples(iteration, 4))
    path = tmp_path / "000001.npz"
    if damage == "another kind":
        np.savez(path, something=np.zeros(3))
    else:
        path.write_bytes(path.read_bytes()[:200] if isinstance(damage, str) else damage)
    assert [len(found) for found in files.load(2)] == [4]
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: no samples of this run (")
    assert record.getMessage().endswith("kept as 000001.npz.damaged, lost")
    assert (tmp_path / "000001.npz.damaged").is_file()
