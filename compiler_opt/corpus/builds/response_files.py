"""Command lines of compilers and linkers: how they are quoted in files, and the files that they name by `@`.

clang and lld read such files alike: words are separated by white space, quotes of both kinds hold words together, and a
backslash takes the next character as it is, within quotes too. `@file` in one stands for the words of another.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_opt.corpus.builds.reading import read_text
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_FILE_BYTES = 1 << 26
MAX_WORDS = 1 << 21
MAX_FILES = 1 << 12
MAX_DEPTH = 32

# A run of plain characters, an escaped one, or a quoted run; the end of the text may cut the last two short.
_PIECE = re.compile(r"""([^\s"'\\]+)|\\(.?)|"((?:[^"\\]|\\.?)*)"?|'((?:[^'\\]|\\.?)*)'?|(\s+)""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


def split(text: str) -> list[str]:
    """The words of a response file or a linker's parameter file."""
    words: list[str] = []
    pieces: list[str] = []
    within = False
    for match in _PIECE.finditer(text):
        plain, escaped, double, single, space = match.groups()
        if space is not None:
            if within:
                words.append("".join(pieces))
            pieces, within = [], False
            continue
        within = True
        quoted = double if double is not None else single
        if quoted is not None:
            pieces.append(_ESCAPED.sub(r"\1", quoted))
        else:
            pieces.append(plain if plain is not None else escaped)
    if within:
        words.append("".join(pieces))
    return words


def read(path: Path, what: str) -> list[str]:
    """The words in a file.

    Args:
      path: the file.
      what: is wanted, for the message.

    Raises:
      CorpusError: it cannot be read, or is larger than any such file.
    """
    return split(read_text(path, MAX_FILE_BYTES, what))


def expand(words: Sequence[str], directory: Path, where: str) -> list[str]:
    """The words, with those of the file in the place of each `@file`; a file that is not there stays a word.

    Args:
      words: of a command.
      directory: what the files are relative to, also those that files name.
      where: starts the messages.

    Raises:
      CorpusError: files name each other in a circle, are nested too deeply, too many, or hold too many words.
    """
    if not any(word.startswith("@") for word in words):
        return list(words)
    return list(_Expansion(directory, where).expand(words, ()))


class _Expansion:
    """Limits hold for a command with all of its files: small files that name each other may stand for any number."""

    def __init__(self, directory: Path, where: str) -> None:
        self._directory = directory
        self._where = where
        self._num_letters = 0
        self._num_files = 0
        self._num_words = 0

    def expand(self, words: Sequence[str], within: tuple[Path, ...]) -> Iterator[str]:
        for word in words:
            path = self._file_of(word)
            if path is None:
                self._num_words += 1
                self._check(self._num_words, MAX_WORDS, "words")
                yield word
                continue
            if path in within:
                raise CorpusError(
                    f"{self._where}: {printable(word)} names itself, by way of {len(within)} files; mend the files"
                )
            self._check(len(within) + 1, MAX_DEPTH, "files that name each other")
            yield from self.expand(self._words_of(path), (*within, path))

    def _file_of(self, word: str) -> Path | None:
        if len(word) < 2 or word[0] != "@" or "\0" in word:
            return None
        try:
            path = (self._directory / word[1:]).resolve()
            return path if path.is_file() else None
        except (OSError, RuntimeError, ValueError):
            return None

    def _words_of(self, path: Path) -> list[str]:
        text = read_text(path, MAX_FILE_BYTES, "a build whose response files are there")
        self._num_letters += len(text)
        self._check(self._num_letters, MAX_FILE_BYTES, "letters in response files")
        self._num_files += 1
        self._check(self._num_files, MAX_FILES, "response files")
        return split(text)

    def _check(self, found: int, limit: int, what: str) -> None:
        if found > limit:
            raise CorpusError(f"{self._where}: expected at most {limit} {what}, found more")
