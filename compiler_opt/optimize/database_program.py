"""A program given by its compilation database and its link commands, for build systems other than CMake.

The commands run with another compiler and other options, and write into other folders. Nothing is written into the
user's build; sources that it generates must exist.

Written as a ninja file, the same commands would need ninja, which such users may lack, a writer that quotes them, and a
reader of its progress; and it has no time limit for each command. All compile at once, so there is no order to find.
"""

import contextlib
import hashlib
import json
import os
import re
import select
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.builds import commands, response_files
from compiler_opt.corpus.builds.database import CompileCommand, read_database, working_directory
from compiler_opt.corpus.builds.objects import ObjectFile, listed
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import processes
from compiler_opt.optimize.program import (
    CXX_SUFFIXES,
    Compilers,
    Kind,
    Program,
    Source,
    Target,
    Variant,
    build_environment,
    c_commands,
    source_key,
)

_OTHER_OUTPUTS = frozenset(("-MD", "-MMD", "-MP", "-MG", "-save-temps", "-time"))
_OTHER_OUTPUTS_TO = ("-o", "-MF", "-MT", "-MQ", "-MJ", "-serialize-diagnostics", "--serialize-diagnostics")
_OTHER_OUTPUTS_JOINED = (
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-Wp,-M",
    "-save-temps=",
    "-ftime-trace=",
    "-gen-cdb-fragment-path",
)
_MODULES = ("-fmodule-output", "-fmodule-file=", "-fprebuilt-module-path=")
_COMPILE_TIMEOUT_S = 1800.0


class _Link:
    """A command that links or archives a target."""

    def __init__(self, text: str, directory: Path):
        where = f"--link_command={text}"
        try:
            # Wrappers of the linker, such as `libtool` or `ccache`, are dropped.
            found = commands.of_shell(text, directory)
        except ValueError as error:
            raise ConfigError(f"{where}: cannot be split into words ({error})") from None
        link = next((each for each in found if each.is_compiler or each.is_archiver), None)
        if link is None:
            raise ConfigError(
                f"{where}: expected a command of a compiler driver or of ar; write what links the program"
            )
        words = response_files.expand(link.words, link.directory, where)
        self.words = [word for word in words if not word.startswith("-flto")]
        self.directory = link.directory
        self.is_cxx = link.is_cxx
        if link.is_archiver:
            self.kind, self.output_index = Kind.STATIC, 2
        else:
            self.kind = Kind.SHARED if "-shared" in self.words else Kind.EXECUTABLE
            self.output_index = self.words.index("-o") + 1 if "-o" in self.words else 0
        if not 0 < self.output_index < len(self.words):
            raise ConfigError(f"{where}: expected the name of its output (-o FILE, or ar FLAGS FILE)")
        self.output = self.path(self.words[self.output_index])

    def path(self, word: str) -> Path:
        return Path(os.path.normpath(self.directory / word))


