"""Lists the objects of a compilation database (`compile_commands.json`).

Databases also list what makes no object: `ninja -t compdb` has links, archives and phony targets. A command is judged
by its compiler's options alone, see `commands.py`. What is left out is listed by reason.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from compiler_opt.checked_values import convert
from compiler_opt.corpus.builds import commands, response_files
from compiler_opt.corpus.builds.commands import Command
from compiler_opt.corpus.builds.objects import OBJECT_SUFFIXES, Build, ObjectFile, name_below, normal, unique
from compiler_opt.corpus.validation import checked_path, read_json
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_DATABASE_BYTES = 1 << 30

WANTED = "the compile_commands.json of a build, as written by CMake with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or by bear"

LINKS = "entries that link"
PHONY = "entries without a command"
NO_COMPILATION = "entries that compile nothing"
FRONT_END = "entries of clang's front end (-cc1), which the driver's entries start"
NO_OBJECT = "entries that preprocess, check or write assembly"
HEADERS = "precompiled headers"
REPEATED = "entries whose object a later entry makes again"
CLANG_CL = "entries of clang-cl, whose options (/c /Fo) are not read: compile with clang's own driver"

_COMPILES = frozenset({"-c", "--compile"})
_MAKES_NO_OBJECT = frozenset(
    """
    -E -S -M -MM -fsyntax-only --preprocess --assemble --precompile --analyze -emit-ast -extract-api -verify-pch
    -rewrite-objc -rewrite-legacy-objc -module-file-info -print-supported-cpus -### --dependencies --user-dependencies
    --syntax-only
    """.split()
)
_WORKING_DIRECTORY = "-working-directory"
_HEADER_LANGUAGE = re.compile(r"(c|c\+\+|objective-c|objective-c\+\+)-header|c\+\+-(system|user)-header")
_HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".h++", ".H", ".hp")
_NO_SOURCES = (*OBJECT_SUFFIXES, ".a", ".so", ".lib", ".dylib")


class _Entry(msgspec.Struct):
    """The keys that we read; others are ignored."""

    file: str
    directory: str | None = None
    command: str | None = None
    arguments: list[str] | None = None
    output: str | None = None


@dataclasses.dataclass(frozen=True)
class CompileCommand(Command):
    """An entry of a compilation database that makes an object or a precompiled header.

    Attributes:
      directory: the folder that the compiler runs in.
      words: the compiler and its arguments, with response files expanded; empty if the entry has only an output.
      base: the folder that the entry names, `directory` unless the command changes it.
      file: the source, as in the entry.
      output: what it makes.
    """

    base: Path
    file: str
    output: Path

    @property
    def source(self) -> Path:
        """The path of the source, also with `-working-directory`."""
        return normal(self.directory / (working_directory(self.words) or "") / self.file)


@dataclasses.dataclass(frozen=True)
class Database:
    """A compilation database.

    Attributes:
      commands: those that make objects, in its order, one for each object.
      headers: those that precompile headers.
      skipped: what other entries make, or their files, by reason.
    """

    commands: tuple[CompileCommand, ...]
    headers: tuple[CompileCommand, ...]
    skipped: Mapping[str, Sequence[str]]


def read_database(path: Path) -> Database:
    """Reads a `compile_commands.json`.

    Entries have `command` or `arguments`, and may have `output`. Missing response files are not expanded.

    Raises:
      CorpusError: the file is not a compilation database, or a response file includes itself or is too large.
    """
    made: dict[str, dict[Path, CompileCommand]] = {"": {}, HEADERS: {}}
    skipped: dict[str, list[str]] = {}
    resolved: dict[Path, Path] = {}
    for number, value in enumerate(read_json(path, list[Any], MAX_DATABASE_BYTES, WANTED)):
        where = f"{path}: entry {number}"
        try:
            entry = convert(value, _Entry)
        except ValueError as error:
            raise CorpusError(f"{where}: {error}; give {WANTED}") from None
        file = checked_path(entry.file, f"{where}: 'file'")
        # Relative directories are relative to the database.
        base = path.parent.absolute() / checked_path(entry.directory or ".", f"{where}: 'directory'")
        reason, command, output = _outcome(entry, base, where)
        if reason not in made:
            skipped.setdefault(reason, []).append(output or entry.output or file)
            continue
        output = checked_path(output, f"{where}: the object")
        target = normal(command.directory / output)
        if target.parent not in resolved:
            resolved[target.parent] = Path(os.path.realpath(target.parent))
        key = resolved[target.parent] / target.name  # The same object, also by way of a linked folder.
        if key in made[reason]:
            skipped.setdefault(REPEATED, []).append(output)
        made[reason][key] = CompileCommand(command.directory, command.words, base, file, target)
    return Database(tuple(made[""].values()), tuple(made[HEADERS].values()), skipped)


def objects_of_database(path: Path, base: Path | None = None) -> Build:
    """Lists the objects that a `compile_commands.json` makes, in its order, each once; see `read_database`.

    Module names are relative to `base`, by default the `directory` of each entry.

    Raises:
      CorpusError: the file is not a compilation database, or an object is outside the base folder.
    """
    database = read_database(path)
    objects = []
    for command in database.commands:
        root = normal(command.base if base is None else base)
        name = name_below(root, command.output)
        if name is None:
            raise CorpusError(
                f"{path}: {printable(command.output)} is outside of {printable(root)}; "
                "give the folder of all objects with --obj_base_dir"
            )
        objects.append(ObjectFile(command.output, name))
    headers = {HEADERS: [str(command.output) for command in database.headers]} if database.headers else {}
    return Build(unique(objects, str(path)), {**database.skipped, **headers})


def working_directory(words: Sequence[str]) -> str | None:
    """The folder that clang's `-working-directory` names, which its inputs and outputs are relative to; None without.

    The last one counts.
    """
    found = None
    for index, word in enumerate(words):
        if word == _WORKING_DIRECTORY and index + 1 < len(words):
            found = words[index + 1]
        elif word.startswith(f"{_WORKING_DIRECTORY}="):
            found = word.partition("=")[2]
    return found


def _outcome(entry: _Entry, base: Path, where: str) -> tuple[str, Command, str]:
    """Why an entry makes no object (empty if it makes one), the command that does, and what it makes, as written."""
    nothing = Command(base, ())
    if entry.arguments is not None:
        given = commands.of_words(entry.arguments, base)
    elif entry.command is not None:
        try:
            given = commands.of_shell(entry.command, base)
        except ValueError as error:
            raise CorpusError(f"{where}: 'command' cannot be split into words ({error}); fix it") from None
    elif entry.output is None:
        raise CorpusError(f"{where}: expected 'command' or 'arguments'; give {WANTED}")
    else:
        return "", nothing, entry.output
    reasons = []
    for each in given:
        words = tuple(response_files.expand(each.words, each.directory, where))
        reason, output = _judged(Command(each.directory, words), entry.file)
        if output is not None:
            folder = working_directory(words)
            # CMake 3.31 writes 'output' relative to another folder than the command's, so the command is believed.
            return reason, Command(each.directory, words), output if folder is None else str(Path(folder, output))
        reasons.append(reason)
    if not reasons:
        return PHONY, nothing, ""
    is_object = (entry.output or "").endswith(OBJECT_SUFFIXES)
    # Some program makes an object, but a copy of an object is not another one.
    if is_object and {*reasons} == {NO_COMPILATION} and not entry.file.endswith(_NO_SOURCES):
        return "", Command(base, given[-1].words), str(entry.output)
    return next((reason for reason in reasons if reason != NO_COMPILATION), NO_COMPILATION), nothing, ""


def _judged(command: Command, file: str) -> tuple[str, str | None]:
    """What `_outcome` says of one command; the output is None unless it is an object or a precompiled header."""
    options = command.words[1:]
    if command.is_clang_cl:
        return CLANG_CL, None
    if not command.is_compiler and (command.is_linker or command.is_archiver):
        return LINKS, None
    if options[:1] in (("-cc1",), ("-cc1as",)):
        return FRONT_END, None
    if _MAKES_NO_OBJECT.intersection(options):
        return NO_OBJECT if command.is_compiler else NO_COMPILATION, None
    if _makes_header(options, file):
        return HEADERS, _output(options) or f"{file}.gch"
    if not _COMPILES.intersection(options):
        return LINKS if command.is_compiler else NO_COMPILATION, None
    output = _output(options)
    if not command.is_compiler and not (output or "").endswith(OBJECT_SUFFIXES):
        return NO_COMPILATION, None
    return "", output or PurePosixPath(file).stem + ".o"


def _makes_header(options: Sequence[str], file: str) -> bool:
    language = ""
    for index, option in enumerate(options):
        if option == "-emit-pch":
            return True
        if option.startswith("-x"):
            language = option[2:] or "".join(options[index + 1 : index + 2])
    if language not in ("", "none"):
        return _HEADER_LANGUAGE.fullmatch(language) is not None
    return file.endswith(_HEADER_SUFFIXES) and any(option.endswith(file) for option in options)


def _output(options: Sequence[str]) -> str | None:
    output = None
    for index, option in enumerate(options):
        if option in ("-o", "--output") and index + 1 < len(options):
            output = options[index + 1]
        elif option.startswith("--output="):
            output = option.removeprefix("--output=")
        elif option.startswith("-o") and len(option) > 2 and not option.startswith(("-object", "-objcmt")):
            output = option[2:]
    return output
