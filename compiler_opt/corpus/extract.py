"""Makes a corpus of a build whose objects carry their own bitcode and command line.

Such a build is compiled with `-Xclang -fembed-bitcode=all`: clang puts the bitcode from before optimisation into
section `.llvmbc` and the cc1 options, each ended by NUL, into `.llvmcmd`. Names and layout are those of LLVM's
mlgo-utils.
"""

import concurrent.futures
import dataclasses
import io
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from compiler_opt.corpus import bitcode, description
from compiler_opt.errors import CorpusError, OutputError, ProtocolError
from compiler_opt.files import check_folder_writable, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.scratch import scratch_directory

BITCODE_SECTION = ".llvmbc"
COMMAND_SECTION = ".llvmcmd"

MAX_DATABASE_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class ObjectFile:
    """An object of the build, and the module name it gets."""

    path: Path
    name: str


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


class _FilteredOut(Exception):  # noqa: N818
    """The command filter says no."""


@dataclasses.dataclass(frozen=True)
class CompileCommand:
    """An entry of a compilation database that makes an object.

    Attributes:
      directory: where it runs.
      file: the source, as the entry has it.
      arguments: the command; empty when the entry only names what it makes.
      output: the object.
    """

    directory: Path
    file: str
    arguments: tuple[str, ...]
    output: Path


def commands_of_database(path: Path) -> list[CompileCommand]:
    """The commands of a `compile_commands.json` that make objects, in its order.

    Args:
      path: the compilation database; entries have `command` or `arguments`, and may have `output`.

    Raises:
      CorpusError: the file is no compilation database.
    """
    commands = []
    for number, entry in enumerate(_read_database(path)):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            raise CorpusError(f"{where}: expected an object with 'directory', 'file' and 'command' or 'arguments'")
        # Relative directories are relative to the database.
        directory = path.parent.absolute() / str(entry.get("directory", "."))
        arguments = _arguments_of(entry, where)
        output = _output_of(entry, arguments)
        if output is not None:
            object_path = Path(os.path.normpath(directory / output))
            commands.append(CompileCommand(directory, entry["file"], arguments, object_path))
    return commands


def objects_of_database(path: Path, base: Path | None = None) -> list[ObjectFile]:
    """The objects that a `compile_commands.json` makes, in its order, each once.

    Args:
      path: the compilation database; entries have `command` or `arguments`, and may have `output`.
      base: the folder that module names are relative to; by default the `directory` of each entry.

    Raises:
      CorpusError: the file is no compilation database, or an object lies outside of the base folder.
    """
    objects: dict[str, ObjectFile] = {}
    for command in commands_of_database(path):
        object_path = command.output
        root = Path(os.path.normpath(command.directory if base is None else base.absolute()))
        if not object_path.is_relative_to(root):
            raise CorpusError(
                f"{path}: {object_path} is outside of {root}; give the folder of all objects with --obj_base_dir"
            )
        name = PurePosixPath(object_path.relative_to(root)).as_posix()
        known = objects.setdefault(name, ObjectFile(object_path, name))
        if known.path != object_path:
            raise CorpusError(
                f"{path}: {known.path} and {object_path} would both be module {name}; "
                "give the folder of all objects with --obj_base_dir"
            )
    return list(objects.values())