class DatabaseProgram(Program):
    """A program given by commands."""

    def __init__(self, database: Path, link_commands: Sequence[str], jobs: int):
        """Reads the commands; those that link run in this order, in the folder of the database.

        Raises:
          ConfigError: a link command does not link, or uses no object of the database.
          CorpusError: the database is not a compilation database.
        """
        self._database = database.absolute()
        self._jobs = jobs
        entries = read_database(database)
        compiling = c_commands(entries.commands)
        if not compiling:
            others = [f"{len(names)} {what} ({listed(names)})" for what, names in entries.skipped.items()]
            found = f", but has {'; '.join(others)}" if others else ""
            raise ConfigError(f"{database}: compiles no C or C++ source{found}; there is nothing to optimise")
        self._links = [_Link(text, self._database.parent) for text in link_commands]
        if not self._links:
            raise ConfigError("--compile_commands needs --link_command, which links or archives the objects")
        base = Path(os.path.commonpath([command.output.parent for command in compiling]))
        self._names = {command.output: command.output.relative_to(base).as_posix() for command in compiling}
        self.name = self._links[-1].output.name
        for link in self._links:
            if not any(link.path(word) in self._names or self._made_before(link, word) for word in link.words):
                raise ConfigError(
                    f"--link_command={shlex.join(link.words)}: uses no object that {database} makes; expected paths "
                    f"relative to {self._database.parent}"
                )
        linked = {link.path(word) for link in self._links for word in link.words}
        self._commands = [command for command in compiling if command.output in linked]
        self._unlinked = [self._names[command.output] for command in compiling if command.output not in linked]
        headers = {header.output: header for header in entries.headers}
        self._options = {command.output: _compile_options(command, headers) for command in self._commands}

    def identity(self) -> Mapping[str, str]:
        return {
            "compile commands": f"{self._database} {hashlib.sha256(self._database.read_bytes()).hexdigest()}",
            "link commands": json.dumps([link.words for link in self._links]),
        }

    def notes(self, level: str) -> Sequence[str]:
        notes = [f"Every file is compiled at {level}, whatever level its command asks for."]
        if self._unlinked:
            notes.append(
                f"Left out: {len(self._unlinked)} objects that no --link_command uses ({listed(self._unlinked)})."
            )
        return notes

    def compilers(self) -> tuple[str, ...]:
        """The compilers of the user's build."""
        return tuple(dict.fromkeys(map(_compiler_of, self._commands)))

    def prepare(self, variant: Variant) -> None:
        variant.folder.mkdir(parents=True, exist_ok=True)

    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> None:
        log = variant.log("build")
        total = len(self._commands) + len(self._links)
        done = 0
        for done, _ in enumerate(self._compile(variant, log), 1):
            on_progress(done, total)
        for number, link in enumerate(self._links, 1):
            command = self._link_command(link, variant)
            output = self._linked(link, variant)
            output.parent.mkdir(parents=True, exist_ok=True)
            output.unlink(missing_ok=True)  # ar would add to it.
            result = processes.run_logged(command, log, cwd=link.directory, environment=build_environment())
            if not result.ok:
                raise ConfigError(f"{variant.folder}: linking failed: {result.describe()}; see {log}")
            on_progress(done + number, total)

    def _compile(self, variant: Variant, log: Path) -> Iterator[processes.ProcessResult]:
        """Compiles the objects that do not exist yet, several at a time; yields each result."""
        waiting = [command for command in self._commands if not self._object(command.output, variant).exists()]
        waiting.reverse()
        with contextlib.ExitStack() as stack:
            running: dict[int, tuple[CompileCommand, processes.Child, contextlib.ExitStack, float]] = {}
            poll = select.poll()
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    command = waiting.pop()
                    own = stack.enter_context(contextlib.ExitStack())
                    child = own.enter_context(self._start(command, variant))
                    running[child.pidfd] = (command, child, own, time.monotonic() + _COMPILE_TIMEOUT_S)
                    poll.register(child.pidfd, select.POLLIN)
                ended = {descriptor for descriptor, _ in poll.poll(1000)}
                overdue = {d for d, (_, _, _, deadline_s) in running.items() if time.monotonic() > deadline_s}
                for descriptor in ended | overdue:
                    command, child, own, _ = running.pop(descriptor)
                    poll.unregister(descriptor)
                    if descriptor not in ended:
                        child.kill()
                    result = child.wait(timed_out=descriptor not in ended)
                    own.close()
                    if not result.ok:
                        log.parent.mkdir(parents=True, exist_ok=True)
                        log.write_text(f"{shlex.join(result.command)}\n{result.stderr_tail}")
                        raise ConfigError(f"{variant.folder}: the build failed: {result.describe()}; see {log}")
                    target = self._object(command.output, variant)
                    target.with_name(f"{target.name}.partial").replace(target)
                    yield result

    @contextlib.contextmanager
    def _start(self, command: CompileCommand, variant: Variant) -> Iterator[processes.Child]:
        target = self._object(command.output, variant)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        words = [str(_driver(variant.compilers, command)), *self._options[command.output]]
        words += [*variant.options, "-o", str(partial)]
        with (
            os.fdopen(os.memfd_create("stderr", os.MFD_CLOEXEC), "w+b") as stderr,
            processes.start(
                words,
                stderr=stderr,
                max_stderr_bytes=None,
                memory_bytes=None,
                cwd=command.directory,
                environment=build_environment(),
            ) as child,
        ):
            yield child

    def _link_command(self, link: _Link, variant: Variant) -> list[str]:
        words = list(link.words)
        for index, word in enumerate(words):
            path = link.path(word)
            if path in self._names:
                words[index] = str(self._object(path, variant))
            elif made := self._made_before(link, word):
                words[index] = str(self._linked(made, variant))
        words[link.output_index] = str(self._linked(link, variant))
        if link.kind is Kind.STATIC:
            return [str(variant.compilers.ar), *words[1:]]
        compiler = variant.compilers.cxx if link.is_cxx else variant.compilers.c
        # Libraries of earlier commands are found before others.
        return [str(compiler), *variant.link_options, f"-L{variant.folder / 'linked'}", *words[1:]]

    def _made_before(self, link: _Link, word: str) -> _Link | None:
        path = link.path(word)
        for earlier in self._links:
            if earlier is link:
                return None
            if earlier.output == path or word == f"-l{_library_name(earlier.output)}":
                return earlier
        return None

    def _object(self, output: Path, variant: Variant) -> Path:
        return variant.folder / "objects" / self._names[output]

    @staticmethod
    def _linked(link: _Link, variant: Variant) -> Path:
        return variant.folder / "linked" / link.output.name

    def targets(self, variant: Variant) -> tuple[Target, ...]:
        targets = []
        for link in self._links:
            used = [made.output.name for word in link.words if (made := self._made_before(link, word))]
            artifact = self._linked(link, variant).relative_to(variant.folder).as_posix()
            if (variant.folder / artifact).is_file():
                targets.append(Target(link.output.name, link.kind, artifact, tuple(used)))
        return tuple(targets)

    def sources(self, variant: Variant) -> tuple[Source, ...]:
        owners = {link.path(word): link.output.name for link in self._links for word in link.words}
        return tuple(
            Source(
                ObjectFile(self._object(command.output, variant), self._names[command.output]),
                owners.get(command.output, ""),
                source_key(command.words, str(command.source)),
            )
            for command in self._commands
            if self._object(command.output, variant).is_file()
        )


