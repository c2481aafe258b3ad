"""Markdown tables of the ready-made corpora, for `fetch_corpus --list` and the documentation."""

from collections.abc import Iterable, Sequence

from compiler_opt.corpus.ready_made.manifest import SPLITS, Archive, Manifest, Project

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
