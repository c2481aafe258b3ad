"""Writes corpora; `description.py` documents the format."""

import concurrent.futures
import dataclasses
import errno
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.command_lines.command_line import INDEX_SUFFIX
from compiler_opt.corpus.description import DESCRIPTION_NAME
from compiler_opt.corpus.module import check_name, format_options
from compiler_opt.errors import CorpusError, OutputError, ProtocolError
from compiler_opt.files import check_folder_writable, write_atomically, write_json

_Source = TypeVar("_Source")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class MadeCorpus:
    """The outcome of making a corpus.

    Attributes:
      modules: names of the modules in the corpus, sorted.
      failures: path and reason for each input without a usable module.
      filtered: how many modules a filter dropped.
    """

    modules: tuple[str, ...]
    failures: tuple[tuple[Path, str], ...]
    filtered: int = 0


class CorpusWriter:
    """Writes a corpus into a folder, and never outside it; the description comes last, so a partial corpus has none.

    Args:
      output_dir: the corpus folder; created with the first module.
      overwrite: accept a folder that is not empty; its description is removed at once.

    Raises:
      OutputError: the folder cannot be written, or is not empty.
    """

    def __init__(self, output_dir: Path, overwrite: bool = False) -> None:
        self._output_dir = output_dir
        self._root = output_dir.resolve()
        self._folders: set[Path] = set()
        self._versions: dict[str, tuple[int, int, int] | None] = {}
        check_folder_writable(output_dir)
        if not output_dir.is_dir():
            return
        try:
            if not overwrite and any(output_dir.iterdir()):
                raise OutputError(f"{output_dir}: is not empty; give another --output_dir, or --overwrite")
            # An old corpus loses its description before its first module changes.
            (output_dir / DESCRIPTION_NAME).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"{output_dir}: cannot be written ({error.strerror}); give another --output_dir"
            ) from None

    def write_module(self, name: str, code: bytes, options: Sequence[str] | None, index: bytes | None = None) -> None:
        """Writes the files of a module; may be called from several threads.

        `options` are None if the corpus has a `global_command_override`; `index` is the ThinLTO index.

        Raises:
          CorpusError: the module's name is not a valid file name.
          OutputError: a file cannot be written.
        """
        self._write(name, ".bc", code)
        if options is not None:
            self._write(name, ".cmd", format_options(options))
        if index is not None:
            self._write(name, INDEX_SUFFIX, index)
        self._versions[name] = bitcode.producer_version(code[: bitcode.HEAD_BYTES])

    def finish(
        self,
        failures: Iterable[tuple[Path, str]],
        if_empty: str,
        *,
        filtered: int = 0,
        has_thinlto: bool = False,
        command_override: Sequence[str] | None = None,
    ) -> MadeCorpus:
        """Writes the description.

        Args:
          failures: path and reason for each input without a usable module.
          if_empty: the error message if no module was written.
          filtered: how many modules a filter dropped.
          has_thinlto: each module has a ThinLTO index.
          command_override: cc1 options of all modules, which have no `.cmd` files.

        Raises:
          CorpusError: no module was written.
          OutputError: the folder cannot be written.
        """
        made = MadeCorpus(tuple(sorted(self._versions)), tuple(failures), filtered)
        if not made.modules:
            raise CorpusError(if_empty + (f"; the first: {made.failures[0][1]}" if made.failures else ""))
        write_description(
            self._output_dir,
            made.modules,
            version=max((version for version in self._versions.values() if version is not None), default=None),
            has_thinlto=has_thinlto,
            command_override=command_override,
        )
        return made

    def _write(self, module: str, suffix: str, content: bytes) -> None:
        path = self._output_dir / f"{check_name(module)}{suffix}"
        folder = path.parent
        if folder not in self._folders:
            if not folder.resolve().is_relative_to(self._root):
                raise OutputError(f"{folder}: is a link that leaves {self._output_dir}; give another --output_dir")
            self._folders.add(folder)
        try:
            # Waiting for the disk after each of thousands of small files would take longer than extracting them.
            write_atomically(path, content, durable=False)
        except OutputError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG:
                raise CorpusError(f"module {module[:80]!r}...: its name is too long for a file") from None
            raise


def map_with_failures(
    work: Callable[[_Source], _Result],
    sources: Sequence[_Source],
    num_workers: int = 1,
    progress: Callable[[int], Any] = lambda _: None,
) -> tuple[list[_Result], list[tuple[_Source, str]]]:
    """Maps `work` over the sources, collecting failures instead of stopping.

    `work` raises CorpusError or ProtocolError for a source without a usable module; `progress` is called with 1 for
    each source done. Returns the results, in order, and the sources that failed, with the reason.
    """

    def work_one(source: _Source) -> _Result | CorpusError | ProtocolError:
        try:
            return work(source)
        except (CorpusError, ProtocolError) as error:
            return error
        finally:
            progress(1)

    with concurrent.futures.ThreadPoolExecutor(max(1, num_workers)) as pool:
        # When one raises something else, `map` cancels the rest.
        outcomes = list(zip(sources, pool.map(work_one, sources), strict=True))
    results = [outcome for _, outcome in outcomes if not isinstance(outcome, CorpusError | ProtocolError)]
    return results, [(source, str(outcome)) for source, outcome in outcomes if isinstance(outcome, Exception)]


def write_description(
    output_dir: Path,
    modules: Iterable[str],
    *,
    projects: Iterable[str] = (),
    version: Sequence[int] | None = None,
    has_thinlto: bool = False,
    command_override: Sequence[str] | None = None,
) -> None:
    """Writes `corpus_description.json` atomically; raises OutputError if the folder cannot be written.

    `projects` are names that prefix the modules' names; `version` is that of the newest LLVM that wrote any bitcode. A
    corpus with a `command_override` (cc1 options of all modules) has no `.cmd` files.
    """
    content: dict[str, Any] = {"modules": list(modules), "has_thinlto": has_thinlto}
    if command_override is not None:
        content["global_command_override"] = list(command_override)
    if projects := list(projects):
        content["projects"] = projects
    if version is not None:
        content["compiler"] = {"version": list(version)}
    write_json(output_dir / DESCRIPTION_NAME, content)
