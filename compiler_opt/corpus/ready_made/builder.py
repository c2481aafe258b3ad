"""Builds ready-made corpora: downloads open-source C and C++ projects, compiles them with the user's clang, extracts.

A set becomes one corpus per split, such as `DIR/train` and `DIR/held_out`, with a folder per project. A project is
built in a scratch folder and moved into place when complete. A repeated build resumes an interrupted one: complete
archives, objects and projects are kept.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import description
from compiler_opt.corpus.builds.database import objects_of_database
from compiler_opt.corpus.making.extract import extract
from compiler_opt.corpus.making.writing import write_description
from compiler_opt.corpus.ready_made import archives, manifest, resume
from compiler_opt.corpus.ready_made.cross_compiling import OWN_TARGET, Target
from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import default_cache_dir, exclusive_directory, nearest_folder, replaced_folder, write_json
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory

_LOG = logging.getLogger(__name__)

LEVELS = ("Oz", "Os", "O1", "O2", "O3")
"""The optimisation levels of modules. A module's bitcode records it: functions have size attributes."""

_FLAGS = ("-DNDEBUG", "-w", "-Xclang", "-fembed-bitcode=all", "-ffile-compilation-dir=.")
"""The flags of all modules, before the project's own. The last makes the corpus independent of its folder."""

_STAMP_NAME = ".ready_made.json"
_COMPILE_TIMEOUT_S = 600
_BLOCK_BYTES = 4096
_ARCHIVES_AT_A_TIME = 3

Progress = Callable[[str, int, int], Any]
"""Called from several threads with a project's name, how many of its modules are compiled, and how many it has (0:
unknown)."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cost of a build, as measured with clang-22 at -Oz; other compilers and levels come close.

    Attributes:
      projects: the projects that are not complete yet.
      download_bytes: size of their archives that are not in the cache.
      corpus_bytes: size of their finished corpora.
    """

    projects: tuple[manifest.Project, ...]
    download_bytes: int
    corpus_bytes: int

    @property
    def num_modules(self) -> int:
        return sum(project.measured.modules for project in self.projects)


@dataclasses.dataclass(frozen=True)
class _Task:
    """A project to build: its folder, and a stamp of what its modules depend on."""

    project: manifest.Project
    target: Path
    stamp: Mapping[str, Any]


def build(
    set_name: str,
    output_dir: Path,
    clang: Path | str,
    *,
    cache_dir: Path | None = None,
    level: str = "Oz",
    target: Target = OWN_TARGET,
    num_workers: int = 1,
    progress: Progress = lambda _name, _done, _total: None,
    announce: Callable[[Plan], Any] = lambda _plan: None,
    known: manifest.Manifest | None = None,
) -> dict[str, Path]:
    """Builds (or completes) the corpora of a set, and returns the corpus folder of each split.

    Complete projects of the same compiler and flags are kept. Projects that do not support the target's architecture
    are skipped.

    Args:
      set_name: one of the sets in `projects.yaml`, e.g. `small`.
      output_dir: gets one corpus folder for each split.
      clang: the compiler.
      cache_dir: where source archives are kept; by default the user's cache folder.
      level: one of `LEVELS`.
      target: the target to compile for; by default the compiler's.
      num_workers: compilers running at a time.
      progress: called after each module.
      announce: called with the plan before the build starts.
      known: the sets and projects; by default those of `projects.yaml`.

    Raises:
      ConfigError: the target or its headers are missing.
      CorpusError: there is no such set, an archive cannot be downloaded, or a source does not compile.
      OutputError: a folder cannot be written or lacks space, or another process works in it.
      ToolchainError: the compiler cannot be run.
    """
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    output_dir = output_dir.absolute()
    compiler = _compiler_version(clang)
    if target != OWN_TARGET:
        target.check(clang)
    splits = (known or manifest.load()).for_architecture(target.architecture(clang)).split(set_name)
    flags = (f"-{level}", *_FLAGS, *target.options)
    with exclusive_directory(output_dir, "--output_dir"):
        todo = []
        for split, projects in splits.items():
            for project in projects:
                stamp = {"project": project.digest(), "compiler": compiler, "flags": list(flags)}
                if not _is_complete(output_dir / split / project.name, stamp):
                    todo.append(_Task(project, output_dir / split / project.name, stamp))
        plan = _plan([task.project for task in todo], cache_dir)
        announce(plan)
        _check_space({cache_dir: plan.download_bytes, output_dir: plan.corpus_bytes})
        with _Builder(clang, cache_dir, flags, num_workers, progress) as builder:
            builder.make(todo)
        for split, projects in splits.items():
            _describe(output_dir / split, projects)
    return {split: output_dir / split for split in splits}


