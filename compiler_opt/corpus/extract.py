"""Makes a corpus of a build whose objects carry their own bitcode and command line.

Such a build is compiled with `-Xclang -fembed-bitcode=all`: clang puts the bitcode from before optimisation into
section `.llvmbc` and the cc1 options, each ended by NUL, into `.llvmcmd`. Names and layout are those of LLVM's
mlgo-utils. An object that a linker made of several (`ld -r`) becomes the modules `X.o.0`, `X.o.1`, ...

The objects are those that `builds` finds in a description of the build; what ThinLTO needs is in `thinlto.py`.
"""

import concurrent.futures
import dataclasses
import errno
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import bitcode, description, thinlto
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.sections import BITCODE_SECTION, COMMAND_SECTION, Embedded, Reader
from compiler_opt.errors import CorpusError, OutputError, ProtocolError
from compiler_opt.files import check_folder_writable, write_atomically

_Version = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Extraction:
    """What became of the objects of a build.

    Attributes:
      modules: names of the modules in the corpus, sorted.
      filtered: how many were left out by the command filter.
      failures: object and reason of those that have no usable bitcode.
    """

    modules: tuple[str, ...]
    filtered: int
    failures: tuple[tuple[Path, str], ...]


@dataclasses.dataclass(frozen=True)
class _Extracted:
    """What became of one object: names and LLVM versions of its modules, and how many the filter left out."""

    modules: dict[str, _Version | None]
    filtered: int


def extract(
    objects: Sequence[ObjectFile],
    output_dir: Path,
    *,
    num_workers: int = 1,
    cmd_filter: str | None = None,
    llvm_objcopy: Path | None = None,
    bitcode_section: str = BITCODE_SECTION,
    command_section: str = COMMAND_SECTION,
    thinlto_base: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> Extraction:
    """Writes the modules of `objects` as a corpus; its description comes last, so a part of a corpus never looks whole.

    Args:
      objects: what to read.
      output_dir: the corpus folder.
      num_workers: objects read at a time.
      cmd_filter: keep only modules with an option in which this regular expression is found.
      llvm_objcopy: read sections with this program, for objects that are not ELF; by default we read them ourselves.
      bitcode_section: section with the bitcode.
      command_section: section with the options.
      thinlto_base: the objects are those of the backends of a distributed ThinLTO build, which ran in this folder: the
        ThinLTO index of each is taken along.
      overwrite: write into a folder that is not empty.
      progress: called with 1 for each object done.

    Raises:
      CorpusError: no object has a usable module, or the filter is no regular expression.
      OutputError: the folder cannot be written, or is not empty.
    """
    pattern = compiled_filter(cmd_filter)
    reader = Reader(bitcode_section, command_section, llvm_objcopy)
    writer = CorpusWriter(output_dir, overwrite)
    taken = {item.name for item in objects}

    def extract_one(item: ObjectFile) -> _Extracted:
        try:
            modules: dict[str, _Version | None] = {}
            compilations = reader.read(item)
            for number, compilation in enumerate(compilations):
                name = item.name if len(compilations) == 1 else f"{item.name}.{number}"
                if len(compilations) > 1 and name in taken:
                    raise CorpusError(
                        f"{item.shown}: holds several modules, of which {name} is another object's; extract it alone"
                    )
                if pattern is None or any(pattern.search(option) for option in compilation.options):
                    index = (
                        None if thinlto_base is None else thinlto.read_index(item, compilation.options, thinlto_base)
                    )
                    modules[name] = _write_module(writer, name, compilation, index)
            return _Extracted(modules, len(compilations) - len(modules))
        finally:
            progress(1)

    versions: dict[str, _Version | None] = {}
    failures: list[tuple[Path, str]] = []
    filtered = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, num_workers)) as pool:
        tasks = [pool.submit(extract_one, item) for item in objects]
        try:
            for item, task in zip(objects, tasks, strict=True):
                try:
                    extracted = task.result()
                except (CorpusError, ProtocolError) as error:
                    failures.append((item.path, str(error)))
                else:
                    versions.update(extracted.modules)
                    filtered += extracted.filtered
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if not versions:
        raise CorpusError(_nothing_extracted(objects, filtered, failures))
    modules = sorted(versions)
    newest = max((version for version in versions.values() if version is not None), default=None)
    write_description(output_dir, modules, version=newest, has_thinlto=thinlto_base is not None)
    return Extraction(tuple(modules), filtered, tuple(failures))


