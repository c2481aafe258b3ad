"""Lists the objects of a compilation database (`compile_commands.json`)."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from compiler_opt.checked_values import convert
from compiler_opt.corpus.builds import response_files
from compiler_opt.corpus.builds.objects import ObjectFile, name_below, normal, unique
from compiler_opt.corpus.validation import checked_path, read_json
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_DATABASE_BYTES = 1 << 30

WANTED = "the compile_commands.json of a build, as written by CMake with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or by bear"

_COMPILES = frozenset({"-c", "--compile"})
_MAKES_NO_OBJECT = frozenset({"-E", "-S", "-M", "-MM", "-fsyntax-only", "--preprocess", "--assemble"})


class _Entry(msgspec.Struct):
    """The keys that we read; others are ignored."""

    file: str
    directory: str | None = None
    command: str | None = None
    arguments: list[str] | None = None
    output: str | None = None


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

    Entries have `command` or `arguments`, and may have `output`. Compiler launchers such as ccache make no difference.
    Missing response files are not expanded.

    Raises:
      CorpusError: the file is not a compilation database, or a response file includes itself or is too large.
    """
    commands = []
    for number, value in enumerate(read_json(path, list[Any], MAX_DATABASE_BYTES, WANTED)):
        where = f"{path}: entry {number}"
        try:
            entry = convert(value, _Entry)
        except ValueError as error:
            raise CorpusError(f"{where}: {error}; give {WANTED}") from None
        file = checked_path(entry.file, f"{where}: 'file'")
        # Relative directories are relative to the database.
        directory = path.parent.absolute() / checked_path(entry.directory or ".", f"{where}: 'directory'")
        arguments = tuple(response_files.expand(_arguments_of(entry, where), directory, where))
        # CMake 3.31 writes 'output' relative to another folder than the command is run in, so the command is believed.
        output = _output_of(file, arguments) or entry.output
        if output is not None:
            object_path = normal(directory / checked_path(output, f"{where}: the object"))
            commands.append(CompileCommand(directory, file, arguments, object_path))
    return commands


def objects_of_database(path: Path, base: Path | None = None) -> list[ObjectFile]:
    """Lists the objects that a `compile_commands.json` makes, in its order, each once; see `commands_of_database`.

    Module names are relative to `base`, by default the `directory` of each entry.

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


def _arguments_of(entry: _Entry, where: str) -> Sequence[str]:
    """The command of a database entry; empty if it has only an output."""
    if entry.arguments is not None:
        return entry.arguments
    if entry.command is None:
        if entry.output is None:
            raise CorpusError(f"{where}: expected 'command' or 'arguments'; give {WANTED}")
        return ()
    try:
        return shlex.split(entry.command)
    except ValueError as error:
        raise CorpusError(f"{where}: 'command' cannot be split into words ({error}); fix it") from None


def _output_of(file: str, arguments: Sequence[str]) -> str | None:
    """The object that a command makes, as written there; None if it makes none (preprocessing, linking)."""
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
