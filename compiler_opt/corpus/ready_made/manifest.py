"""The manifest of the ready-made corpora, `projects.yaml`: archives, sources and flags of each project.

Its Markdown tables are for `fetch_corpus --list` and the documentation.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from compiler_opt.checked_values import NonNegativeInt, convert
from compiler_opt.corpus.module import check_name
from compiler_opt.corpus.validation import reading
from compiler_opt.errors import CorpusError

MANIFEST_PATH = Path(__file__).with_name("projects.yaml")

LANGUAGES = ("c", "c++")

SPLITS = ("train", "validation", "held_out", "test")
"""For training; for choosing settings; for evaluating while methods change; for published figures, measured once."""


class Archive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source distribution on the Python package index; `sha256` and `num_bytes` (0 if unknown) are of its file."""

    name: str
    version: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    num_bytes: NonNegativeInt = msgspec.field(name="bytes", default=0)


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a project's corpus in modules and bytes, compiled with clang-22 at -Oz; zeros if unknown."""

    modules: NonNegativeInt = 0
    num_bytes: NonNegativeInt = msgspec.field(name="bytes", default=0)


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A template in the archive, relative to the project's root, and the values of its variables."""

    template: str
    values: dict[str, str]


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project of the ready-made corpora; the head of `projects.yaml` documents its fields."""

    name: str
    licence: str
    language: str
    archive: Archive
    root: str
    sources: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    generated: dict[str, str | Template] = {}
    architectures: tuple[str, ...] = ()
    measured: Measured = Measured()

    def digest(self) -> str:
        """A digest of everything that its modules depend on."""
        fields = msgspec.to_builtins(self)
        del fields["architectures"], fields["measured"], fields["archive"]["bytes"]
        # Corpora on disk have digests of this form.
        generated: list[dict[str, Any]] = [
            (
                {"path": path, "text": "", "template": content.template, "values": sorted(content.values.items())}
                if isinstance(content, Template)
                else {"path": path, "text": content, "template": None, "values": ()}
            )
            for path, content in self.generated.items()
        ]
        fields["generated"] = generated
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def select(self, paths: Iterable[str]) -> list[str]:
        """Selects those of `paths` (relative to the root) that are compiled, sorted."""
        wanted = _matcher(self.sources)
        unwanted = _matcher(self.exclude)
        return sorted(path for path in paths if wanted(path) and not unwanted(path))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The projects by name, and the names of projects by set and split: `sets["small"]["train"]`."""

    projects: Mapping[str, Project]
    sets: Mapping[str, Mapping[str, tuple[str, ...]]]

    def for_architecture(self, architecture: str) -> "Manifest":
        """The manifest without the projects that do not support this architecture, e.g. `aarch64`."""
        known = {
            name: project
            for name, project in self.projects.items()
            if not project.architectures or architecture in project.architectures
        }
        sets = {
            set_name: {split: tuple(name for name in names if name in known) for split, names in splits.items()}
            for set_name, splits in self.sets.items()
        }
        return Manifest(known, sets)

    def split(self, set_name: str) -> Mapping[str, tuple[Project, ...]]:
        """The projects of a set by split; raises CorpusError if there is no such set."""
        if set_name not in self.sets:
            raise CorpusError(f"there is no ready-made corpus {set_name!r}; there are: {', '.join(sorted(self.sets))}")
        return {split: tuple(self.projects[name] for name in names) for split, names in self.sets[set_name].items()}


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    sets: dict[str, dict[str, tuple[str, ...]]]
    projects: dict[str, dict[str, Any]]


@functools.cache
def load(path: Path = MANIFEST_PATH) -> Manifest:
    """Reads and validates a manifest.

    Raises:
      CorpusError: it cannot be read, or a field is missing, unknown or inconsistent.
    """
    try:
        with reading(path, "install compiler_opt again"):
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: expected YAML, found something else ({' '.join(str(error).split())})") from None
    try:
        file = convert(content, _File)
        projects = {name: _project(name, value) for name, value in file.projects.items()}
        for name, splits in file.sets.items():
            _check_splits(name, splits, projects)
        _check_sides(file.sets)
    except (CorpusError, ValueError) as error:
        raise CorpusError(f"{path}: {error}") from None
    return Manifest(projects, file.sets)


def configure(template: str, values: Mapping[str, str]) -> str:
    """Fills in a template as CMake's `configure_file`: `@NAME@`, `#cmakedefine NAME ...`, `#cmakedefine01 NAME`."""

    def define(match: re.Match[str]) -> str:
        indent, flag, name, rest = match.groups()
        if flag:
            return f"#{indent}define {name} {int(bool(values.get(name)))}"
        return f"#{indent}define {name}{rest}" if values.get(name) else f"/* #undef {name} */"

    text = re.sub(r"^#([ \t]*)cmakedefine(01)?[ \t]+(\w+)(.*)$", define, template, flags=re.MULTILINE)
    return re.sub(r"@(\w+)@", lambda match: values.get(match[1], ""), text)


