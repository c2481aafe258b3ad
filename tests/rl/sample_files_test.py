"""Samples on disk: what was saved is loaded, and nothing that came after the iteration one goes on from."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt import rl

rl.load_tensorflow()

from compiler_opt.errors import ConfigError  # noqa: E402
from compiler_opt.rl.deviations import Samples  # noqa: E402
from compiler_opt.rl.sample_files import SampleFiles  # noqa: E402


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


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and then nothing", "half"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes | str) -> None:
    files = SampleFiles(tmp_path)
    files.save(1, samples(1, 4))
    path = tmp_path / "000001.npz"
    path.write_bytes(path.read_bytes()[:200] if isinstance(damage, str) else damage)
    with pytest.raises(ConfigError, match=r"000001.npz: expected samples of this run"):
        files.load(1)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "000001.npz", something=np.zeros(3))
    with pytest.raises(ConfigError, match="expected samples of this run"):
        SampleFiles(tmp_path).load(1)
