"""A corpus on disk: its modules, and the options that the build compiled them with.

The format is that of LLVM's mlgo-utils. A folder with `corpus_description.json`:

    {"modules": ["lib/a.o", ...], "has_thinlto": false, "global_command_override": ["-cc1", ...] (optional)}

and, per module, `NAME.bc` (bitcode from before optimisation), `NAME.cmd` (cc1 options, each terminated by NUL) and,
with ThinLTO, `NAME.thinlto.bc`. Two optional keys are ours: `"projects": ["leveldb", ...]`, where a module belongs to
the project that prefixes its name (`leveldb/db/builder.o`), and `"compiler": {"version": [22, 1, 0], ...}`, the
compiler that wrote the bitcode. A corpus is untrusted input: names and symlinks that leave it are refused.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description_file import MAX_DESCRIPTION_BYTES, read_description
from compiler_opt.corpus.module import MAX_COMMAND_BYTES, Module
from compiler_opt.corpus.remote import RemoteFolder, RemoteModule, is_url, list_folder
from compiler_opt.corpus.validation import REMAKE, FileChecker
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import printable, shown, write_atomically

DESCRIPTION_NAME = "corpus_description.json"

MAX_BITCODE_BYTES = 1 << 32  # of remote files


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus; modules are read when they are needed.

    Attributes:
      root: the folder.
      modules: in the order of the description.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: cc1 options used instead of each module's own.
      compiler: what wrote the bitcode, if recorded; key `version` holds `[major, minor, patch]`.
      problem_config: changes to the modules' options.
    """

    root: Path
    modules: tuple[Module, ...]
    has_thinlto: bool = False
    global_command_override: tuple[str, ...] | None = None
    compiler: Mapping[str, Any] | None = None
    problem_config: ProblemConfig = ProblemConfig()

    @classmethod
    def load(cls, path: Path | str, *, trusted: bool = False, cache_dir: Path | None = None) -> "Corpus":
        """Reads the description of a corpus and validates its files.

        Args:
          path: the corpus folder or its description file; a string with `://` is an fsspec URL, whose files are fetched
            when they are needed.
          cache_dir: where fetched files are kept; by default in the user's cache.
          trusted: allow options that are not on the allow-list, see `command_line`.

        Raises:
          CorpusError: there is no corpus, its description is invalid, or a module's files are missing, truncated or
            reached by a symlink out of the corpus.
        """
        if is_url(path):
            return _load_remote(str(path), trusted, cache_dir)
        root = Path(path)
        if root.name == DESCRIPTION_NAME:
            root = root.parent
        corpus = _corpus(root, trusted)
        checker = FileChecker(root)
        for module in corpus.modules:
            checker.check_module(module.name, has_command=module.command_override is None)
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

    def select(self, projects: Iterable[str]) -> "Corpus":
        """The modules of these projects, as a corpus.

        Raises:
          CorpusError: there is no such project.
        """
        wanted = set(projects)
        if missing := sorted(wanted - self.projects().keys()):
            raise CorpusError(
                f"{self.root / DESCRIPTION_NAME}: there is no project {shown(missing[0])} in this corpus; it has "
                f"{shown(', '.join(self.projects()))}"
            )
        return dataclasses.replace(self, modules=tuple(m for m in self.modules if m.project in wanted))

    def filter(self, keep: str | Callable[[Module], bool]) -> "Corpus":
        """The modules that match, as a corpus.

        Args:
          keep: a regular expression searched for in module names, or a predicate.

        Raises:
          ConfigError: the regular expression is invalid, or no module matches.
        """
        if isinstance(keep, str):
            try:
                pattern = re.compile(keep)
            except (re.error, OverflowError, RecursionError) as error:
                raise ConfigError(f"the module filter {shown(keep)}: not a regular expression: {error}") from None
            modules = tuple(module for module in self.modules if pattern.search(module.name))
        else:
            modules = tuple(module for module in self.modules if keep(module))
        if not modules:
            pattern_shown = f" {shown(keep)}" if isinstance(keep, str) else ""
            raise ConfigError(
                f"{self.root}: the module filter{pattern_shown} matches none of {len(self.modules)} modules"
            )
        return dataclasses.replace(self, modules=modules)

    def configured(self, problem_config: ProblemConfig) -> "Corpus":
        """The corpus with changed options.

        Raises:
          ConfigError: an added option has no effect or, unless the corpus is trusted, is not on the allow-list.
        """
        problem_config.check(trusted=any(module.trusted for module in self.modules))
        modules = tuple(dataclasses.replace(module, problem_config=problem_config) for module in self.modules)
        return dataclasses.replace(self, modules=modules, problem_config=problem_config)

    def targets(self, default: str) -> dict[str, int]:
        """The number of modules per target, the most frequent first.

        Args:
          default: the target of modules whose options name none: the compiler's default.

        Raises:
          CorpusError: a module's options cannot be read.
        """
        return dict(Counter(module.target() or default for module in self.modules).most_common())

    def check_compiler(self, version: Sequence[int], clang: Path | str = "clang") -> None:
        """Refuses a compiler that is older than the one that wrote the bitcode.

        Args:
          version: of the compiler, `(major, minor, patch)`.
          clang: its path, for the message.

        Raises:
          CorpusError: it is older; LLVM reads bitcode of its own and earlier versions only.
        """
        writer = self.compiler_version()
        if writer is not None and version[0] < writer[0]:
            raise CorpusError(
                f"{self.root / DESCRIPTION_NAME}: bitcode written by LLVM {_dotted(writer)} cannot be read by {clang} "
                f"(LLVM {_dotted(version)}); use a clang >= {writer[0]}, or {REMAKE} with the older one"
            )

    def compiler_version(self) -> tuple[int, int, int] | None:
        """The newest LLVM that wrote bitcode: as recorded, else from the first module; None if unknown."""
        recorded = (self.compiler or {}).get("version")
        if recorded is not None:
            return (recorded[0], recorded[1], recorded[2])
        with self.modules[0].bitcode_path.open("rb") as file:
            return bitcode.producer_version(file.read(bitcode.HEAD_BYTES))


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