def _project(name: str, entry: Mapping[str, Any]) -> Project:
    try:
        project = convert({**entry, "name": name}, Project)
    except ValueError as error:
        raise CorpusError(f"project {name}: {error}") from None
    if project.language not in LANGUAGES:
        raise CorpusError(
            f"project {name}: language: expected one of {', '.join(LANGUAGES)}, found {project.language!r}"
        )
    templates = [content.template for content in project.generated.values() if isinstance(content, Template)]
    for path in (name, *project.generated, *templates, *(() if project.root == "." else (project.root,))):
        check_name(path)
    return project


def _check_splits(name: str, splits: Mapping[str, Iterable[str]], projects: Mapping[str, Project]) -> None:
    where: dict[str, str] = {}
    for split, names in splits.items():
        if split not in SPLITS:
            raise CorpusError(f"set {name}: expected the splits {', '.join(SPLITS)}, found {split!r}")
        for project in names:
            if project not in projects:
                raise CorpusError(f"set {name}: {split}: there is no project {project!r}")
            if where.setdefault(project, split) != split:
                raise CorpusError(f"set {name}: project {project!r} is in both {where[project]} and {split}")


def _check_sides(sets: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
    """Checks that a project has the same split in every set, so that results of different sets can be compared."""
    first: dict[str, tuple[str, str]] = {}
    for set_name, splits in sets.items():
        for split, names in splits.items():
            for project in names:
                where = first.setdefault(project, (set_name, split))
                if where[1] != split:
                    raise CorpusError(
                        f"project {project!r} is in {where[1]} of the set {where[0]}, and in {split} of {set_name}; "
                        "a project has the same split in every set"
                    )


def _matcher(patterns: Iterable[str]) -> Any:
    """A predicate for paths: `*` matches within a folder, `**/` any number of folders."""
    translate = {"**/": "(?:[^/]+/)*", "*": "[^/]*"}
    parts = [
        "".join(translate.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*/|\*)", pattern))
        for pattern in patterns
    ]
    return re.compile("|".join(parts) or r"(?!)").fullmatch


_NUMBERS = ("modules", "MB", "download, MB", "corpora, MB")


def archives_of(projects: Iterable[Project]) -> list[Archive]:
    """The archives of the projects, each once."""
    return list(dict.fromkeys(project.archive for project in projects))


def sets_table(known: Manifest) -> str:
    """A table with a row per set: projects and modules of its splits, megabytes to download and of the corpora."""
    rows = []
    for name in known.sets:
        splits = known.split(name)
        projects = [project for split in splits.values() for project in split]
        counts = [_count(splits.get(split, ())) for split in SPLITS]
        download = sum(archive.num_bytes for archive in archives_of(projects))
        corpus = sum(project.measured.num_bytes for project in projects)
        rows.append([name, *counts, _count(projects), _megabytes(download), _megabytes(corpus)])
    return _table(["set", *SPLITS, "together", "download, MB", "corpora, MB"], rows)


def projects_table(known: Manifest) -> str:
    """A table with a row per project that is in a set: split, size, licence, archive, and its sets."""
    places: dict[str, tuple[int, str]] = {}
    sets: dict[str, list[str]] = {}
    for set_name, splits in known.sets.items():
        for split, names in splits.items():
            for name in names:
                places[name] = (SPLITS.index(split), name)
                sets.setdefault(name, []).append(set_name)
    rows = []
    for name in sorted(places, key=places.__getitem__):
        project = known.projects[name]
        rows.append(
            [
                name,
                SPLITS[places[name][0]],
                {"c": "C", "c++": "C++"}[project.language],
                str(project.measured.modules),
                _megabytes(project.measured.num_bytes),
                project.licence,
                f"{project.archive.name} {project.archive.version}",
                ", ".join(sets[name]),
            ]
        )
    return _table(["project", "split", "language", "modules", "MB", "licence", "archive", "sets"], rows)


def _count(projects: Sequence[Project]) -> str:
    if not projects:
        return "none"
    return f"{len(projects)} projects, {sum(project.measured.modules for project in projects):,} modules"


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = [
        "-" * (width - 1) + ":" if head in _NUMBERS else "-" * width for head, width in zip(heads, widths, strict=True)
    ]
    lines = []
    for row in (heads, rule, *rows):
        cells = [
            cell.ljust(width) if mark.endswith("-") else cell.rjust(width)
            for cell, width, mark in zip(row, widths, rule, strict=True)
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
