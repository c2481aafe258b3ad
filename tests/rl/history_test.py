"""Damaged lines of a history are logged and dropped, and the run continues."""

import logging
from pathlib import Path

import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.errors import OutputError  # noqa: E402
from compiler_opt.evaluation.history import read_entries  # noqa: E402
from compiler_opt.rl.history import History  # noqa: E402

_LINES = [b'{"iteration": %d}' % iteration for iteration in (1, 2, 3)]


@pytest.mark.parametrize(
    ("content", "kept", "num_damaged"),
    [
        (b"\n".join(_LINES) + b"\n", [1, 2, 3], 0),
        (b"", [], 0),
        (b"\n".join(_LINES) + b'\n{"iterat', [1, 2, 3], 0),
        (_LINES[0] + b'\n{"iter\n' + _LINES[2] + b"\n", [1, 3], 1),
        (_LINES[0] + b"\n\xff\xfe\n" + _LINES[2] + b"\n", [1, 3], 1),
        (_LINES[0] + b'\n[]\n{"iteration": "x"}\n' + _LINES[2] + b"\n", [1, 3], 2),
        (_LINES[0] + b"\n" + b"[" * 99_999 + b"\n", [1], 1),
        (bytes(100) + b"\n", [], 1),
    ],
    ids=["whole", "empty", "unfinished", "cut", "no text", "other values", "brackets", "zeros"],
)
def test_damaged_lines(
    content: bytes, kept: list[int], num_damaged: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)
    assert [entry["iteration"] for entry in read_entries(path)[0]] == kept
    history = History(tmp_path, 3)
    history.add({"iteration": 4})
    assert [entry["iteration"] for entry in read_entries(path)[0]] == [*kept, 4]
    assert (tmp_path / "history.jsonl.damaged").is_file() == bool(num_damaged)
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert found == [f"{path}: {num_damaged} lines are damaged; kept as history.jsonl.damaged"] * bool(num_damaged)


def test_what_came_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"\n".join(_LINES) + b"\n")
    History(tmp_path, 2)
    assert [entry["iteration"] for entry in read_entries(tmp_path / "history.jsonl")[0]] == [1, 2]


def test_a_folder_in_its_place_is_set_aside_and_a_file_in_place_of_the_summaries_is_named(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").mkdir()
    History(tmp_path, 2)
    assert (tmp_path / "history.jsonl.damaged").is_dir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summaries").touch()
    with pytest.raises(OutputError, match="summaries: cannot be written"):
        History(tmp_path / "run", 2)