def _compiler_of(command: CompileCommand) -> str:
    """The compiler of a command; a relative path is made absolute."""
    compiler = command.words[0]
    return str(command.directory / compiler) if os.sep in compiler else compiler


def _driver(compilers: Compilers, command: CompileCommand) -> Path:
    return compilers.cxx if command.is_cxx or command.file.endswith(CXX_SUFFIXES) else compilers.c


def _compile_options(command: CompileCommand, headers: Mapping[Path, CompileCommand]) -> list[str]:
    """The options of a command without compiler and outputs, with the text of headers instead of precompiled ones."""
    if any(word.startswith(_MODULES) for word in command.words):
        raise ConfigError(
            f"{command.file}: is compiled with C++ modules, which suit one level only and would be written into the "
            "build; give its CMake build folder by --build_dir instead"
        )
    words = iter(_with_text_of_headers(command, headers))
    options = []
    for word in words:
        if word in _OTHER_OUTPUTS_TO:
            next(words, None)
        elif word.startswith("-o") and not word.startswith("-object"):
            continue
        elif word not in _OTHER_OUTPUTS and not word.startswith(_OTHER_OUTPUTS_JOINED):
            options.append(word)
    return options


def _with_text_of_headers(command: CompileCommand, headers: Mapping[Path, CompileCommand]) -> list[str]:
    """The arguments of a command, which then needs no precompiled header: those fit one compiler and level only.

    clang also uses `X.pch` or `X.gch` for `-include X`, but not if that is handed to its front end, by `-Xclang`.

    Raises:
      ConfigError: a precompiled header is used that no entry makes, and whose text is not beside it.
    """
    folder = command.directory / (working_directory(command.words) or "")
    given = command.words[1:]
    words: list[str] = []
    changed = False
    position = 0
    while position < len(given):
        step = 2 if given[position] == "-Xclang" else 1
        option = given[position + step - 1 : position + step]
        value = "".join(given[position + 2 * step - 1 : position + 2 * step])
        if option not in (("-include",), ("-include-pch",)):
            words += given[position : position + step]
            position += step
            continue
        if option == ("-include-pch",):
            changed = True
            value = str(_text_of_header(folder / value, headers, command))
        elif step == 1:
            changed |= any((folder / f"{value}{suffix}").exists() for suffix in (".pch", ".gch"))
        words += ["-Xclang", "-include", "-Xclang", value]
        position += 2 * step
    return words if changed else list(given)


def _text_of_header(path: Path, headers: Mapping[Path, CompileCommand], command: CompileCommand) -> Path:
    path = Path(os.path.normpath(path))
    if path in headers:
        return headers[path].source
    if path.suffix in (".pch", ".gch") and path.with_suffix("").is_file():
        return path.with_suffix("")
    raise ConfigError(
        f"{command.file}: is compiled with the precompiled header {path}, which no entry of the database makes, so it "
        "cannot be made for another level; record its command, too"
    )


def _library_name(path: Path) -> str:
    match = re.fullmatch(r"lib(.+)\.(?:a|so)(?:\.[\d.]+)?", path.name)
    return match[1] if match else ""
