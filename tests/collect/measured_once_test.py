"""What is measured is kept; a file that is damaged is set aside, named, and measured again."""

import logging
from pathlib import Path

import pytest

from compiler_opt.collect.measured_once import measured_once


class _Counter:
    def __init__(self, *, is_lasting: bool = True) -> None:
        self.calls = 0
        self.is_lasting = is_lasting

    def __call__(self) -> tuple[dict[str, float], bool]:
        self.calls += 1
        return {"a": 1.5}, self.is_lasting


def test_it_is_measured_once_for_a_key(tmp_path: Path) -> None:
    measure, path = _Counter(), tmp_path / "baseline.json"
    for key, calls in (("x", 1), ("x", 1), ("y", 2)):
        assert measured_once(path, "baseline", {"corpus": (key,)}, [], measure) == {"a": 1.5}
        assert measure.calls == calls


def test_what_does_not_last_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert measured_once(path, "baseline", {}, [], _Counter(is_lasting=False)) == {"a": 1.5}
    assert not path.exists()


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "zeros", "list", "another", "folder"])
def test_a_damaged_file_is_set_aside(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measure, path = _Counter(), tmp_path / "baseline.json"
    measured_once(path, "baseline", {}, [], measure)
    good = path.read_bytes()
    contents = {
        "empty": b"",
        "cut": good[:-3],
        "flipped": good.replace(b"1.5", b"9.5"),
        "zeros": bytes(len(good)),
        "list": b"[]",
        "another": b'{"key": {"modules": []}, "baseline": 5}',
    }
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(contents[damage])
    with caplog.at_level(logging.WARNING):
        assert measured_once(path, "baseline", {}, [], measure) == {"a": 1.5}
    assert measure.calls == 2
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: damaged (")
    assert "kept as baseline.json.damaged, measured again" in record.getMessage()
    assert (tmp_path / "baseline.json.damaged").exists()
    assert path.read_bytes() == good
