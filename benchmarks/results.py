"""Writes docs/results.md, the tables of what was measured, from the records in the repository, and a chart for README.

    python -m benchmarks.results

The text between the tables is in docs/results.md.in, with lines `{{TABLE:RECORDS}}` where tables go. Whoever measures
again puts the new records in the place of the old ones.
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import llvm_builds, size_at_speed_report
from benchmarks.debian_packages import PLAIN, Record
from benchmarks.distribution_report import compare, mean_text, means_table, package_table
from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.plots import change_bars_file
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import parse_json, write_text
from compiler_opt.kept_results import RecordFile
from compiler_opt.report.formatting import bytes_text, change_text
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags

_OUTPUT_PATH = shared_flags.path(
    "output_path", "The page; by default docs/results.md. The chart is beside it, as .svg."
)
_DOCS = Path(__file__).parents[1] / "docs"
_TEMPLATE = _DOCS / "results.md.in"
_BOTH = "policy+options"
_WAYS = {"options": "options", "policy": "policy", _BOTH: "both", "never_worse": "never worse"}
_CHARTED = "pretrained/test-22-Oz.csv"


def _page() -> str:
    """The page.

    Raises:
      ConfigError: there is no table of a name, or its records are missing or damaged.
    """

    def tables(match: re.Match[str]) -> str:
        name, _, path = match[1].partition(":")
        if name not in _TABLES:
            raise ConfigError(f"{_TEMPLATE.name}: expected one of the tables {', '.join(_TABLES)}, found {name}")
        return "\n\n".join("\n".join(table.markdown()) for table in _TABLES[name](_DOCS / path))

    return re.sub(r"^\{\{(.*)\}\}$", tables, _TEMPLATE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _projects(path: Path) -> list[Table]:
    """Of `evaluate` with options: a row for each project, and means of them by language."""
    rows = _rows(path)
    ways = {way: name for way, name in _WAYS.items() if rows[0].has(way)}
    head = ["project", "language", "text, plain", *ways.values(), *(f"code, {name}" for name in ways.values())]
    projects = [
        [each.name, each.language, bytes_text(each.text), *(change_text(change) for change in each.changes(ways))]
        for each in rows
    ]
    means = []
    for language in ("C", "C++", ""):
        group = [each for each in rows if language in ("", each.language)]
        columns = zip(*(each.changes(ways) for each in group), strict=True)
        means.append([f"{len(group)} in {language}" if language else f"all {len(group)}", *map(mean_text, columns)])
    worst = ["worst"]
    for column in range(2 * len(ways)):
        change, name = max((each.changes(ways)[column], each.name) for each in rows)
        worst.append(f"{name} {change_text(change)}")
    return [
        Table(head, projects, num_text_columns=2),
        Table(["mean of projects (95%)", *head[3:]], means, total=worst),
    ]


def _rows(path: Path) -> "list[_Project]":
    with path.open(encoding="utf-8", newline="") as file:
        return sorted(map(_Project, csv.DictReader(file)), key=lambda each: (each.language != "C", each.name))


def _chart() -> str:
    """What ships makes of the text of each project."""
    rows = _rows(_DOCS / _CHARTED)
    names = [f"{each.name} ({each.language})" for each in rows]
    return change_bars_file(names, [each.changes([_BOTH])[0] for each in rows], "change of linked text, clang -Oz = 0")


class _Project:
    """A row of an evaluation's `projects.csv`."""

    def __init__(self, row: Mapping[str, str]):
        self._row = row
        self.name, self.language = row["project"], row["language"]
        self.text = int(row["default_linked_bytes"])

    def has(self, way: str) -> bool:
        return f"{way}_linked_bytes" in self._row

    def changes(self, ways: Sequence[str] | Mapping[str, str]) -> list[float]:
        """Relative changes of text in each way, then those of code."""
        return [
            relative_change(*(int(self._row[f"{side}_linked_{part}bytes"]) for side in ("default", way)))
            for part in ("", "code_")
            for way in ways
        ]


def _programs(folder: Path) -> list[Table]:
    paths = sorted(folder.glob("*.json"))
    records = [convert(parse_json(path.read_bytes()), size_at_speed_report.Record) for path in paths]
    return size_at_speed_report.report(sorted(records, key=lambda record: (record.language, record.program)))


def _packages(path: Path) -> list[Table]:
    records = {(each.package, each.level, each.way): each for each in RecordFile(path, Record).records}
    tables = []
    for level, way in sorted({(level, way) for _, level, way in records if way != PLAIN}):
        plain = [each for each in records.values() if (each.level, each.way) == (level, PLAIN)]
        plain.sort(key=lambda each: (each.language != "c", each.package))
        comparison = compare([(each, records.get((each.package, level, way))) for each in plain], way)
        tables += [package_table(comparison, way), means_table(comparison)]
    return tables


def _llvm(path: Path) -> list[Table]:
    records = RecordFile(path, llvm_builds.Record).records
    programs = list(dict.fromkeys(each.program for each in records))
    return [llvm_builds.report(sorted(records, key=lambda each: programs.index(each.program)))]


_TABLES: Mapping[str, Callable[[Path], list[Table]]] = {
    "projects": _projects,
    "programs": _programs,
    "packages": _packages,
    "llvm": _llvm,
}


@entry_point.command
def entry() -> None:
    path = _OUTPUT_PATH.value or _DOCS / "results.md"
    write_text(path, _page())
    write_text(path.with_suffix(".svg"), _chart())


if __name__ == "__main__":
    entry()
