"""Reads the targets of a CMake build from CMake's File API.

https://cmake.org/cmake/help/latest/manual/cmake-file-api.7.html: CMake answers an empty query file by JSON files, when
it configures the build.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from compiler_opt.checked_values import read_json
from compiler_opt.errors import CorpusError, ToolchainError
from compiler_opt.optimize.program import Kind, Target

QUERY = Path(".cmake/api/v1/query/codemodel-v2")
"""The file that asks for the targets, relative to the build folder."""

_REPLY = Path(".cmake/api/v1/reply")
_MAX_REPLY_BYTES = 1 << 28
_KINDS = {
    "EXECUTABLE": Kind.EXECUTABLE,
    "SHARED_LIBRARY": Kind.SHARED,
    "MODULE_LIBRARY": Kind.SHARED,
    "STATIC_LIBRARY": Kind.STATIC,
    "OBJECT_LIBRARY": Kind.OBJECTS,
}

T = TypeVar("T")


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
    folder = build_dir / _REPLY
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
