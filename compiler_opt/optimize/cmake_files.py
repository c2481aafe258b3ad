"""CMake's files in a build folder: reads and writes settings (`CMakeCache.txt`), reads targets (the File API)."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from compiler_opt.checked_values import read_json
from compiler_opt.errors import ConfigError, CorpusError, ToolchainError
from compiler_opt.files import read_regular
from compiler_opt.optimize.program import Kind, Target

_CACHE_NAME = "CMakeCache.txt"
_MAX_CACHE_BYTES = 1 << 26
_ENTRY = re.compile(r'^(?:"(?P<quoted>[^"]+)"|(?P<name>[^#/"][^:=]*)):(?P<type>[A-Z]+)=(?P<value>.*)$')
_SETTABLE = {"BOOL", "STRING", "PATH", "FILEPATH", "UNINITIALIZED"}
_FOUND_WITH_THE_COMPILER = re.compile(
    r"CMAKE_(?!TOOLCHAIN_FILE$|MAKE_PROGRAM$)[A-Z0-9_]+"  # ar, ranlib, the compilers themselves, ...
)
_COMPILER = re.compile(r"CMAKE_\w+_COMPILER(_\w+)?|CMAKE_\w+_LINKER_LAUNCHER|CMAKE_\w+_COMPILE_OBJECT")
_CHECKERS = re.compile(r"CMAKE_\w+_(CLANG_TIDY|CPPCHECK|CPPLINT|INCLUDE_WHAT_YOU_USE)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./+-]+")
_LTO = re.compile(r"(?<!\S)-flto(=\S+)?(?!\S)")
_OURS = {
    "CMAKE_EXPORT_COMPILE_COMMANDS",
    "CMAKE_INTERPROCEDURAL_OPTIMIZATION",
    "CMAKE_BUILD_TYPE",
    "CMAKE_CONFIGURATION_TYPES",
}

API_QUERY = Path(".cmake/api/v1/query/codemodel-v2")
"""A query file: when CMake configures a build folder, it answers by JSON files.

https://cmake.org/cmake/help/latest/manual/cmake-file-api.7.html
"""

_API_REPLY = Path(".cmake/api/v1/reply")
_MAX_REPLY_BYTES = 1 << 28
_KINDS = {
    "EXECUTABLE": Kind.EXECUTABLE,
    "SHARED_LIBRARY": Kind.SHARED,
    "MODULE_LIBRARY": Kind.SHARED,
    "STATIC_LIBRARY": Kind.STATIC,
    "OBJECT_LIBRARY": Kind.OBJECTS,
}

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A variable: its CMake type and its value."""

    type: str
    value: str


