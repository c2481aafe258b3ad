import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compiler_opt.errors import OutputError
from compiler_opt.files import (
    check_folder_writable,
    check_writable,
    default_cache_dir,
    exclusive_directory,
    nearest_folder,
    one_line,
    parse_json,
    read_checked_json,
    read_regular,
    remove_oldest,
    replaced_folder,
    set_aside,
    shown,
    size_and_sha256,
    write_atomically,
    write_checked_json,
    write_json,
)


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OutputError, match="folder: cannot be written"):
        write_atomically(tmp_path / "folder", b"a folder is in its place")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "below", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_threads_that_write_leave_the_umask_as_it_is(tmp_path: Path) -> None:
    umask, interval_s = _umask(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            paths = [tmp_path / str(number) for number in range(400)]
            list(pool.map(lambda path: write_atomically(path, b"", durable=False), paths))
    finally:
        sys.setswitchinterval(interval_s)
        found = os.umask(umask)
    assert found == umask
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o666 & ~umask}


def test_the_longest_name(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("n" * 255), b"content")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"content"]


def test_the_oldest_files_and_folders_are_removed(tmp_path: Path) -> None:
    for age, name in enumerate(["newest", "folder", "old", "oldest"]):
        if name == "folder":
            (tmp_path / name / "inside").mkdir(parents=True)
        else:
            (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    remove_oldest(tmp_path.iterdir(), 5)
    assert len(list(tmp_path.iterdir())) == 4
    remove_oldest(tmp_path.iterdir(), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "newest"]
    remove_oldest(tmp_path.iterdir(), 0)
    assert list(tmp_path.iterdir()) == []


def test_what_a_wrong_clock_has_dated_in_the_future_counts_as_the_oldest(tmp_path: Path) -> None:
    now_s = time.time()
    ages = {"future": -1e6, "far-future": -1e7, "new": 0, "old": 1e5, "older": 1e6}
    for name, age in ages.items():
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (now_s - age, now_s - age))
    # Gone in the meantime, as if another process had removed it.
    remove_oldest([*tmp_path.iterdir(), tmp_path / "gone"], 3)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "old", "older"}
    # A server's clock is behind this machine's: what was just written is what is new.
    remove_oldest(tmp_path.iterdir(), 2, tmp_path / "older")
    assert {path.name for path in tmp_path.iterdir()} == {"older", "new"}


def test_checks_create_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "file")
    check_folder_writable(tmp_path / "a" / "b")
    check_folder_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "folder", "folder/folder"])
def test_a_file_in_the_way_is_found_before_the_work(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / below
    with pytest.raises(OutputError, match=f"{folder}: cannot be written: Not a directory; choose another"):
        check_folder_writable(folder)
    with pytest.raises(OutputError, match=f"{folder}/name: cannot be written: Not a directory; choose another"):
        check_writable(folder / "name")


def test_a_file_system_that_refuses_files() -> None:
    with pytest.raises(OutputError, match="/proc/results: cannot be written"):
        check_folder_writable(Path("/proc/results"))


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="expected the name of a file, found a folder"):
        check_writable(tmp_path)


def test_nearest_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nearest_folder(tmp_path) == tmp_path
    assert nearest_folder(tmp_path / "a" / "b") == tmp_path
    monkeypatch.chdir(tmp_path)
    assert nearest_folder(Path("a/b")) == tmp_path


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_cache_dir() == Path("/caches/compiler_opt")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_cache_dir() == Path("/home/me/.cache/compiler_opt")


def test_regular_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError, match="expected at most 4 bytes, found 5"):
        read_regular(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")  # Nobody writes to it: to read it would take for ever.
    for other in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="expected a file, found something else"):
            read_regular(other, 5)


