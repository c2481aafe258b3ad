"""One module of a corpus: its files, and the options that it was compiled with. The format: `description.py`."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.remote import RemoteModule
from compiler_opt.corpus.validation import REMAKE, check_whole_bitcode
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable, read_regular, shown

MAX_COMMAND_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Module:
    """One translation unit of a corpus.

    Attributes:
      name: its path inside the corpus without the endings, e.g. `leveldb/db/builder.o`.
      project: what it is linked with, e.g. `leveldb`.
      root: the corpus folder.
      command_override: options for all modules, instead of the `.cmd` files (ThinLTO at link time).
      trusted: whether its options count for more than the allow-list of `command_line.py`.
      problem_config: how its options are changed.
      remote: where its files are, when that is elsewhere; each is fetched when its path is asked for.
    """

    name: str
    project: str
    root: Path
    command_override: tuple[str, ...] | None = None
    trusted: bool = False
    problem_config: ProblemConfig = ProblemConfig()
    remote: RemoteModule | None = None

    @property
    def bitcode_path(self) -> Path:
        if self.remote is not None:
            return self.remote.fetch_bitcode(check_whole_bitcode)
        return self.root / f"{self.name}.bc"

    @property
    def command_path(self) -> Path:
        if self.remote is not None and self.remote.command is not None:
            return self.remote.command.fetch()
        return self.root / f"{self.name}.cmd"

    def bitcode_bytes(self) -> int:
        """The size of its bitcode.

        Raises:
          CorpusError: it is not there any more.
        """
        if self.remote is not None:
            return self.remote.bitcode.size_bytes
        path = self.bitcode_path
        try:
            return path.stat().st_size
        except OSError as error:
            raise CorpusError(f"{printable(path)}: cannot be read ({error.strerror}); {REMAKE}") from None

    def options(self) -> tuple[str, ...]:
        """The cc1 options that the build used, with the changes: pass them through `command_line.compile_command`.

        Raises:
          CorpusError: the `.cmd` file is missing or is no list of options.
        """
        return self.problem_config.apply(self.recorded_options())

    def recorded_options(self) -> tuple[str, ...]:
        """The cc1 options that the build used, as they were recorded.

        Raises:
          CorpusError: the `.cmd` file is missing or is no list of options.
        """
        if self.command_override is not None:
            return self.command_override
        path = self.command_path
        try:
            data = read_regular(path, MAX_COMMAND_BYTES)
        except OSError as error:
            raise CorpusError(f"{printable(path)}: cannot be read ({error.strerror}); {REMAKE}") from None
        try:
            return parse_options(data)
        except CorpusError as error:
            raise CorpusError(f"{printable(path)}: {error}; {REMAKE}") from None

    def target(self) -> str | None:
        """The target that its options name, e.g. `aarch64-unknown-linux-gnu`; None when they leave it to the compiler.

        Raises:
          CorpusError: see `options`.
        """
        options = self.options()
        return next((value for name, value in reversed(list(itertools.pairwise(options))) if name == "-triple"), None)


def parse_options(data: bytes) -> tuple[str, ...]:
    """Splits the contents of a `.cmd` file: options ended (or separated) by NUL.

    Raises:
      CorpusError: it is empty or too long.
    """
    if len(data) > MAX_COMMAND_BYTES:
        raise CorpusError(f"expected at most {MAX_COMMAND_BYTES} bytes of options, found more")
    if data.endswith(b"\0"):
        data = data[:-1]
    if not data:
        raise CorpusError("expected cc1 options separated by NUL, found nothing")
    # Paths are bytes: what is not UTF-8 travels as lone surrogates, as everywhere in Python.
    return tuple(data.decode("utf-8", "surrogateescape").split("\0"))


def format_options(options: Sequence[str]) -> bytes:
    """The contents of a `.cmd` file, as LLVM writes it: each option ended by NUL."""
    return b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)


def check_name(name: Any) -> str:
    """The module name, when it is a relative path that stays inside.

    Raises:
      CorpusError: it is not.
    """
    if not isinstance(name, str) or not name:
        raise CorpusError(f"module name: expected a relative path, found {shown(name)}")
    # Of bytes that are no UTF-8, Python makes surrogates; others stand for nothing that could be a file's name.
    if "\0" in name or not _ODD_PARTS.isdisjoint(name.split("/")) or not _is_file_name(name):
        raise CorpusError(f"module name: expected a relative path that stays inside the corpus, found {shown(name)}")
    return name


_ODD_PARTS = frozenset({"", ".", ".."})


def _is_file_name(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True
