import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.builds import response_files
from compiler_opt.errors import CorpusError

PIECES = [
    "a",
    "b=",
    "'",
    '"',
    "\\",
    " ",
    "\n",
    "\t",
    "\r",
    "\v",
    "\f",
    "$",
    "#",
    "`",
    "\0",
    "é",
    "\u00a0",
    "x y",
    '\\"',
    "'\\''",
]
ENCODINGS = {"utf-8": b"", "utf-8-sig": b"", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


def test_generated_files_are_split_as_by_clang(clang_path: str, tmp_path: Path) -> None:
    """Of 1,000 files: clang takes what is no option for an input, and reports each as missing, except empty ones."""
    random_ = random.Random(3)
    arguments: list[str] = []
    expected: list[str] = []
    for number in range(1000):
        encoding, mark = random_.choice([*ENCODINGS.items()])
        text = "".join(random_.choices(PIECES, k=random_.randrange(12)))
        (tmp_path / f"f{number}").write_bytes(mark + text.encode(encoding))
        arguments += [f"@f{number}", f"end-of-{number}"]
        expected += response_files.expand(arguments[-2:], tmp_path, "here")
    run = subprocess.run([clang_path, "-###", *arguments], cwd=tmp_path, capture_output=True, check=False)
    reports = os.fsdecode(run.stderr).split("error: no such file or directory: '")[1:]
    found = [report[: report.rindex("'\n")] for report in reports]
    assert "".join(f"{word}\n" for word in found) == "".join(f"{word}\n" for word in expected if word)


def test_empty_and_unterminated_arguments() -> None:
    assert response_files.split("a '' b") == ["a", "b"]
    assert response_files.split("a 'b c") == ["a", "b c"]
    assert response_files.split("a b\\") == ["a", "b\\"]
    assert response_files.split(" \n\t") == []


@given(st.text())
def test_no_text_grows_when_it_is_split(text: str) -> None:
    assert sum(map(len, response_files.split(text))) <= len(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)))
def test_quoted_words_come_back(expected: list[str]) -> None:
    quoted = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in expected)
    assert response_files.split(quoted) == expected


def test_paths_that_are_not_utf8_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xe9.o")
    assert response_files.expand(["@file"], tmp_path, "here") == [os.fsdecode(b"caf\xe9.o")]


def test_files_that_multiply_are_refused(tmp_path: Path) -> None:
    for level in range(30):
        (tmp_path / f"f{level}").write_text(f"@f{level + 1} @f{level + 1}")
    with pytest.raises(
        CorpusError, match=rf"here: expected at most {response_files.MAX_FILES} response files, found more"
    ):
        response_files.expand(["@f0"], tmp_path, "here")


def test_files_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    for level in range(response_files.MAX_DEPTH + 1):
        (tmp_path / f"f{level}").write_text(f"@f{level + 1}")
    with pytest.raises(CorpusError, match=r"here: expected at most 32 nested response files, found more"):
        response_files.expand(["@f0"], tmp_path, "here")


@pytest.mark.parametrize("word", ["@", "@gone", "@a\0b", "@.", "@/dev/zero", "@\ud800", f"@{'x' * 5000}"])
def test_an_argument_that_names_no_file_is_kept(tmp_path: Path, word: str) -> None:
    assert response_files.expand([word], tmp_path, "here") == [word]


@pytest.mark.parametrize("text", ["'\\" * 100_000, "\\" * 100_001, "\"'" * 100_000, "a'\\x\"" * 50_000])
def test_splitting_takes_linear_time(text: str) -> None:
    assert response_files.split(text)