def _corpus(root: Path, trusted: bool) -> Corpus:
    """Reads the description in a folder, without validating the modules' files."""
    description = read_description(root / DESCRIPTION_NAME)
    options = description.global_command_override
    modules = tuple(Module(name, project, root, options, trusted) for name, project in description.modules.items())
    return Corpus(root, modules, description.has_thinlto, options, description.compiler)


def _load_remote(url: str, trusted: bool, cache_dir: Path | None) -> Corpus:
    url = url.removesuffix(f"/{DESCRIPTION_NAME}")
    folder = list_folder(url, cache_dir)
    listed = folder.files.get(DESCRIPTION_NAME)
    if listed is None:
        raise CorpusError(f"{printable(url)}/{DESCRIPTION_NAME}: no such file; give the URL of a corpus")
    if listed.size_bytes > MAX_DESCRIPTION_BYTES:
        raise CorpusError(
            f"{printable(listed)}: expected at most {MAX_DESCRIPTION_BYTES} bytes, found {listed.size_bytes}; {REMAKE}"
        )
    # Error messages name this copy.
    copy = folder.mirror / DESCRIPTION_NAME
    write_atomically(copy, listed.fetch().read_bytes())
    corpus = _corpus(folder.mirror, trusted)
    modules = tuple(dataclasses.replace(module, remote=_remote_module(module, folder)) for module in corpus.modules)
    return dataclasses.replace(corpus, modules=modules)


def _remote_module(module: Module, folder: RemoteFolder) -> RemoteModule:
    """The remote files of a module, from the listing."""
    found = []
    for ending, is_needed, max_bytes in (
        (".bc", True, MAX_BITCODE_BYTES),
        (".cmd", module.command_override is None, MAX_COMMAND_BYTES),
        (".thinlto.bc", False, MAX_BITCODE_BYTES),
    ):
        file = folder.files.get(f"{module.name}{ending}")
        where = printable(f"{folder.url}/{module.name}{ending}")
        if file is None and is_needed:
            raise CorpusError(f"{where}: no such file, though the corpus lists its module; {REMAKE}")
        if file is not None and file.size_bytes > max_bytes:
            raise CorpusError(f"{where}: expected at most {max_bytes} bytes, found {file.size_bytes}; {REMAKE}")
        found.append(file)
    assert found[0] is not None
    return RemoteModule(found[0], *found[1:])


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)
