from pathlib import Path

import pytest

from compiler_opt.corpus.ready_made import resume
from compiler_opt.errors import OutputError


def leave(output_dir: Path, name: str, stamp: dict[str, str], text: str) -> None:
    """An interrupted build."""
    with pytest.raises(KeyboardInterrupt), resume.objects_folder(output_dir, name, stamp) as folder:
        (folder / "a.o").write_text(text)
        raise KeyboardInterrupt


def test_objects_stay_after_an_interruption_and_go_when_all_is_done(tmp_path: Path) -> None:
    leave(tmp_path, "one", {"level": "Oz"}, "first")
    leave(tmp_path, "two", {"level": "Oz"}, "other")
    with resume.objects_folder(tmp_path, "one", {"level": "Oz"}) as folder:
        assert (folder / "a.o").read_text() == "first"
    # Another project's objects stay for its next build.
    assert [path.name for path in (tmp_path / resume.FOLDER_NAME).iterdir()] == ["two"]
    with resume.objects_folder(tmp_path, "two", {"level": "Oz"}) as folder:
        assert (folder / "a.o").read_text() == "other"
    assert list(tmp_path.iterdir()) == []


def test_objects_with_another_stamp_are_removed(tmp_path: Path) -> None:
    leave(tmp_path, "one", {"level": "Oz"}, "first")
    with resume.objects_folder(tmp_path, "one", {"level": "O2"}) as folder:
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("stamp", [b"", b"{", b"\xff", b"[]"])
def test_a_damaged_stamp_is_none(tmp_path: Path, stamp: bytes) -> None:
    leave(tmp_path, "one", {"level": "Oz"}, "first")
    (tmp_path / resume.FOLDER_NAME / "one" / "stamp.json").write_bytes(stamp)
    with resume.objects_folder(tmp_path, "one", {"level": "Oz"}) as folder:
        assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / resume.FOLDER_NAME).write_text("the user's own")
    with (
        pytest.raises(OutputError, match=f"{resume.FOLDER_NAME}.* cannot be written") as error,
        resume.objects_folder(tmp_path, "one", {}),
    ):
        pass
    assert "\n" not in str(error.value)
    assert (tmp_path / resume.FOLDER_NAME).read_text() == "the user's own"
