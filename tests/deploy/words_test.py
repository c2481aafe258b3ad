"""The words that mlgo-clang finds in response and configuration files are clang's."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.native.cpp import build, run_driver

_ALPHABET = [*"ab+=#$,; \t\n\r\v\f'\"\\", "\\\n", "\\\r\n", "''", '""', "é", "𝄞", "\\'", '\\"', "\\\\"]
_PER_COMMAND = 250


def response_file(rng: random.Random) -> bytes:
    """Of any words; clang takes them for inputs, which it does not find."""
    text = "".join(rng.choice(_ALPHABET) for _ in range(rng.randrange(25)))
    encoding = rng.choice(["utf-8"] * 4 + ["utf-8-sig", "utf-16", "utf-16-be"])
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    return mark + text.encode(encoding)


def words_of_clang(clang: str, files: list[Path]) -> list[list[bytes]]:
    """For each file, the inputs that clang misses."""
    arguments = [word for index, path in enumerate(files) for word in (f"@{path.name}", f"end-of-{index}")]
    command = [clang, "-###", "--", *arguments]
    said = subprocess.run(command, cwd=files[0].parent, capture_output=True, check=False, timeout=60).stderr
    words: list[list[bytes]] = [[]]
    for part in said.split(b": error: no such file or directory: '")[1:]:
        # What follows is the end of the message, and the compiler's name before the next.
        word = part[: part.rindex(b"'")]
        if word.startswith(b"end-of-"):
            words.append([])
        else:
            words[-1].append(word)
    return words[:-1]


@pytest.mark.ci
@pytest.mark.parametrize("number", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_words_of_response_files(number: int, clang_path: str, tmp_path: Path) -> None:
    driver = build([Path(__file__).with_name("words_driver.cpp")], tmp_path / "words", "clang++-22")
    rng = random.Random(number)
    for _ in range(number // _PER_COMMAND):
        files = []
        for index in range(_PER_COMMAND):
            files.append(tmp_path / f"{index}.rsp")
            files[-1].write_bytes(response_file(rng))
        expected = words_of_clang(clang_path, files)
        found = [[bytes.fromhex(word) for word in line.split()] for line in run_driver(driver, *files)]
        assert len(expected) == _PER_COMMAND
        for path, theirs, ours in zip(files, expected, found, strict=True):
            assert ours == theirs, path.read_bytes()