HOLD = """
import sys
from pathlib import Path
from compiler_opt.files import exclusive_directory
with exclusive_directory(Path(sys.argv[1]), "--output_dir"):
    print("there", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        with (
            pytest.raises(
                OutputError, match="another process is working in it; wait for it, or give another --output_dir"
            ),
            exclusive_directory(tmp_path, "--output_dir"),
        ):
            pass
        child.kill()
    with exclusive_directory(tmp_path, "--output_dir"):
        pass
    assert tmp_path.is_dir()


def test_a_new_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with exclusive_directory(tmp_path / "new" / "folder", "--output_dir"):
        # A process that is refused does not remove it.
        with pytest.raises(OutputError), exclusive_directory(tmp_path / "new" / "folder", "--output_dir"):
            pass
        assert (tmp_path / "new" / "folder").is_dir()
    assert not (tmp_path / "new" / "folder").exists()
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutputError, match="expected the name of a folder, found a file; give another --output_dir"),
        exclusive_directory(tmp_path / "file", "--output_dir"),
    ):
        pass


def test_a_file_of_several_pieces_is_hashed_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert size_and_sha256(tmp_path / "file") == (2_560_000, hashlib.sha256(content).hexdigest())


def test_json_ends_with_its_line(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"name": ["caf\udce9"]})
    text = (tmp_path / "file.json").read_text()
    assert text.endswith("}\n") and json.loads(text) == {"name": ["caf\udce9"]}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b"[" * 99_999, b'{"a": 1}', "flip", "cut", "zeros"])
def test_damaged_json_is_recognised(damage: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_checked_json(path, {"scores": {"a": 1.5, "b": 2.0}, "pairs": [(1, 2)], "by number": {10: 1, 9: 2}})
    assert read_checked_json(path)["scores"] == {"a": 1.5, "b": 2.0}
    good = path.read_bytes()
    others = {"flip": good.replace(b"1.5", b"1.6"), "cut": good[:-5], "zeros": bytes(len(good))}
    path.write_bytes(others[damage] if isinstance(damage, str) else damage)
    with pytest.raises(ValueError, match=r"^not JSON$|^does not match its checksum$"):
        read_checked_json(path)


def _nested(depth: int) -> str:
    return '{"a":' * (depth - 1) + "[1]" + "}" * (depth - 1)


@pytest.mark.parametrize("text", [_nested(64), str(2**128 - 1), "[1e999, NaN]", '{"a": -7, "b": ["\udce9", null]}'])
def test_json_is_parsed_as_python_does(text: str) -> None:
    assert repr(parse_json(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_nested(65), "nested deeper than 64 levels"),
        ("[" * 100_000, "nested deeper than 64 levels"),
        (f'{{"a": [1.5, {-(2**128)}]}}', "an integer of more than 128 bits"),
        (f"[{'9' * 5000}]", "Exceeds the limit"),
        ("[1,", "Expecting value"),
    ],
    ids=["nested", "nested more", "large", "larger", "cut"],
)
def test_json_that_no_code_expects_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}") as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


def test_setting_aside_replaces_nothing(tmp_path: Path) -> None:
    for content in ("first", "second", "third"):
        (tmp_path / "file").write_text(content)
        set_aside(tmp_path / "file")
    (tmp_path / "file").mkdir()
    assert set_aside(tmp_path / "file").is_dir()
    assert (tmp_path / "file.damaged").read_text() == "first"
    assert (tmp_path / "file.damaged.3").read_text() == "third"
    assert len(list(tmp_path.iterdir())) == 4


def _replace(folder: Path, content: str) -> None:
    with replaced_folder(folder) as partial:
        (partial / "file").write_text(content)


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    _replace(place, "first")
    with pytest.raises(KeyError), replaced_folder(place) as partial:
        (partial / "file").write_text("half")
        raise KeyError
    assert (place / "file").read_text() == "first"
    _replace(place, "second")
    assert (place / "file").read_text() == "second"
    assert list(place.parent.iterdir()) == [place]
    assert place.stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


@pytest.mark.ci
def test_the_folder_exists_at_every_moment(tmp_path: Path) -> None:
    """After the writer is killed at any moment, either the old folder or the new one exists."""
    _replace(tmp_path / "place", "first")
    looked, stop, missing = threading.Event(), threading.Event(), 0

    def look() -> None:
        nonlocal missing
        while not stop.is_set():
            missing += not (tmp_path / "place" / "file").exists()
            looked.set()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        watching = pool.submit(look)
        looked.wait(10)
        for number in range(100):
            _replace(tmp_path / "place", str(number))
        stop.set()
        watching.result()
    assert missing == 0


def test_temporaries_are_removed_and_moved_folders_restored(tmp_path: Path) -> None:
    (tmp_path / ".run.abcd1234.partial").mkdir()
    (tmp_path / ".run.abcd1234.old" / "run").mkdir(parents=True)
    (tmp_path / ".run.abcd1234.old" / "run" / "file").write_text("old")
    (tmp_path / ".file.12345678.partial").write_text("half")
    theirs = [tmp_path / name for name in (".file.partial", "file.12345678.partial", ".x.12345678.partial.txt")]
    for path in theirs:
        path.touch()
    with exclusive_directory(tmp_path, "--output_dir"):
        assert (tmp_path / "run" / "file").read_text() == "old"
        assert sorted(tmp_path.iterdir()) == sorted([*theirs, tmp_path / "run"])
    # An old folder is not restored if there is a new one; temporaries of other folders stay.
    (tmp_path / ".run.abcd1234.old" / "run").mkdir(parents=True)
    (tmp_path / ".file.12345678.partial").write_text("half")
    _replace(tmp_path / "run", "new")
    assert (tmp_path / "run" / "file").read_text() == "new"
    assert sorted(tmp_path.iterdir()) == sorted([*theirs, tmp_path / "run", tmp_path / ".file.12345678.partial"])


def test_long_values_are_cut() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown("x" * 100) == "'" + "x" * 79 + "..."


def test_one_line() -> None:
    assert one_line("  two\n   lines ") == "two lines"
