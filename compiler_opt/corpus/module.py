"""A module of a corpus: its files and its recorded options; `description.py` documents the format."""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.command_lines.command_line import index_path
from compiler_opt.corpus.command_lines.driver_options import are_driver_options, to_cc1
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.remote import RemoteModule
from compiler_opt.corpus.validation import REMAKE, check_whole_bitcode, checked_path, reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable, read_regular, shown
from compiler_opt.llvm.options_plugin import FunctionOptions
from compiler_opt.llvm.pass_options import option_name

MAX_COMMAND_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Module:
    """A translation unit of a corpus.

    Attributes:
      name: its path inside the corpus without suffixes, e.g. `leveldb/db/builder.o`.
      project: the project that it is linked into, e.g. `leveldb`.
      root: the corpus folder.
      command_override: options for all modules, of cc1 or of clang's driver, instead of the `.cmd` files (ThinLTO at
        link time).
      trusted: whether options outside `command_line.py`'s allow-list are accepted.
      problem_config: changes to its options.
      remote: its files on a remote file system; each is fetched when its path is first read.
      pass_options: options of LLVM's passes that it is compiled with besides, such as `-enable-load-pre=false`. They
        are ours: any is accepted.
      function_options: in place of `pass_options`, such options for each of its functions.
    """

    name: str
    project: str
    root: Path
    command_override: tuple[str, ...] | None = None
    trusted: bool = False
    problem_config: ProblemConfig = ProblemConfig()
    remote: RemoteModule | None = None
    pass_options: tuple[str, ...] = ()
    function_options: FunctionOptions | None = None

    @property
    def bitcode_path(self) -> Path:
        """Absolute, as a name such as `-load.bc` in the current folder would be an option of the compiler."""
        if self.remote is not None:
            return self.remote.fetch_bitcode(check_whole_bitcode)
        return (self.root / f"{self.name}.bc").absolute()

    @property
    def command_path(self) -> Path:
        if self.remote is not None and self.remote.command is not None:
            return self.remote.command.fetch()
        return (self.root / f"{self.name}.cmd").absolute()

    def bitcode_bytes(self) -> int:
        """The size of its bitcode; raises CorpusError if the file is gone."""
        if self.remote is not None:
            return self.remote.bitcode.size_bytes
        path = self.bitcode_path
        with reading(path, REMAKE):
            return path.stat().st_size

    def options(self, clang: Path | str | None = None) -> tuple[str, ...]:
        """`recorded_options` with `problem_config` applied; `command_line.compile_command` checks them.

        With a compiler, options of its driver become cc1 options (`driver_options`).

        Raises:
          CorpusError: the options are missing, invalid, or not ones that a corpus may use.
        """
        options = self.recorded_options()
        if clang is not None and self.command_override is not None and are_driver_options(options):
            has_index = index_path(self.bitcode_path).is_file()
            options = to_cc1(clang, options, has_index=has_index, trusted=self.trusted)
        return self.problem_config.apply(options)

    def with_flags(self, *added: str) -> "Module":
        """The module with further cc1 options, which must be on the corpus's allow-list."""
        config = self.problem_config
        config = dataclasses.replace(config, flags_to_add=(*config.flags_to_add, *added))
        return dataclasses.replace(self, problem_config=config)

    def pass_flags(self, options: Sequence[str]) -> list[str]:
        """`pass_options` as flags of cc1, without those that `options` of cc1 set: of two, LLVM would take the last."""
        taken = {option_name(value) for word, value in itertools.pairwise(options) if word == "-mllvm"}
        ours = (option for option in self.pass_options if option_name(option) not in taken)
        return [word for option in ours for word in ("-mllvm", option)]

    def with_function_options(self, options: FunctionOptions) -> "Module":
        """The module with options for each function, in place of `pass_options`."""
        return dataclasses.replace(self, pass_options=(), function_options=options)

    def recorded_options(self) -> tuple[str, ...]:
        """The cc1 options that the build used; those of clang's driver if the corpus's `command_override` has such.

        Raises:
          CorpusError: the `.cmd` file is missing or invalid.
        """
        if self.command_override is not None:
            return self.command_override
        path = self.command_path
        with reading(path, REMAKE):
            data = read_regular(path, MAX_COMMAND_BYTES)
        try:
            return parse_options(data)
        except CorpusError as error:
            raise CorpusError(f"{printable(path)}: {error}; {REMAKE}") from None

    def content_digest(self) -> bytes:
        """Identifies what is compiled: name, project, options, bitcode and index; not where they are.

        Raises:
          CorpusError: a file is missing or invalid.
        """
        about = (self.name, self.project, str(self.trusted), *self.recorded_options(), *self.pass_options)
        if self.function_options is not None:
            about = (*about, self.function_options.text())
        digest = hashlib.sha256("\0".join(about).encode("utf-8", "surrogateescape"))
        bitcode = self.bitcode_path
        for path in (bitcode, index_path(bitcode)):
            if path == bitcode or path.is_file():
                with reading(path, REMAKE):
                    digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.digest()

    def target(self) -> str | None:
        """The target triple in its `options`, e.g. `aarch64-unknown-linux-gnu`; None for the compiler's default."""
        options = self.options()
        given = [option.removeprefix("--target=") for option in options if option.startswith("--target=")]
        return dict(itertools.pairwise(options)).get("-triple", given[-1] if given else None)

    def language(self) -> str:
        """The source language, by its options or else its name; `?` if unknown."""
        try:
            recorded = dict(itertools.pairwise(self.options()))
        except CorpusError:
            return "?"
        if language := _LANGUAGES.get(recorded.get("-x", "")):
            return language
        names = (recorded.get("-main-file-name", ""), self.name, Path(self.name).stem)
        suffixes = (Path(name).suffix for name in names)
        return next((_LANGUAGE_OF_SUFFIX[suffix] for suffix in suffixes if suffix in _LANGUAGE_OF_SUFFIX), "?")