@dataclasses.dataclass(frozen=True)
class CMakeCache:
    """The variables in the cache of a configured build folder, whose path is absolute."""

    folder: Path
    entries: Mapping[str, Entry]

    @classmethod
    def read(cls, folder: Path) -> "CMakeCache":
        """Reads a build folder's cache.

        Raises:
          ConfigError: there is no such folder, or CMake has not configured it.
        """
        folder = folder.absolute()
        path = folder / _CACHE_NAME
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such build folder; configure the project first: cmake -S SOURCE -B BUILD")
        try:
            text = read_regular(path, _MAX_CACHE_BYTES).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            raise ConfigError(
                f"{folder}: expected a build folder configured by CMake, found no {_CACHE_NAME} in it; configure it "
                "first (cmake -S SOURCE -B BUILD), or use --compile_commands with --link_command"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        entries = {}
        for line in text.splitlines():
            if match := _ENTRY.match(line):
                value = match["value"]
                # CMake quotes a value that begins or ends with a blank.
                if len(value) > 1 and value.startswith("'") and value.endswith("'"):
                    value = value[1:-1]
                entries[match["quoted"] or match["name"]] = Entry(match["type"], value)
        cache = cls(folder, entries)
        for name in ("CMAKE_HOME_DIRECTORY", "CMAKE_GENERATOR"):
            if not cache.get(name):
                raise ConfigError(f"{path}: has no {name}; configure the build again: cmake -S SOURCE -B {folder}")
        return cache

    def get(self, name: str) -> str:
        """A variable's value; empty if it is not set."""
        entry = self.entries.get(name)
        return entry.value if entry is not None else ""

    def is_on(self, name: str) -> bool:
        """Whether the value is true for CMake."""
        return self.get(name).upper() in ("1", "ON", "YES", "TRUE", "Y")

    @property
    def source(self) -> Path:
        """The folder of the project's `CMakeLists.txt`."""
        return Path(self.get("CMAKE_HOME_DIRECTORY"))

    @property
    def toolchain_file(self) -> Path | None:
        """The build's toolchain file, if any; a relative path is relative to the build folder or to the sources."""
        name = self.get("CMAKE_TOOLCHAIN_FILE")
        paths = [folder / name for folder in (self.folder, self.source)] if name else []
        return next((path for path in paths if path.is_file()), None)

    def compiler(self, language: str) -> str:
        """The compiler of a language; empty if unknown. A toolchain file may have set it without the cache."""
        details = self.folder.glob(f"CMakeFiles/*/CMake{language}Compiler.cmake")
        newest = max(details, key=lambda path: path.stat().st_mtime_ns, default=None)
        text = newest.read_text(errors="surrogateescape") if newest is not None else ""
        match = re.search(rf'^set\(CMAKE_{language}_COMPILER "(.+)"\)$', text, re.MULTILINE)
        return match[1] if match else self.get(f"CMAKE_{language}_COMPILER")

    @property
    def build_type(self) -> str:
        """The build type, e.g. `Release`; in a multi-config build folder, the default one."""
        if self.get("CMAKE_BUILD_TYPE") or "Multi-Config" not in self.get("CMAKE_GENERATOR"):
            return self.get("CMAKE_BUILD_TYPE")
        several = self.get("CMAKE_CONFIGURATION_TYPES").split(";")
        return self.get("CMAKE_DEFAULT_BUILD_TYPE") or several[0]

    def settings(self) -> dict[str, Entry]:
        """The variables for a copy of the build.

        Left out are paths in this build folder, variables that depend on the compiler (compilers, their launchers and
        tools), and tools that check sources while they are compiled.
        """
        settings = {}
        for name, entry in sorted(self.entries.items()):
            found = entry.type == "FILEPATH" and _FOUND_WITH_THE_COMPILER.fullmatch(name)
            ours = name in _OURS or _COMPILER.fullmatch(name) or _CHECKERS.fullmatch(name)
            if entry.type not in _SETTABLE or found or ours:
                continue
            if not _PLAIN_NAME.fullmatch(name) or entry.value.endswith("-NOTFOUND") or str(self.folder) in entry.value:
                continue
            # Objects are compiled without link-time optimisation, so linking must not ask for it.
            settings[name] = Entry(entry.type, _LTO.sub("", entry.value)) if "_FLAGS" in name else entry
        return settings | self._fetched()

    def _fetched(self) -> dict[str, Entry]:
        """Folders of sources that FetchContent has downloaded, so that copies of the build need no network."""
        base = Path(self.get("FETCHCONTENT_BASE_DIR") or self.folder / "_deps")
        fetched = {}
        for name in self.entries:
            if name.startswith("FETCHCONTENT_SOURCE_DIR_") and not self.get(name):
                source = base / f"{name.removeprefix('FETCHCONTENT_SOURCE_DIR_').lower()}-src"
                if source.is_dir():
                    fetched[name] = Entry("PATH", str(source))
        return fetched


def initial_cache(settings: Mapping[str, Entry]) -> str:
    """A script for `cmake -C` that sets variables."""
    lines = []
    for name, entry in settings.items():
        type_name = "STRING" if entry.type == "UNINITIALIZED" else entry.type
        lines.append(f'set({name} {_quoted(entry.value)} CACHE {type_name} "")\n')
    return "".join(lines)


def toolchain_file(given: Path, settings: Mapping[str, Entry]) -> str:
    """A toolchain file like a given one, but with these settings, which override those that it sets."""
    lines = [f"set({name} {_quoted(entry.value)})\n" for name, entry in settings.items()]
    return f"include({_quoted(str(given))})\n" + "".join(lines)


def _quoted(value: str) -> str:
    """A value in CMake, in which any character is possible."""
    fence = "=" * next(width for width in range(1, 99) if f"]{'=' * width}]" not in value)
    return f"[{fence}[{value}]{fence}]"


class _Reference(msgspec.Struct, rename="camel"):
    kind: str
    json_file: str


class _Index(msgspec.Struct):
    objects: list[_Reference]


class _Project(msgspec.Struct, rename="camel"):
    name: str
    parent_index: int | None = None


class _TargetReference(msgspec.Struct, rename="camel"):
    id: str
    name: str
    json_file: str
    project_index: int


class _Configuration(msgspec.Struct):
    projects: list[_Project]
    targets: list[_TargetReference]


class _CodeModel(msgspec.Struct):
    configurations: list[_Configuration]


class _Artifact(msgspec.Struct):
    path: str


class _Dependency(msgspec.Struct):
    id: str


class _TargetDetails(msgspec.Struct):
    type: str
    artifacts: list[_Artifact] = []
    dependencies: list[_Dependency] = []
    install: dict[str, Any] | None = None


def configured_targets(build_dir: Path) -> Iterator[Target]:
    """The targets of a configured build, in CMake's order; their files may not be built yet.

    Raises:
      CorpusError: a reply is damaged.
      ToolchainError: there is no reply; CMake is too old.
    """
    folder = build_dir / _API_REPLY
    try:
        index = _read(sorted(folder.glob("index-*.json"))[-1], _Index)
        [file] = [reply.json_file for reply in index.objects if reply.kind == "codemodel"]
        configuration = _read(folder / file, _CodeModel).configurations[0]
        names = {target.id: target.name for target in configuration.targets}
        for target in configuration.targets:
            details = _read(folder / target.json_file, _TargetDetails)
            if details.type not in _KINDS:
                continue
            kind = _KINDS[details.type]
            project = configuration.projects[target.project_index]
            yield Target(
                name=target.name,
                kind=kind,
                artifact="" if kind is Kind.OBJECTS or not details.artifacts else details.artifacts[0].path,
                uses=tuple(names[used.id] for used in details.dependencies if used.id in names),
                installed=details.install is not None,
                project=project.name if project.parent_index is not None else "",
            )
    except (IndexError, ValueError, FileNotFoundError) as error:
        raise ToolchainError(f"{build_dir}: CMake does not list its targets; expected CMake >= 3.14") from error


def _read(path: Path, model: type[T]) -> T:
    remedy = "remove the folder it is in, and run this again"
    return read_json(path, model, max_bytes=_MAX_REPLY_BYTES, error=CorpusError, remedy=remedy)