def compilation_database(
    project: manifest.Project,
    sources: Sequence[str],
    root: Path,
    objects_dir: Path,
    clang: Path | str,
    flags: Sequence[str],
) -> list[dict[str, Any]]:
    """The entries of a `compile_commands.json` that compiles `sources`, relative to `root`, into `objects_dir`.

    `flags` are those of all projects; the project's own follow.
    """
    entries = []
    for source in sources:
        target = f"{objects_dir / source}.o"
        arguments = [str(clang), *flags, *project.flags, "-c", source, "-o", target]
        entries.append({"directory": str(root), "file": source, "arguments": arguments, "output": target})
    return entries


class _Builder:
    """Builds several projects at a time, so that downloads and extraction overlap with compilation."""

    def __init__(
        self, clang: Path | str, cache_dir: Path, flags: Sequence[str], num_workers: int, progress: Progress
    ) -> None:
        self._clang = clang
        self._cache_dir = cache_dir
        self._flags = flags
        self._num_workers = max(1, num_workers)
        self._progress = progress
        self._stopped = threading.Event()
        self._compilers = concurrent.futures.ThreadPoolExecutor(self._num_workers)

    def __enter__(self) -> "_Builder":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._compilers.shutdown(cancel_futures=True)

    def make(self, todo: Sequence[_Task]) -> None:
        """Builds the projects; stops at the first failure."""
        with concurrent.futures.ThreadPoolExecutor(_ARCHIVES_AT_A_TIME) as pool:
            # Projects of one archive share its download.
            groups = [
                (archive, [task for task in todo if task.project.archive == archive])
                for archive in manifest.archives_of(task.project for task in todo)
            ]
            running = [pool.submit(self._make_group, *group) for group in groups]
            try:
                for group in concurrent.futures.as_completed(running):
                    group.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _make_group(self, archive: manifest.Archive, tasks: Sequence[_Task]) -> None:
        """Fetches an archive and builds its projects."""
        self._progress(tasks[0].project.name, 0, 0)
        path = archives.fetch(archive, self._cache_dir)
        for task in tasks:
            self._make_project(task, path)

    def _make_project(self, task: _Task, archive: Path) -> None:
        """Compiles and extracts one project, and replaces an older version of its corpus."""
        project, split_dir = task.project, task.target.parent
        output_dir = split_dir.parent
        with (
            scratch_directory(output_dir) as scratch,
            resume.objects_folder(output_dir, project.name, task.stamp) as objects_dir,
        ):
            root = scratch / "source" / project.root
            archives.unpack(archive, scratch / "source", only=project.root)
            sources = _prepare_sources(project, root)
            entries = compilation_database(project, sources, root, objects_dir, self._clang, self._flags)
            database = scratch / "compile_commands.json"
            database.write_text(json.dumps(entries, indent=1), encoding="utf-8")
            self._compile(project, entries)
            objects = objects_of_database(database, base=objects_dir).objects
            try:
                with replaced_folder(task.target) as corpus_dir:
                    extraction = extract(objects, corpus_dir, num_workers=self._num_workers)
                    if extraction.failures:
                        raise CorpusError(f"project {project.name}: {extraction.failures[0][1]}")
                    write_json(corpus_dir / _STAMP_NAME, task.stamp)
                    # The split is incomplete from here until its description is written again.
                    (split_dir / description.DESCRIPTION_NAME).unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(
                    f"{task.target}: cannot be written ({error.strerror}); give another --output_dir"
                ) from None

    def _compile(self, project: manifest.Project, entries: Sequence[Mapping[str, Any]]) -> None:
        """Runs those commands of a compilation database whose objects are missing."""
        # Clang renames a complete object into place, so an existing one is whole, unless power was lost before its
        # bytes were on disk.
        todo = [entry for entry in entries if not _is_object(Path(entry["output"]))]
        self._progress(project.name, len(entries) - len(todo), len(entries))
        tasks = {self._compilers.submit(self._compile_one, entry): entry for entry in todo}
        for done, task in enumerate(concurrent.futures.as_completed(tasks), start=len(entries) - len(todo) + 1):
            result = task.result()
            if not result.ok:
                raise CorpusError(
                    f"project {project.name}: {tasks[task]['file']} does not compile: {result.describe()}; "
                    "try another clang (the ready-made corpora are tested with 19 and 22)"
                )
            self._progress(project.name, done, len(entries))

    def _compile_one(self, entry: Mapping[str, Any]) -> processes.ProcessResult:
        if self._stopped.is_set():
            raise concurrent.futures.CancelledError
        Path(entry["output"]).parent.mkdir(parents=True, exist_ok=True)
        return processes.run(entry["arguments"], cwd=Path(entry["directory"]), timeout_s=_COMPILE_TIMEOUT_S)