def compiled_filter(cmd_filter: str | None) -> re.Pattern[str] | None:
    """Compiles a regular expression; raises CorpusError when it is none."""
    try:
        return re.compile(cmd_filter) if cmd_filter is not None else None
    except re.error as error:
        raise CorpusError(f"--cmd_filter: {cmd_filter!r} is no regular expression ({error})") from None


def write_description(
    output_dir: Path,
    modules: Iterable[str],
    *,
    projects: Iterable[str] = (),
    version: Sequence[int] | None = None,
    has_thinlto: bool = False,
    command_override: Sequence[str] | None = None,
) -> None:
    """Writes `corpus_description.json`, whole or not at all.

    Args:
      output_dir: the corpus folder.
      modules: names.
      projects: names of the projects that the modules' names start with.
      version: of the newest LLVM that wrote any of the bitcode.
      has_thinlto: each module has a ThinLTO index.
      command_override: cc1 options of all modules, which have none of their own.

    Raises:
      OutputError: the folder cannot be written.
    """
    content: dict[str, Any] = {"modules": list(modules), "has_thinlto": has_thinlto}
    if command_override is not None:
        content["global_command_override"] = list(command_override)
    if projects := list(projects):
        content["projects"] = projects
    if version is not None:
        content["compiler"] = {"version": list(version)}
    write_atomically(output_dir / description.DESCRIPTION_NAME, (json.dumps(content, indent=1) + "\n").encode())


class CorpusWriter:
    """Writes the files of modules into a folder, and never outside of it.

    Args:
      output_dir: the corpus folder; made with the first module.
      overwrite: it may hold something already; what is there stops being a corpus at once.

    Raises:
      OutputError: the folder cannot be written, or is not empty.
    """

    def __init__(self, output_dir: Path, overwrite: bool = False) -> None:
        self._output_dir = output_dir
        self._root = output_dir.resolve()
        self._folders: set[Path] = set()
        check_folder_writable(output_dir)
        if not output_dir.is_dir():
            return
        try:
            if not overwrite and any(output_dir.iterdir()):
                raise OutputError(f"{output_dir}: is not empty; give another --output_dir, or --overwrite")
            # What is there stops being a corpus before the first module changes.
            (output_dir / description.DESCRIPTION_NAME).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(output_dir, error) from None

    def write(self, module: str, suffix: str, content: bytes) -> None:
        """Writes a file of a module whole or not at all.

        Raises:
          CorpusError: the module has a name that no file can have.
          OutputError: it cannot be written.
        """
        path = self._output_dir / f"{description.check_name(module)}{suffix}"
        temporary = path.with_name(f".{path.name}.partial")
        try:
            self._make_folder(path.parent)
            temporary.unlink(missing_ok=True)
            # Never through a link that stands there already.
            with temporary.open("xb") as file:
                file.write(content)
            temporary.replace(path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise CorpusError(f"module {module[:80]!r}...: its name is too long for a file") from None
            temporary.unlink(missing_ok=True)
            raise _unwritable(path, error) from None

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        if not folder.resolve().is_relative_to(self._root):
            raise OutputError(f"{folder}: is a link that leaves {self._output_dir}; give another --output_dir")
        folder.mkdir(parents=True, exist_ok=True)
        self._folders.add(folder)


def _write_module(writer: CorpusWriter, name: str, compilation: Embedded, index: bytes | None) -> _Version | None:
    """Writes one module; returns the version of the LLVM that wrote it, where the bitcode says."""
    writer.write(name, ".bc", compilation.code)
    writer.write(name, ".cmd", description.format_options(compilation.options))
    if index is not None:
        writer.write(name, ".thinlto.bc", index)
    return bitcode.producer_version(compilation.code[: bitcode.HEAD_BYTES])


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written ({error.strerror}); give another --output_dir")


def _nothing_extracted(objects: Sequence[ObjectFile], filtered: int, failures: Sequence[tuple[Path, str]]) -> str:
    if failures:
        return f"none of the {len(objects)} objects holds a module; the first: {failures[0][1]}"
    if filtered:
        return f"--cmd_filter leaves out all {filtered} modules; give another one"
    return "there is no object to extract; give a build that has any"
