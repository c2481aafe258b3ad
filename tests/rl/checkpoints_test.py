"""Checkpoints are restored as they were saved; a damaged one costs an iteration, not the run."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt.errors import ConfigError  # noqa: E402
from compiler_opt.files import read_checked_json, size_and_sha256, write_checked_json  # noqa: E402
from compiler_opt.rl.checkpoints import Checkpoints  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of iterations 1 to 3, of which two are kept."""
    directory = tmp_path_factory.mktemp("saved")
    variable = tf.Variable([0.0] * 100)
    checkpoints = Checkpoints(directory, weights=variable)
    for iteration in (1, 2, 3):
        variable.assign([float(iteration)] * 100)
        checkpoints.save(iteration, {"compiles": 10 * iteration})
    return directory


def restored(directory: Path) -> tuple[int, float]:
    """State and weight that a new session begins with."""
    variable = tf.Variable([0.0] * 100)
    found = Checkpoints(directory, weights=variable).restore()
    assert found is not None
    return found["compiles"], float(variable[50])


def test_the_newest_comes_back_and_old_ones_go(saved: Path) -> None:
    assert restored(saved) == (30, 3.0)
    assert sorted(path.name for path in saved.iterdir()) == ["000002", "000003"]
    assert Checkpoints(saved / "nowhere").restore() is None


def _data(path: Path) -> Path:
    [file] = path.glob("variables.data*")
    return file


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def _folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("in the way")


def _empty(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def _zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _naming_another_file(path: Path) -> None:
    sums = read_checked_json(path / "checksums.json")
    other = path.parent / "000002" / "state.json"
    write_checked_json(path / "checksums.json", {**sums, "../000002/state.json": size_and_sha256(other)})


DAMAGE: dict[str, Callable[[Path], object]] = {
    "weights cut short": lambda path: _cut(_data(path)),
    "weights of no bytes": lambda path: _data(path).write_bytes(b""),
    "weights flipped": lambda path: _flip(_data(path)),
    "weights missing": lambda path: _data(path).unlink(),
    "weights all zeros": lambda path: _zeros(_data(path)),
    "index cut short": lambda path: _cut(path / "variables.index"),
    "index missing": lambda path: (path / "variables.index").unlink(),
    "state cut short": lambda path: _cut(path / "state.json"),
    "state of no bytes": lambda path: (path / "state.json").write_bytes(b""),
    "state flipped": lambda path: _flip(path / "state.json"),
    "state another": lambda path: (path / "state.json").write_text(json.dumps({"compiles": 31})),
    "state missing": lambda path: (path / "state.json").unlink(),
    "folder in place of the state": lambda path: _folder_instead(path / "state.json"),
    "checksums cut short": lambda path: _cut(path / "checksums.json"),
    "checksums missing": lambda path: (path / "checksums.json").unlink(),
    "checksums of another kind": lambda path: write_checked_json(path / "checksums.json", {"state.json": 5}),
    "checksum of no state": lambda path: write_checked_json(path / "checksums.json", {}),
    "checksum of another folder's file": _naming_another_file,
    "nothing in it": _empty,
    "file in its place": _file_instead,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_gives_way_to_the_one_before(
    damage: str, saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    DAMAGE[damage](directory / "000003")
    with caplog.at_level(logging.WARNING):
        assert restored(directory) == (20, 2.0)
    [record] = caplog.records
    message = record.getMessage()
    assert message.startswith(f"{directory / '000003'}: damaged (") and "\n" not in message
    assert "kept as 000003.damaged; resuming after iteration 2, what was learned since is lost" in message
    assert (directory / "000003.damaged").exists()
    # The next session has nothing to say of it.
    assert restored(directory) == (20, 2.0)
    assert len(caplog.records) == 1


def test_when_none_is_left_the_user_decides(saved: Path, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    _cut(directory / "000002" / "state.json")
    _data(directory / "000003").unlink()
    with pytest.raises(
        ConfigError, match=r"all checkpoints are damaged \(000002: state.json: expected \d+ bytes, .*3: "
    ):
        restored(directory)
    assert sorted(path.name for path in directory.iterdir()) == ["000002", "000003"]


def test_another_configuration_is_no_damage(saved: Path, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    with pytest.raises(ConfigError, match="000003: was written by another configuration"):
        Checkpoints(directory, other=tf.Variable([0.0] * 99)).restore()

    def refuse(state: dict[str, int]) -> None:
        raise ConfigError(f"state of {state['compiles']} compiles")

    with pytest.raises(ConfigError, match="state of 30 compiles"):
        Checkpoints(directory, weights=tf.Variable([0.0] * 100)).restore(refuse)
    assert sorted(path.name for path in directory.iterdir()) == ["000002", "000003"]


def test_what_a_killed_run_left_half_written_is_swept(saved: Path, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    (directory / ".000004.abcd1234.partial").mkdir()
    assert restored(directory) == (30, 3.0)
    assert sorted(path.name for path in directory.iterdir()) == ["000002", "000003"]