def _plan(projects: Sequence[manifest.Project], cache_dir: Path) -> Plan:
    missing = (each for each in manifest.archives_of(projects) if not archives.cached_path(each, cache_dir).is_file())
    return Plan(
        tuple(projects),
        download_bytes=sum(archive.num_bytes for archive in missing),
        corpus_bytes=sum(project.measured.num_bytes for project in projects),
    )


def _check_space(needs: Mapping[Path, int]) -> None:
    """Raises OutputError if a disk lacks the space; `needs` are bytes by folder."""
    for _, group in itertools.groupby(sorted(needs, key=_device), key=_device):
        folders = list(group)
        needed = sum(needs[folder] for folder in folders)
        free = shutil.disk_usage(nearest_folder(folders[0])).free
        if needed > free:
            raise OutputError(
                f"{folders[0]}: {needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free; free some space, or "
                "give other folders (--output_dir, --cache_dir)"
            )


def _device(folder: Path) -> int:
    return nearest_folder(folder).stat().st_dev


def _prepare_sources(project: manifest.Project, root: Path) -> list[str]:
    """Writes the generated files and lists the sources to compile."""
    if not root.is_dir():
        raise CorpusError(f"project {project.name}: its archive has no folder {project.root!r}")
    for name, content in project.generated.items():
        if isinstance(content, manifest.Template):
            template = (root / content.template).read_text(encoding="utf-8")
            content = manifest.configure(template, content.values)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    sources = project.select(paths)
    if not sources:
        raise CorpusError(f"project {project.name}: no file of its archive matches 'sources'")
    return sources


def _describe(corpus_dir: Path, projects: Sequence[manifest.Project]) -> None:
    """Writes the description of a split from the descriptions of its projects."""
    modules: list[str] = []
    versions = []
    for project in projects:
        part = description.Corpus.load(corpus_dir / project.name)
        modules += [f"{project.name}/{module.name}" for module in part.modules]
        if part.compiler is not None and part.compiler.get("version"):
            versions.append(part.compiler["version"])
    write_description(
        corpus_dir, modules, projects=[project.name for project in projects], version=max(versions, default=None)
    )


def _is_complete(target: Path, stamp: Mapping[str, Any]) -> bool:
    """Whether a project's corpus exists and is up to date; raises OutputError if the folder is something else."""
    if not target.exists():
        return False
    try:
        found = json.loads((target / _STAMP_NAME).read_bytes())
    except ValueError:
        return False
    except OSError:
        raise OutputError(f"{target}: is not a part of a ready-made corpus; give another --output_dir") from None
    if found != stamp:
        return False
    try:
        # A loss of power may leave files without their contents.
        for module in description.Corpus.load(target).modules:
            module.recorded_options()
    except CorpusError as error:
        _LOG.warning("%s; %s is built again", error, target)
        return False
    return True


def _is_object(path: Path) -> bool:
    """Whether an object exists and its first and last blocks are not zeros, as after a loss of power."""
    try:
        with path.open("rb") as file:
            head = file.read(_BLOCK_BYTES)
            file.seek(max(0, path.stat().st_size - _BLOCK_BYTES))
            return any(head) and any(file.read())
    except OSError:
        return False


def _compiler_version(clang: Path | str) -> str:
    """The first line of `clang --version`."""
    result = processes.run([str(clang), "--version"], timeout_s=60)
    if not result.ok or not result.stdout:
        raise CorpusError(f"{clang}: expected a version from --version: {result.describe()}; give a clang >= 17")
    return result.stdout.decode("utf-8", "replace").splitlines()[0]
