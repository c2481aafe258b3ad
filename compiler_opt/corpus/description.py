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
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description_file import MAX_DESCRIPTION_BYTES, read_description
from compiler_opt.corpus.module import MAX_COMMAND_BYTES
from compiler_opt.corpus.module import Module as Module
from compiler_opt.corpus.module import check_name as check_name
from compiler_opt.corpus.module import format_options as format_options
from compiler_opt.corpus.module import parse_options as parse_options
from compiler_opt.corpus.remote import RemoteFolder, RemoteModule, is_url, list_folder
from compiler_opt.corpus.validation import REMAKE, FileChecker
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import printable, shown, write_atomically

DESCRIPTION_NAME = "corpus_description.json"

MAX_BITCODE_BYTES = 1 << 32  # of files that are fetched


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus, as its description says; modules are read when they are needed.

    Attributes:
      root: the folder.
      modules: in the order of the description.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: cc1 options used instead of each module's own.
      compiler: what wrote the bitcode, where known; key `version` holds `[major, minor, patch]`.
      problem_config: how the modules' options are changed.
    """

    root: Path
    modules: tuple[Module, ...]
    has_thinlto: bool = False
    global_command_override: tuple[str, ...] | None = None
    compiler: Mapping[str, Any] | None = None
    problem_config: ProblemConfig = ProblemConfig()

    @classmethod
    def load(cls, path: Path | str, *, trusted: bool = False, cache_dir: Path | None = None) -> "Corpus":
        """Reads the description of the corpus in folder `path` (or its description file), and looks at the files.

        Args:
          path: where it is; a string with `://` is a URL for fsspec, whose files are fetched when they are needed.
          cache_dir: where those are kept; by default within the user's cache.
          trusted: whether it is one's own: options that are not on the allow-list are let through, see `command_line`.

        Raises:
          CorpusError: there is no corpus, its description is not usable, or a module's files are missing, cut short or
            reached by a link that leaves the corpus.
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

    def filter(self, keep: str | Callable[[Module], bool]) -> "Corpus":
        """The part of this corpus whose modules are wanted.

        Args:
          keep: a regular expression that occurs in their names, or what says so of a module.

        Raises:
          ConfigError: it is no regular expression, or no module is wanted.
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
            what = f" {shown(keep)}: occurs in" if isinstance(keep, str) else " wants"
            raise ConfigError(f"{self.root}: the module filter{what} none of {len(self.modules)} module names")
        return dataclasses.replace(self, modules=modules)

    def split_by_project(self, held_out_share: float, seed: int) -> tuple["Corpus", "Corpus"]:
        """Sets whole projects apart: what is learned from, and what it is measured on.

        Modules of one project have much in common, headers first of all; a policy that is measured on the rest of a
        project that it learned from looks better than it is.

        Args:
          held_out_share: how much of the modules is held out, as near as whole projects allow; at least one project is
            held out, and one is not.
          seed: of which; the same projects are held out for the same seed, in whatever order the description names
            them.

        Returns:
          training and held-out part.

        Raises:
          ConfigError: the share is not between 0 and 1, or there are not two projects.
        """
        if not 0 < held_out_share < 1:
            raise ConfigError(f"held-out share: expected a number between 0 and 1, found {held_out_share}")
        projects = self.projects()
        if len(projects) < 2:
            raise ConfigError(
                f"{self.root}: expected two projects or more, found {len(projects)}; whole projects are held out, so "
                "combine it with other corpora"
            )
        held_out = _draw_projects({name: len(found) for name, found in projects.items()}, held_out_share, seed)
        return self.select(projects=projects.keys() - held_out), self.select(projects=held_out)

    def configured(self, problem_config: ProblemConfig) -> "Corpus":
        """The same corpus with its options changed.

        Raises:
          ConfigError: it adds what does nothing or, unless the corpus is trusted, is not on the allow-list.
        """
        problem_config.check(trusted=any(module.trusted for module in self.modules))
        modules = tuple(dataclasses.replace(module, problem_config=problem_config) for module in self.modules)
        return dataclasses.replace(self, modules=modules, problem_config=problem_config)

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
                f"(LLVM {_dotted(version)}); use a clang >= {writer[0]}, or {REMAKE} with the older one"
            )

    def compiler_version(self) -> tuple[int, int, int] | None:
        """The newest LLVM that wrote the bitcode, as recorded, else as the first module says; None: unknown."""
        recorded = (self.compiler or {}).get("version")
        if recorded is not None:
            return (recorded[0], recorded[1], recorded[2])
        with self.modules[0].bitcode_path.open("rb") as file:
            return bitcode.producer_version(file.read(bitcode.HEAD_BYTES))


def explain_failure(stderr: str) -> str | None:
    """What to do about a compiler's complaint over a module's bitcode, in one line; None when it is something else."""
    if re.search(r"Unknown attribute kind|Invalid record|Unknown (opcode|version|type)|Incompatible epoch", stderr):
        return (
            "the bitcode was written by a newer LLVM than this clang reads; use a clang at least as new as the one "
            f"that made the corpus, or {REMAKE} with this clang"
        )
    if re.search(r"Invalid bitcode|file too small|Malformed block|Unexpected end of file|truncated|Bad magic", stderr):
        return f"the bitcode is damaged or truncated; {REMAKE}"
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


def _corpus(root: Path, trusted: bool) -> Corpus:
    """What the description in a folder says, before any other file has been looked at."""
    description = read_description(root / DESCRIPTION_NAME)
    options = description.global_command_override
    modules = tuple(Module(name, project, root, options, trusted) for name, project in description.modules.items())
    return Corpus(root, modules, description.has_thinlto, options, description.compiler)


def _load_remote(url: str, trusted: bool, cache_dir: Path | None) -> Corpus:
    url = url.removesuffix(f"/{DESCRIPTION_NAME}")
    folder = list_folder(url, cache_dir)
    listed = folder.files.get(DESCRIPTION_NAME)
    if listed is None:
        raise CorpusError(f"{printable(url)}/{DESCRIPTION_NAME}: no such file, so it is no corpus; give the URL of one")
    if listed.size_bytes > MAX_DESCRIPTION_BYTES:
        raise CorpusError(
            f"{printable(listed)}: expected at most {MAX_DESCRIPTION_BYTES} bytes, found {listed.size_bytes}; {REMAKE}"
        )
    # What is said of the description is said of this copy.
    copy = folder.mirror / DESCRIPTION_NAME
    write_atomically(copy, listed.fetch().read_bytes())
    corpus = _corpus(folder.mirror, trusted)
    modules = tuple(dataclasses.replace(module, remote=_remote_module(module, folder)) for module in corpus.modules)
    return dataclasses.replace(corpus, modules=modules)


def _remote_module(module: Module, folder: RemoteFolder) -> RemoteModule:
    """Where the files of a module are, all of which have been listed."""
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


def _draw_projects(sizes: Mapping[str, int], share: float, seed: int) -> set[str]:
    """Projects with about that share of the modules, not all of them.

    Args:
      sizes: modules by project; two projects or more.
      share: over 0 and less than 1.
      seed: of the order in which they are looked at.
    """
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    wanted = share * sum(sizes.values())
    drawn: set[str] = set()
    num_modules = 0
    for project in order:
        # Taken when that leads nearer to the share than leaving it.
        if abs(num_modules + sizes[project] - wanted) < abs(num_modules - wanted):
            drawn.add(project)
            num_modules += sizes[project]
    # All of them are too large, or the share is nearly everything.
    if not drawn:
        drawn = {min(order, key=lambda project: sizes[project])}
    if len(drawn) == len(order):
        drawn.discard(min(order, key=lambda project: sizes[project]))
    return drawn


def _known(wanted: Iterable[str], known: Mapping[str, Any], kind: str, root: Path) -> set[str]:
    result = set(wanted)
    missing = sorted(result - known.keys())
    if missing:
        raise CorpusError(f"{root / DESCRIPTION_NAME}: there is no {kind} {shown(missing[0])} in this corpus")
    return result


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)
