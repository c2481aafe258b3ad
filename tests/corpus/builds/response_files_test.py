import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.builds import response_files
from compiler_opt.errors import CorpusError

HARD = r"""plain 'single quoted' "double \"quoted\"" back\ slash mid"dle quo"ted 'es\'caped' x\\y
a	tab "new
line" '"' "'" DX="\"y\"" """


def test_arguments_are_split_as_by_clang(clang_path: str, tmp_path: Path) -> None:
    # clang takes unknown arguments for inputs, and reports each as missing.
    (tmp_path / "file").write_text(HARD)
    run = subprocess.run([clang_path, "@file"], cwd=tmp_path, capture_output=True, text=True, check=False)
    expected = [part.rpartition("'\n")[0] for part in run.stderr.split("no such file or directory: '")[1:]]
    expected = [text.partition("'\nclang")[0] for text in expected]
    assert len(expected) == 13
    assert response_files.split(HARD) == expected


def test_empty_and_unterminated_arguments() -> None:
    assert response_files.split("a '' b") == ["a", "", "b"]
    assert response_files.split("a 'b c") == ["a", "b c"]
    assert response_files.split("a b\\") == ["a", "b"]
    assert response_files.split(" \n\t") == []


@given(st.text())
def test_no_text_grows_when_it_is_split(text: str) -> None:
    assert sum(map(len, response_files.split(text))) <= len(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1)))
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
