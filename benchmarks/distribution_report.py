"""The tables of `benchmarks.distribution`."""

import dataclasses
from collections.abc import Iterable, Sequence

from benchmarks.debian_packages import NEVER_WORSE, Record, sizes
from compiler_opt.evaluation.statistics import mean_interval, relative_change
from compiler_opt.report.formatting import bytes_text, change_text, interval_text
from compiler_opt.report.table import Table

_PARTS = ("text", "code", "unwind tables", "dynamic symbols")
_LANGUAGES = {"c": "C", "c++": "C++", "": "not known"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Builds of packages in two ways.

    Attributes:
      pairs: of the packages that are compared, the plain record and the other one.
      left_out: what is not compared, and why.
      worse: packages that fail in the other way only, or that grow although they may not.
    """

    pairs: list[tuple[Record, Record]]
    left_out: list[str]
    worse: list[str]


def counts(plain: Record) -> bool:
    """Whether a package is compared: it is built with plain clang, its tests pass, and it has programs or libraries."""
    return not plain.failure and bool(plain.files)


def compare(records: Iterable[tuple[Record, Record | None]], way: str) -> Comparison:
    """Of each package the plain record, and that of the other way, which those need that are compared."""
    comparison = Comparison([], [], [])
    for plain, other in records:
        if other is None or not counts(plain):
            reason = plain.failure or "no program or shared library"
            comparison.left_out.append(f"{plain.package}: left out; with plain clang: {reason}")
        elif other.failure:
            comparison.worse.append(f"{plain.package}: fails as {way} only: {other.failure}")
        else:
            comparison.pairs.append((plain, other))
            if way == NEVER_WORSE and (more := sizes(other).total - sizes(plain).total) > 0:
                comparison.worse.append(f"{plain.package}: {more:,} bytes larger as {way}")
    return comparison


def package_table(comparison: Comparison, way: str) -> Table:
    """A row for each package."""
    rows = [
        [
            *(plain.package, _LANGUAGES[plain.language], str(len(plain.files)), bytes_text(sizes(plain).total)),
            *map(change_text, _changes(plain, other)),
            *(str(each.tests or "passed") for each in (plain, other)),
            *("?" if each.warnings is None else str(each.warnings) for each in (plain, other)),
        ]
        for plain, other in comparison.pairs
    ]
    head = ["package", "language", "files", "text, plain", *_PARTS, "tests, plain", way, "warnings, plain", way]
    return Table(head, rows, num_text_columns=2)


def means_table(comparison: Comparison) -> Table:
    """Means over the packages by language, with intervals by Student's t, and the sum of their CPU time."""
    rows = []
    for language, name in (("c", "C"), ("c++", "C++"), (None, "all")):
        group = [pair for pair in comparison.pairs if language in (None, pair[0].language)]
        if group:
            columns = list(zip(*(_changes(*pair) for pair in group), strict=True))
            cpu_s = [sum(pair[side].cpu_s for pair in group) for side in (0, 1)]
            worst, package = max(zip(columns[0], (plain.package for plain, _ in group), strict=True))
            rows.append(
                [
                    f"{len(group)} in {name}" if language else f"all {len(group)}",
                    *map(mean_text, columns),
                    f"{package} {change_text(worst)}",
                    change_text(relative_change(*cpu_s), 1),
                ]
            )
    return Table(["packages, mean (95%)", *_PARTS, "worst text", "CPU, in the sum"], rows)


def _changes(plain: Record, other: Record) -> list[float]:
    """Relative changes of `_PARTS`."""
    parts = [(each.total, each.code, each.unwind, each.dynamic) for each in (sizes(plain), sizes(other))]
    return [relative_change(*each) for each in zip(*parts, strict=True)]


def mean_text(changes: Sequence[float]) -> str:
    """A mean of relative changes, with its interval by Student's t if there is one."""
    mean = mean_interval(changes)
    return change_text(mean.value) + (f" ({interval_text(mean.low, mean.high)})" if mean.has_interval else "")
