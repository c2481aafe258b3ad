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
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from compiler_opt.checked_values import NonNegativeInt, convert, read_json
from compiler_opt.corpus import bitcode
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.module import MAX_COMMAND_BYTES, Module, check_name
from compiler_opt.corpus.remote import RemoteFolder, RemoteModule, is_url, list_folder
from compiler_opt.corpus.validation import REMAKE, FileChecker
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import printable, shown, write_atomically

MAX_DESCRIPTION_BYTES = 1 << 27
MAX_MODULES = 1 << 21

DESCRIPTION_NAME = "corpus_description.json"

MAX_BITCODE_BYTES = 1 << 32  # of remote files


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus; modules are read when they are needed.

    Attributes:
      root: the folder.
      modules: in the order of the description.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: options used instead of each module's own: cc1's or, without `-cc1`, clang's driver's.
      compiler: the compiler that wrote the bitcode, if recorded; key `version` holds `[major, minor, patch]`.
      problem_config: changes to the modules' options.
    """

    root: Path
    modules: tuple[Module, ...]
    has_thinlto: bool = False
    global_command_override: tuple[str, ...] | None = None
    compiler: Mapping[str, Any] | None = None
    problem_config: ProblemConfig = ProblemConfig()

    @classmethod
    def load(
        cls, path: Path | str, *, trusted: bool = False, check_files: bool = True, cache_dir: Path | str | None = None
    ) -> "Corpus":
        """Reads the description of a corpus and validates its files.

        Args:
          path: the corpus folder or its description file; a string with `://` is an fsspec URL, whose files are fetched
            when they are needed.
          check_files: whether to look at the modules' files, too; those of a remote corpus always are.
          cache_dir: where fetched files are kept; by default in the user's cache.
          trusted: allow options that are not on the allow-list, see `command_line`.

        Raises:
          CorpusError: there is no corpus, its description is invalid, or a module's files are missing, truncated or
            reached by a symlink out of the corpus.
        """
        if is_url(path):
            return _load_remote(str(path), trusted, None if cache_dir is None else Path(cache_dir))
        root = Path(path)
        if root.name == DESCRIPTION_NAME:
            root = root.parent
        corpus = _read_corpus(root, trusted)
        checker = FileChecker(root)
        for module in corpus.modules if check_files else ():
            checker.check_module(module.name, has_command=module.command_override is None)
        return corpus

    def __repr__(self) -> str:
        return f"Corpus({str(self.root)!r}, {len(self.modules)} modules)"

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
        """The modules of these projects, as a corpus; raises CorpusError if there is no such project."""
        wanted = set(projects)
        if missing := sorted(wanted - self.projects().keys()):
            raise CorpusError(
                f"{self.root / DESCRIPTION_NAME}: there is no project {shown(missing[0])} in this corpus; it has "
                f"{shown(', '.join(self.projects()))}"
            )
        return dataclasses.replace(self, modules=tuple(m for m in self.modules if m.project in wanted))

    def sample(self, modules_per_project: int | None, seed: int) -> "Corpus":
        """At most so many modules of each project, drawn at random, as a corpus; None for all.

        A larger number only adds modules, and the modules of a project do not depend on the other projects.
        """
        if modules_per_project is None:
            return self
        chosen: set[str] = set()
        for name, modules in self.projects().items():
            drawn = random.Random(f"{seed} {name}").sample(modules, len(modules))[:modules_per_project]
            chosen.update(module.name for module in drawn)
        return dataclasses.replace(self, modules=tuple(m for m in self.modules if m.name in chosen))

    def filter(self, keep: str | Callable[[Module], bool]) -> "Corpus":
        """The modules whose names the regular expression is found in, or for which the predicate holds, as a corpus.

        Raises ConfigError if the regular expression is invalid, or no module matches.
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

        Modules whose options name no target have the compiler's `default`. Raises CorpusError for unreadable options.
        """
        return dict(Counter(module.target() or default for module in self.modules).most_common())

    def check_compiler(self, version: Sequence[int], clang: Path | str = "clang") -> None:
        """Refuses a compiler (version and path) that is older than the one that wrote the bitcode.

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


_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Compiler(msgspec.Struct):
    version: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None


class _File(msgspec.Struct):
    """The keys that we read; others are ignored."""

    modules: Annotated[list[Any], msgspec.Meta(max_length=MAX_MODULES)]
    has_thinlto: bool = False
    global_command_override: tuple[_Text, ...] | None = None
    projects: tuple[_Text, ...] = ()
    compiler: _Compiler | None = None


def _read_corpus(root: Path, trusted: bool) -> Corpus:
    """Reads and validates the description in a folder, but not the modules' files."""
    path = root / DESCRIPTION_NAME
    if root.is_file():
        raise CorpusError(
            f"{root}: expected the folder of a corpus, found a file; compiler_opt make_corpus makes one of "
            "bitcode files (--input_dir=FOLDER --default_args='-cc1 -Oz')"
        )
    try:
        content = read_json(path, dict[str, Any], max_bytes=MAX_DESCRIPTION_BYTES, error=CorpusError, remedy=REMAKE)
    except FileNotFoundError:
        raise CorpusError(
            f"{path}: no such file, so {path.parent} is no corpus; make one with compiler_opt fetch_corpus, "
            "compiler_opt extract_ir or, of bitcode files, compiler_opt make_corpus"
        ) from None
    try:
        file = convert(content, _File)
    except ValueError as error:
        raise CorpusError(f"{path}: {error}; {REMAKE}") from None
    if not file.modules:
        raise CorpusError(f"{path}: the corpus is empty ('modules' lists nothing); {REMAKE}")
    override = file.global_command_override
    if override is not None and sum(map(len, override)) + len(override) > MAX_COMMAND_BYTES:
        raise CorpusError(
            f"{path}: global_command_override: expected at most {MAX_COMMAND_BYTES} bytes of options, found more"
        )
    projects = _projects_of_modules(path, file.modules, frozenset(file.projects))
    modules = tuple(Module(name, project, root, override, trusted) for name, project in projects.items())
    # `compiler` verbatim: it may have keys that others use.
    return Corpus(root, modules, file.has_thinlto, override, content.get("compiler"))


def _projects_of_modules(where: Path, names: Iterable[Any], projects: frozenset[str]) -> dict[str, str]:
    """Maps each module to the longest project that prefixes its name; without projects, the corpus is one project."""
    own_name = where.parent.resolve().name or "corpus"
    modules: dict[str, str] = {}
    for name in names:
        try:
            check_name(name)
        except CorpusError as error:
            raise CorpusError(f"{where}: {error}; {REMAKE}") from None
        if name in modules:
            raise CorpusError(f"{where}: module {shown(name)} is listed twice; {REMAKE}")
        project = _project_of(name, projects)
        if project is None:
            if projects:
                raise CorpusError(f"{where}: module {shown(name)} belongs to none of 'projects'; {REMAKE}")
            project = own_name
        modules[name] = project
    return modules


def _project_of(name: str, projects: frozenset[str]) -> str | None:
    """The longest project that prefixes the name."""
    end = name.rfind("/")
    while end > 0:
        if name[:end] in projects:
            return name[:end]
        end = name.rfind("/", 0, end)
    return None


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
    corpus = _read_corpus(folder.mirror, trusted)
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
