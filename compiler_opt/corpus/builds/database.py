"""Lists the objects of a compilation database (`compile_commands.json`)."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from compiler_opt.corpus.builds import response_files
from compiler_opt.corpus.builds.objects import (
    ObjectFile,
    checked_path,
    name_below,
    normal,
    unique,
)
from compiler_opt.corpus.builds.reading import read_json
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_DATABASE_BYTES = 1 << 30

WANTED = "the compile_commands.json of a build, as written by CMake with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or by bear"

_COMPILES = frozenset({"-c", "--compile"})
_MAKES_NO_OBJECT = frozenset({"-E", "-S", "-M", "-MM", "-fsyntax-only", "--preprocess", "--assemble"})


@dataclasses.dataclass(frozen=True)
class CompileCommand:
    """An entry of a compilation database that makes an object.

    Attributes:
      directory: its working directory.
      file: the source, as in the entry.
      arguments: the command with response files expanded; empty if the entry has only an output.
      output: the object.
    """

    directory: Path
    file: str
    arguments: tuple[str, ...]
    output: Path


def commands_of_database(path: Path) -> list[CompileCommand]:
    """The commands of a `compile_commands.json` that make objects, in its order.

    Args:
      path: the compilation database; entries have `command` or `arguments`, and may have `output`. Compiler launchers
        such as ccache make no difference. Missing response files are not expanded.

    Raises:
      CorpusError: the file is not a compilation database, or a response file includes itself or is too large.
    """
    commands = []
    for number, entry in enumerate(_read_database(path)):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            raise CorpusError(f"{where}: expected an object with 'directory', 'file' and 'command' or 'arguments'")
        file = checked_path(entry["file"], f"{where}: 'file'")
        # Relative directories are relative to the database.
        directory = path.parent.absolute() / checked_path(entry.get("directory") or ".", f"{where}: 'directory'")
        arguments = tuple(response_files.expand(_arguments_of(entry, where), directory, where))
        output = _output_of(entry, file, arguments)
        if output is not None:
            object_path = normal(directory / checked_path(output, f"{where}: the object"))
            commands.append(CompileCommand(directory, file, arguments, object_path))
    return commands


def objects_of_database(path: Path, base: Path | None = None) -> list[ObjectFile]:
    """Lists the objects that a `compile_commands.json` makes, in its order, each once.

    Args:
      path: the compilation database, see `commands_of_database`.
      base: the folder that module names are relative to; by default the `directory` of each entry.

    Raises:
      CorpusError: the file is not a compilation database, or an object is outside the base folder.
    """
    objects = []
    for command in commands_of_database(path):
        root = normal(command.directory if base is None else base)
        name = name_below(root, command.output)
        if name is None:
            raise CorpusError(
                f"{path}: {printable(command.output)} is outside of {printable(root)}; "
                "give the folder of all objects with --obj_base_dir"
            )
        objects.append(ObjectFile(command.output, name))
    return list(unique(objects, str(path)))


def _read_database(path: Path) -> list[Any]:
    entries = read_json(path, MAX_DATABASE_BYTES, WANTED)
    if not isinstance(entries, list):
        raise CorpusError(f"{path}: expected a JSON list of compile commands, found {type(entries).__name__}")
    return entries


def _arguments_of(entry: dict[str, Any], where: str) -> Sequence[str]:
    """The command of a database entry; empty if it has only an output."""
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
        raise CorpusError(f"{where}: 'arguments': expected a list of strings")
    return arguments


def _output_of(entry: dict[str, Any], file: str, arguments: Sequence[str]) -> str | None:
    """The object that a database entry makes, as written there; None if it makes none (preprocessing, linking)."""
    if isinstance(entry.get("output"), str):
        return entry["output"]
    if not _COMPILES.intersection(arguments) or _MAKES_NO_OBJECT.intersection(arguments):
        return None
    output = None
    for index, argument in enumerate(arguments):
        if argument in ("-o", "--output") and index + 1 < len(arguments):
            output = arguments[index + 1]
        elif argument.startswith("--output="):
            output = argument.removeprefix("--output=")
        elif argument.startswith("-o") and len(argument) > 2 and not argument.startswith(("-object", "-objcmt")):
            output = argument[2:]
    return output or PurePosixPath(file).stem + ".o"