def extract(
    objects: Sequence[ObjectFile],
    output_dir: Path,
    *,
    num_workers: int = 1,
    cmd_filter: str | None = None,
    llvm_objcopy: Path | None = None,
    bitcode_section: str = BITCODE_SECTION,
    command_section: str = COMMAND_SECTION,
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
      overwrite: write into a folder that is not empty.
      progress: called with 1 for each object done.

    Raises:
      CorpusError: no object has a usable module, or the filter is no regular expression.
      OutputError: the folder cannot be written, or is not empty.
    """
    try:
        pattern = re.compile(cmd_filter) if cmd_filter is not None else None
    except re.error as error:
        raise CorpusError(f"--cmd_filter: {cmd_filter!r} is no regular expression ({error})") from None
    _prepare_output(output_dir, overwrite)

    def extract_one(item: ObjectFile) -> tuple[int, int, int] | None:
        try:
            if llvm_objcopy is None:
                sections = _read_sections(item.path, (bitcode_section, command_section))
            else:
                sections = _dump_sections(item.path, (bitcode_section, command_section), llvm_objcopy)
            return _write_module(item, sections[0], sections[1], pattern, output_dir)
        finally:
            progress(1)

    modules: list[str] = []
    versions: list[tuple[int, int, int]] = []
    failures: list[tuple[Path, str]] = []
    filtered = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, num_workers)) as pool:
        tasks = [pool.submit(extract_one, item) for item in objects]
        try:
            for item, task in zip(objects, tasks, strict=True):
                try:
                    version = task.result()
                except _FilteredOut:
                    filtered += 1
                except (CorpusError, ProtocolError) as error:
                    failures.append((item.path, str(error)))
                else:
                    modules.append(item.name)
                    if version is not None:
                        versions.append(version)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if not modules:
        raise CorpusError(_nothing_extracted(objects, filtered, failures))
    modules.sort()
    write_description(output_dir, modules, version=max(versions, default=None))
    return Extraction(tuple(modules), filtered, tuple(failures))


def write_description(
    output_dir: Path,
    modules: Iterable[str],
    *,
    projects: Iterable[str] = (),
    version: Sequence[int] | None = None,
) -> None:
    """Writes `corpus_description.json`, whole or not at all.

    Args:
      output_dir: the corpus folder.
      modules: names.
      projects: names of the projects that the modules' names start with.
      version: of the newest LLVM that wrote any of the bitcode.

    Raises:
      OutputError: the folder cannot be written.
    """
    content: dict[str, Any] = {"modules": list(modules), "has_thinlto": False}
    if projects := list(projects):
        content["projects"] = projects
    if version is not None:
        content["compiler"] = {"version": list(version)}
    write_atomically(output_dir / description.DESCRIPTION_NAME, (json.dumps(content, indent=1) + "\n").encode())


def _read_database(path: Path) -> list[Any]:
    try:
        if path.stat().st_size > MAX_DATABASE_BYTES:
            raise CorpusError(f"{path}: expected at most {MAX_DATABASE_BYTES} bytes, found more")
        # Paths are bytes: those that are not UTF-8 travel as lone surrogates, as everywhere in Python.
        entries = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be read ({error.strerror}); give the compile_commands.json of a build, as written by "
            "CMake with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected JSON, found something else ({error})") from None
    if not isinstance(entries, list):
        raise CorpusError(f"{path}: expected a JSON list of compile commands, found {type(entries).__name__}")
    return entries


def _arguments_of(entry: dict[str, Any], where: str) -> tuple[str, ...]:
    """The command of a database entry; empty when it has none but says what it makes."""
    arguments = entry.get("arguments")
    if arguments is None:
        command = entry.get("command")
        if command is None and isinstance(entry.get("output"), str):
            return ()
        if not isinstance(command, str):
            raise CorpusError(f"{where}: expected 'command' or 'arguments'")
        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise CorpusError(f"{where}: 'command' cannot be split into words ({error})") from None
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        raise CorpusError(f"{where}: 'arguments': expected a list of words")
    return tuple(arguments)


def _output_of(entry: dict[str, Any], arguments: Sequence[str]) -> str | None:
    """The object that a database entry makes, as it says; None when it makes none (only preprocesses, links...)."""
    if isinstance(entry.get("output"), str):
        return entry["output"]
    if "-c" not in arguments:
        return None
    for index, argument in enumerate(arguments):
        if argument == "-o" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("-o") and len(argument) > 2 and not argument.startswith("-object"):
            return argument[2:]
    return PurePosixPath(entry["file"]).stem + ".o"


def _prepare_output(output_dir: Path, overwrite: bool) -> None:
    """Sees that the folder can be written; it is made with the first module."""
    check_folder_writable(output_dir)
    if not output_dir.is_dir():
        return
    try:
        if not overwrite and any(output_dir.iterdir()):
            raise OutputError(f"{output_dir}: is not empty; give another --output_dir, or --overwrite")
        # What is there stops being a corpus before the first module changes.
        (output_dir / description.DESCRIPTION_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{output_dir}: cannot be written ({error.strerror}); give another --output_dir") from None


def _read_sections(path: Path, names: Sequence[str]) -> list[bytes]:
    """The contents of these sections of an ELF object, empty for one that it does not have."""
    elf = ElfFile.read(path)
    return [b"".join(elf.section_bytes(index) for index in elf.sections_named(name)) for name in names]


def _dump_sections(path: Path, names: Sequence[str], llvm_objcopy: Path) -> list[bytes]:
    """The same by `llvm-objcopy`, which knows other formats too."""
    contents = []
    with scratch_directory() as scratch:
        for name in names:
            target = scratch / "section"
            command = [str(llvm_objcopy), f"--dump-section={name}={target}", str(path), os.devnull]
            result = processes.run(command)
            if not result.ok and "not found" not in result.stderr_tail:
                raise CorpusError(f"{path}: {result.describe()}")
            contents.append(target.read_bytes() if result.ok else b"")
            target.unlink(missing_ok=True)
    return contents


def _write_module(
    item: ObjectFile, code: bytes, command: bytes, pattern: re.Pattern[str] | None, output_dir: Path
) -> tuple[int, int, int] | None:
    """Checks and writes one module; returns the version of the LLVM that wrote it, where the bitcode says."""
    if not code or not command:
        missing = " and ".join(
            name for name, content in ((BITCODE_SECTION, code), (COMMAND_SECTION, command)) if not content
        )
        raise CorpusError(f"{item.path}: has no section {missing}; compile with -Xclang -fembed-bitcode=all")
    if wrong := bitcode.problem(io.BytesIO(code), len(code)):
        raise CorpusError(f"{item.path}: {BITCODE_SECTION}: {wrong}; compile it again")
    try:
        options = description.parse_options(command)
    except CorpusError as error:
        raise CorpusError(f"{item.path}: {COMMAND_SECTION}: {error}; compile it again") from None
    if options.count("-cc1") > 1:
        raise CorpusError(
            f"{item.path}: holds the code of several compilations (ld -r); give the objects it was made of"
        )
    if pattern is not None and not any(pattern.search(option) for option in options):
        raise _FilteredOut
    name = description.check_name(item.name)
    _write(output_dir / f"{name}.bc", code)
    _write(output_dir / f"{name}.cmd", description.format_options(options))
    return bitcode.producer_version(code[: bitcode.HEAD_BYTES])


def _write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error.strerror}); give another --output_dir") from None


def _nothing_extracted(objects: Sequence[ObjectFile], filtered: int, failures: Sequence[tuple[Path, str]]) -> str:
    if failures:
        return f"none of the {len(objects)} objects holds a module; the first: {failures[0][1]}"
    if filtered:
        return f"--cmd_filter leaves out all {filtered} modules; give another one"
    return "there is no object to extract; give a build that has any"
