"""Corpora on disk: which modules there are, and what the build compiled them with.

The format is LLVM's (mlgo-utils). A folder with `corpus_description.json`:

    {"modules": ["lib/a.o", ...], "has_thinlto": false, "global_command_override": ["-cc1", ...] (optional)}

and, per module, `NAME.bc` (bitcode from before optimisation), `NAME.cmd` (cc1 options, each ended by NUL) and, with
ThinLTO, `NAME.thinlto.bc`. Two optional keys are ours: `"projects": ["leveldb", ...]`, where a module belongs to the
project that is the start of its name (`leveldb/db/builder.o`), and `"compiler": {"version": [22, 1, 0], ...}`, what
wrote the bitcode. A corpus is untrusted input: names stay inside, links that leave are refused.
"""

import dataclasses
import functools
import itertools
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from compiler_opt.corpus import bitcode
from compiler_opt.errors import CorpusError

DESCRIPTION_NAME = "corpus_description.json"

MAX_DESCRIPTION_BYTES = 1 << 28
MAX_COMMAND_BYTES = 1 << 20

_REMAKE = "extract the corpus again"


@dataclasses.dataclass(frozen=True)
class Module:
    """One translation unit of a corpus.

    Attributes:
      name: its path inside the corpus without the endings, e.g. `leveldb/db/builder.o`.
      project: what it is linked with, e.g. `leveldb`.
      root: the corpus folder.
      command_override: options for all modules, instead of the `.cmd` files (ThinLTO at link time).
    """

    name: str
    project: str
    root: Path
    command_override: tuple[str, ...] | None = None

    @property
    def bitcode_path(self) -> Path:
        return self.root / f"{self.name}.bc"

    @property
    def command_path(self) -> Path:
        return self.root / f"{self.name}.cmd"

    @property
    def thinlto_index_path(self) -> Path:
        return self.root / f"{self.name}.thinlto.bc"

    def options(self) -> tuple[str, ...]:
        """The cc1 options that the build used, as recorded: pass them through `command_line.compile_command`.

        Raises:
          CorpusError: the `.cmd` file is missing or is no list of options.
        """
        if self.command_override is not None:
            return self.command_override
        path = self.command_path
        try:
            with path.open("rb") as file:
                data = file.read(MAX_COMMAND_BYTES + 1)
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror}); {_REMAKE}") from None
        try:
            return parse_options(data)
        except CorpusError as error:
            raise CorpusError(f"{path}: {error}; {_REMAKE}") from None

    def target(self) -> str | None:
        """The target that its options name, e.g. `aarch64-unknown-linux-gnu`; None when they leave it to the compiler.

        Raises:
          CorpusError: see `options`.
        """
        options = self.options()
        return next((value for name, value in reversed(list(itertools.pairwise(options))) if name == "-triple"), None)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus, as its description says; modules are read when they are needed.

    Attributes:
      root: the folder.
      modules: in the order of the description.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: cc1 options used instead of each module's own.
      compiler: what wrote the bitcode, where known; key `version` holds `[major, minor, patch]`.
    """

    root: Path
    modules: tuple[Module, ...]
    has_thinlto: bool = False
    global_command_override: tuple[str, ...] | None = None
    compiler: Mapping[str, Any] | None = None

    @classmethod
    def load(cls, path: Path | str) -> "Corpus":
        """Reads the description of the corpus in folder `path` (or its description file), and looks at the files.

        Raises:
          CorpusError: there is no corpus, its description is not usable, or a module's files are missing, cut short or
            reached by a link that leaves the corpus.
        """
        root = Path(path)
        if root.name == DESCRIPTION_NAME:
            root = root.parent
        description = _read_description(root / DESCRIPTION_NAME)
        corpus = _from_description(root, description)
        inside = _Inside(root)
        for module in corpus.modules:
            inside.check(module.bitcode_path)
            if module.command_override is None:
                inside.check(module.command_path)
            _check_bitcode(module.bitcode_path)
        return corpus

    @functools.cached_property
    def by_name(self) -> Mapping[str, Module]:
        """Modules by name."""
        return {module.name: module for module in self.modules}

    def projects(self) -> dict[str, tuple[Module, ...]]:
        """Modules by project, both in the order of the description."""
        result: dict[str, list[Module]] = {}
        for module in self.modules:
            result.setdefault(module.project, []).append(module)
        return {project: tuple(modules) for project, modules in result.items()}

    def select(self, names: Iterable[str] | None = None, projects: Iterable[str] | None = None) -> "Corpus":
        """The part of this corpus with these modules, of these projects; both when both are given.

        Raises:
          CorpusError: there is no such module or project; the message names it.
        """
        modules = self.modules
        if names is not None:
            wanted = _known(names, self.by_name, "module", self.root)
            modules = tuple(module for module in modules if module.name in wanted)
        if projects is not None:
            wanted = _known(projects, self.projects(), "project", self.root)
            modules = tuple(module for module in modules if module.project in wanted)
        return dataclasses.replace(self, modules=modules)

    def targets(self, default: str) -> dict[str, int]:
        """The number of modules for each target, the most frequent first.

        Args:
          default: the target of those whose options name none: the compiler's own.

        Raises:
          CorpusError: a module's options cannot be read.
        """
        return dict(Counter(module.target() or default for module in self.modules).most_common())

    def check_compiler(self, version: Sequence[int], clang: Path | str = "clang") -> None:
        """Refuses a compiler that is older than the one that wrote the bitcode.

        Args:
          version: of the compiler that is to read it, `(major, minor, patch)`.
          clang: its path, for the message.

        Raises:
          CorpusError: it is older; LLVM reads bitcode of its own and earlier versions only.
        """
        writer = self.compiler_version()
        if writer is not None and version[0] < writer[0]:
            raise CorpusError(
                f"{self.root / DESCRIPTION_NAME}: bitcode written by LLVM {_dotted(writer)} cannot be read by {clang} "
                f"(LLVM {_dotted(version)}); use a clang >= {writer[0]}, or {_REMAKE} with the older one"
            )

    def compiler_version(self) -> tuple[int, int, int] | None:
        """The newest LLVM that wrote the bitcode, as recorded, else as the first module says; None: unknown."""
        recorded = (self.compiler or {}).get("version")
        if recorded is not None:
            return (recorded[0], recorded[1], recorded[2])
        with self.modules[0].bitcode_path.open("rb") as file:
            return bitcode.producer_version(file.read(bitcode.HEAD_BYTES))


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
        raise CorpusError(f"module name: expected a relative path, found {_shown(name)}")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or str(path) != name or name == ".":
        raise CorpusError(f"module name: expected a relative path that stays inside the corpus, found {_shown(name)}")
    return name


def explain_failure(stderr: str) -> str | None:
    """What to do about a compiler's complaint over a module's bitcode, in one line; None when it is something else."""
    if re.search(r"Unknown attribute kind|Invalid record|Unknown (opcode|version|type)|Incompatible epoch", stderr):
        return (
            "the bitcode was written by a newer LLVM than this clang reads; use a clang at least as new as the one "
            f"that made the corpus, or {_REMAKE} with this clang"
        )
    if re.search(r"Invalid bitcode|file too small|Malformed block|Unexpected end of file|truncated|Bad magic", stderr):
        return f"the bitcode is damaged or truncated; {_REMAKE}"
    # So many complaints of the second kind may follow that the error itself is not within the end of stderr.
    if "overriding the module target triple" in stderr or (
        "is not a recognized feature for this target" in stderr and stderr.rstrip().endswith("1 error generated.")
    ):
        return (
            "the bitcode is for another target than the options (or, where those name none, than this clang's own); "
            "put the bitcode's as '-triple' into the module's .cmd file"
        )
    if unknown := re.search(r"unknown target triple '([^']*)'|No available targets .* with triple \"([^\"]*)", stderr):
        return (
            f"this clang cannot compile for the target {unknown[1] or unknown[2]} (clang --print-targets lists those "
            "that it can); give another by --clang_path"
        )
    return None


def _read_description(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DESCRIPTION_BYTES + 1)
    except FileNotFoundError:
        raise CorpusError(
            f"{path}: no such file, so {path.parent} is no corpus; make one with compiler_opt/tools/fetch_corpus.py "
            "or compiler_opt/tools/extract_ir.py"
        ) from None
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); give the folder of a corpus") from None
    if len(data) > MAX_DESCRIPTION_BYTES:
        raise CorpusError(f"{path}: expected at most {MAX_DESCRIPTION_BYTES} bytes, found more; {_REMAKE}")
    try:
        description = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: expected JSON, found something else ({reason}); {_REMAKE}") from None
    if not isinstance(description, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(description).__name__}; {_REMAKE}")
    return description


def _from_description(root: Path, description: Mapping[str, Any]) -> Corpus:
    where = root / DESCRIPTION_NAME
    if "modules" not in description:
        raise CorpusError(f"{where}: expected the key 'modules', found {sorted(description)!r:.200}; {_REMAKE}")
    names = description["modules"]
    if not isinstance(names, list):
        raise CorpusError(f"{where}: 'modules': expected a list, found {type(names).__name__}; {_REMAKE}")
    if not names:
        raise CorpusError(f"{where}: the corpus is empty ('modules' lists nothing); {_REMAKE}")
    has_thinlto = description.get("has_thinlto", False)
    if not isinstance(has_thinlto, bool):
        raise CorpusError(f"{where}: 'has_thinlto': expected true or false, found {_shown(has_thinlto)}; {_REMAKE}")
    override = description.get("global_command_override")
    if override is not None and not _is_strings(override):
        raise CorpusError(f"{where}: 'global_command_override': expected a list of options, found {_shown(override)}")
    projects = description.get("projects", [])
    if not _is_strings(projects):
        raise CorpusError(f"{where}: 'projects': expected a list of names, found {_shown(projects)}")
    compiler = description.get("compiler")
    if compiler is not None and not _is_compiler(compiler):
        raise CorpusError(
            f"{where}: 'compiler': expected an object with 'version': [major, minor, patch], found {_shown(compiler)}"
        )

    options = None if override is None else tuple(override)
    own_name = root.resolve().name or "corpus"
    prefixes = sorted(projects, key=len, reverse=True)
    modules = []
    seen: set[str] = set()
    for name in names:
        try:
            check_name(name)
        except CorpusError as error:
            raise CorpusError(f"{where}: {error}; {_REMAKE}") from None
        if name in seen:
            raise CorpusError(f"{where}: module {_shown(name)} is listed twice; {_REMAKE}")
        seen.add(name)
        project = next((prefix for prefix in prefixes if name.startswith(f"{prefix}/")), None)
        if project is None:
            if projects:
                raise CorpusError(f"{where}: module {_shown(name)} belongs to none of 'projects'; {_REMAKE}")
            project = own_name
        modules.append(Module(name, project, root, options))
    return Corpus(root, tuple(modules), has_thinlto, options, compiler)


def _check_bitcode(path: Path) -> None:
    try:
        with path.open("rb") as file:
            wrong = bitcode.problem(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); {_REMAKE}") from None
    if wrong:
        raise CorpusError(f"{path}: {wrong}; {_REMAKE}")


class _Inside:
    """Checks that files are regular ones inside a corpus; looks at each folder once, as there may be 10,000 files."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._folders: set[Path] = set()

    def check(self, path: Path) -> None:
        """Raises CorpusError when the file is missing, no file, or a link out of the corpus leads to it."""
        try:
            if path.parent not in self._folders:
                self._check_resolved(path.parent)
                self._folders.add(path.parent)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                self._check_resolved(path)
                mode = path.stat().st_mode
        except FileNotFoundError:
            raise CorpusError(f"{path}: no such file, though the corpus lists its module; {_REMAKE}") from None
        except (OSError, RuntimeError) as error:
            raise CorpusError(f"{path}: cannot be read ({error}); {_REMAKE}") from None
        if not stat.S_ISREG(mode):
            raise CorpusError(f"{path}: expected a file, found something else; {_REMAKE}")

    def _check_resolved(self, path: Path) -> None:
        target = path.resolve(strict=True)
        if not target.is_relative_to(self._root):
            raise CorpusError(f"{path}: is a link that leaves the corpus (to {target}); {_REMAKE}")


def _known(wanted: Iterable[str], known: Mapping[str, Any], kind: str, root: Path) -> set[str]:
    result = set(wanted)
    missing = sorted(result - known.keys())
    if missing:
        raise CorpusError(f"{root / DESCRIPTION_NAME}: there is no {kind} {_shown(missing[0])} in this corpus")
    return result


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _is_compiler(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    version = value.get("version")
    return version is None or (
        isinstance(version, list)
        and len(version) == 3
        and all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in version)
    )


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