_LANGUAGES = {"c": "C", "c++": "C++", "objective-c": "Objective-C", "objective-c++": "Objective-C++", "rust": "Rust"}
_LANGUAGE_OF_SUFFIX = {
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".C"), "C++"),
    ".c": "C",
    ".rs": "Rust",
    ".m": "Objective-C",
}


def parse_options(data: bytes) -> tuple[str, ...]:
    """Splits the contents of a `.cmd` file: options terminated (or separated) by NUL; raises CorpusError if invalid."""
    if len(data) > MAX_COMMAND_BYTES:
        raise CorpusError(f"expected at most {MAX_COMMAND_BYTES} bytes of options, found more")
    if data.endswith(b"\0"):
        data = data[:-1]
    if not data:
        raise CorpusError("expected cc1 options separated by NUL, found nothing")
    # Paths are bytes: those that are not UTF-8 become lone surrogates, as everywhere in Python.
    return tuple(data.decode("utf-8", "surrogateescape").split("\0"))


def format_options(options: Sequence[str]) -> bytes:
    """Formats a `.cmd` file as LLVM does: each option terminated by NUL."""
    return b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)


def check_name(name: Any) -> str:
    """Returns the module name if it is a relative path that stays inside the corpus; otherwise raises CorpusError.

    Names that programs would take for an option or a response file are refused, too.
    """
    checked_path(name, "module name")
    if name.startswith(("-", "@")):
        raise CorpusError(f"module name: expected one that does not begin with {name[0]!r}, found {shown(name)}")
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise CorpusError(f"module name: expected a relative path that stays inside the corpus, found {shown(name)}")
    return str(name)


def explain_failure(stderr: str) -> str | None:
    """Explains a compiler error about a module's bitcode and its remedy, in one line; None for other errors."""
    if re.search(r"Unknown attribute kind|Invalid record|Unknown (opcode|version|type)|Incompatible epoch", stderr):
        return (
            "the bitcode was written by a newer LLVM than this clang reads; use a clang at least as new as the one "
            f"that made the corpus, or {REMAKE} with this clang"
        )
    if re.search(r"Invalid bitcode|file too small|Malformed block|Unexpected end of file|truncated|Bad magic", stderr):
        return f"the bitcode is damaged or truncated; {REMAKE}"
    # So many warnings of the second kind may follow that stderr's tail lacks the error itself.
    if "overriding the module target triple" in stderr or (
        "is not a recognized feature for this target" in stderr and stderr.rstrip().endswith("1 error generated.")
    ):
        return (
            "the bitcode is for another target than the options (or, if they name none, than this clang's default); "
            "put the bitcode's target as '-triple' into the module's .cmd file"
        )
    if unknown := re.search(r"unknown target triple '([^']*)'|No available targets .* with triple \"([^\"]*)", stderr):
        return (
            f"this clang cannot compile for the target {unknown[1] or unknown[2]} (clang --print-targets lists "
            "its targets); give another by --clang_path"
        )
    return None
