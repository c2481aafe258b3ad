"""Compares trainings by algorithm: same corpus, same budget of compiles, several seeds.

    results = [read_run("ppo", 1, root_dir), ...]                       # every run, failed ones too
    write(Comparison(results, measure="linked text", compiles=4000, facts=facts), folder)

What counts is the change of the validation corpus at the end of a run. The best value along the way is shown, too; it
is chosen on the same corpus, so it looks better than it is.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from compiler_opt.errors import ConfigError
from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import HISTORY_FILE, Curve, load_history, number, read_entries
from compiler_opt.files import read_regular, write_text
from compiler_opt.report import page
from compiler_opt.report.formatting import bytes_text, change_text, count_text, duration_text
from compiler_opt.report.table import Cell, Change, Table, csv_text, data_frame

State: TypeAlias = Literal["complete", "failed", "unfinished"]
COMPLETE: Final = "complete"
FAILED: Final = "failed"
UNFINISHED: Final = "unfinished"
SEARCH: Final = "search fitted to these projects (upper mark)"
"""The row of searches, which are fitted to what they are measured on."""
BEGIN, END = "<!-- compare_trainers: begin -->", "<!-- compare_trainers: end -->"
"""Lines of a page between which the result is written."""

_PLOT = "curves.svg"
_MAX_PAGE_BYTES = 1 << 22
_UNKNOWN = "\N{EN DASH}"
_NO_VALIDATION, _NO_TOTAL = Curve("mean of projects", (), ()), Curve("together", (), ())


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What has become of one training, or search.

    Attributes:
      algorithm: its name in the comparison.
      seed: its seed.
      state: what has become of it.
      reason: why it failed.
      compiles: compilations for training so far.
      failures: how many of them failed.
      cpu_s: CPU seconds of collecting and learning, without validation.
      validation: the change of the validation corpus in the mean of projects, over compilations; negative is better.
      together: the same of all projects together.
    """

    algorithm: str
    seed: int
    state: State
    reason: str = ""
    compiles: int = 0
    failures: int = 0
    cpu_s: float = 0.0
    validation: Curve = _NO_VALIDATION
    together: Curve = _NO_TOTAL

    @property
    def last(self) -> float | None:
        """The last validated change."""
        return self.validation.values[-1] if self.validation.values else None

    @property
    def best(self) -> float | None:
        """The best one along the way."""
        return min(self.validation.values, default=None)


def read_run(algorithm: str, seed: int, root_dir: Path, state: State = UNFINISHED, reason: str = "") -> RunResult:
    """A run from its history; a damaged history counts as far as it can be read."""
    result = RunResult(algorithm, seed, state, reason)
    entries, _ = read_entries(root_dir / HISTORY_FILE)
    if not entries:
        return result
    try:
        validation = {curve.name: curve for curve in load_history(root_dir).validation}
    except ConfigError as error:
        return dataclasses.replace(result, reason=reason or str(error))
    cpu_s = sum(_number(entry, "collect_cpu_s") + _number(entry, "learn_cpu_s") for entry in entries)
    return dataclasses.replace(
        result,
        compiles=round(_number(entries[-1], "compiles")),
        failures=round(sum(_number(entry, "failures") for entry in entries)),
        cpu_s=cpu_s,
        validation=validation.get(result.validation.name, result.validation),
        together=validation.get(result.together.name, result.together),
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs of several algorithms.

    Attributes:
      runs: every run, in the order of tables.
      measure: what changes: `linked text` or the name of a score.
      compiles: the budget of each run.
      facts: the conditions, for the page.
    """

    runs: Sequence[RunResult]
    measure: str
    compiles: int
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def by_algorithm(self) -> dict[str, list[RunResult]]:
        """Runs by the names of algorithms, in their order."""
        found: dict[str, list[RunResult]] = {}
        for run in self.runs:
            found.setdefault(run.algorithm, []).append(run)
        return found

    def to_json(self) -> dict[str, Any]:
        """The conditions, and the end of each run."""
        runs = [
            {
                "algorithm": run.algorithm,
                "seed": run.seed,
                "state": run.state,
                "validation_mean": run.last,
                "validation_total": run.together.values[-1] if run.together.values else None,
                "best_validation_mean": run.best,
                "compiles": run.compiles,
                "failures": run.failures,
                "cpu_s": round(run.cpu_s, 2),
                "reason": run.reason,
            }
            for run in self.runs
        ]
        return {"measure": self.measure, "compiles": self.compiles, "provenance": dict(self.facts), "runs": runs}

    def to_dataframe(self) -> Any:
        """A `pandas.DataFrame` with a row for each run, as `to_json` has them.

        Raises:
          MissingPackageError: pandas is not installed.
        """
        return data_frame(self.to_json()["runs"])

    def __str__(self) -> str:
        """The table that `compare_trainers` prints."""
        return "\n".join(self.summary().lines())

    def __repr__(self) -> str:
        complete = sum(run.state == COMPLETE for run in self.runs)
        return f"Comparison({', '.join(self.by_algorithm)}: {complete} of {count_text(len(self.runs), 'run')} complete)"

    def summary(self) -> Table:
        """A row for each algorithm, over its complete runs; the best mean first."""
        rows = [_summary_row(name, runs) for name, runs in self.by_algorithm.items()]
        head = ["algorithm", "complete runs", f"{self.measure} at the end, mean", "standard deviation", "best run"]
        head += ["worst run", "best on the way, mean", "compiles, mean", "CPU, mean"]
        return Table(head, [cells for _, cells in sorted(rows, key=lambda row: row[0])])

    def table(self) -> Table:
        """A row for each run."""
        head = ["algorithm", "state", "seed", f"{self.measure} at the end", "all together", "best on the way"]
        head += ["compiles", "of these failed", "CPU", "reason"]
        rows: list[list[Cell]] = []
        for run in self.runs:
            together = run.together.values[-1] if run.together.values else None
            changes = [Change(run.last), Change(together), Change(run.best)]
            counts = [bytes_text(run.compiles), bytes_text(run.failures), duration_text(run.cpu_s)]
            rows.append([run.algorithm, run.state, str(run.seed), *changes, *counts, run.reason])
        return Table(head, rows, num_text_columns=2, wrapped=frozenset({len(head) - 1}))

    def markdown(self, plot: str) -> str:
        """Both tables, the plot (its path) and the conditions."""
        facts = [f"- {name}: {value}" for name, value in self.facts.items()]
        tables = [*self.summary().markdown(), "", f"![{self.caption()}]({plot})", "", *self.table().markdown()]
        return "\n".join([*facts, "", *tables, "", self.caption()]) + "\n"

    def headline(self) -> str:
        """Which algorithm ends best in the mean of its complete runs, and which one follows."""
        ends = {
            name: [run.last for run in runs if run.state == COMPLETE and run.last is not None]
            for name, runs in self.by_algorithm.items()
            if name != SEARCH
        }
        means = sorted((statistics.fmean(found), name) for name, found in ends.items() if found)
        if not means:
            return "No training is complete"
        (best, first), *others = means
        headline = f"{first} ends best, at {change_text(best)} {self.measure}"
        if not others:
            return headline
        mean, second = others[0]
        overlap = "; their runs overlap" if max(ends[first]) > min(ends[second]) else ""
        if change_text(mean) == change_text(best):
            return f"{first} and {second} end best, both at {change_text(mean)} {self.measure}{overlap}"
        return f"{headline}, before {second}, at {change_text(mean)}{overlap}"

    def caption(self) -> str:
        """What tables and plot show."""
        caption = (
            f"Change of the validation corpus ({self.measure}, mean of projects) over compiles, {self.compiles:,} for "
            "each run; negative is better. Lines are means over the complete runs of an algorithm. Beside them is "
            "where each run ends, hollow if it is not complete, and a bar at the mean. CPU is that of training, "
            "without validation."
        )
        if SEARCH in self.by_algorithm:
            caption += (
                f" The row {SEARCH!r} is no policy, but a mark of what is possible: it fits the decisions to the very "
                "projects of the validation corpus that it is measured on. Its compiles include those of the default "
                "and those that confirm the result. Its last figure is linked; those on the way are compiled but not "
                "linked. Its CPU is the compiler's."
            )
        return caption


def write(comparison: Comparison, folder: Path, document: Path | None = None) -> Path:
    """Writes `algorithms.csv`, `runs.csv`, `curves.csv`, `curves.svg`, `comparison.md` and `comparison.html`.

    Args:
      comparison: what to write.
      folder: where to.
      document: a Markdown page; what is between its lines `BEGIN` and `END` is replaced; the plot goes beside it.

    Returns:
      the page.

    Raises:
      ConfigError: the document cannot be read, or does not have both lines.
      OutputError: something cannot be written.
    """
    curves = {name: [run.validation for run in runs] for name, runs in comparison.by_algorithm.items()}
    complete = {name: [run.state == COMPLETE for run in runs] for name, runs in comparison.by_algorithm.items()}
    text = _with_result(document, comparison) if document is not None else ""
    element, file = plots.comparison_curves(curves, complete, f"change of {comparison.measure}")
    write_text(folder / "algorithms.csv", csv_text(_csv_rows(comparison.summary())))
    write_text(folder / "runs.csv", csv_text(_run_rows(comparison)))
    write_text(folder / "curves.csv", csv_text(_curve_rows(comparison)))
    write_text(folder / _PLOT, file)
    write_text(folder / "comparison.md", comparison.markdown(_PLOT))
    if document is not None:
        write_text(document.with_suffix(".svg"), file)
        write_text(document, text)
    path = folder / "comparison.html"
    values: dict[str, object] = {
        "title": f"Comparison of trainings: {comparison.headline()}",
        "comparison": comparison,
        "summary": comparison.summary(),
        "runs": comparison.table(),
    }
    write_text(path, page.render("comparison.html", plot=element, **values))
    return path


def check_document(document: Path) -> None:
    """Raises ConfigError unless a Markdown page has the lines `BEGIN` and `END`, once each and in this order."""
    _parts(document)


def _with_result(document: Path, comparison: Comparison) -> str:
    before, after = _parts(document)
    return f"{before}{BEGIN}\n\n{comparison.markdown(document.with_suffix('.svg').name)}\n{END}{after}"


def _parts(document: Path) -> tuple[str, str]:
    """What is before and after the result."""
    try:
        text = read_regular(document, _MAX_PAGE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{document}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ConfigError(
            f"{document}: expected the lines {BEGIN} and {END}, once each; add them where the result goes"
        )
    return before, after


def _summary_row(name: str, runs: Sequence[RunResult]) -> tuple[tuple[float, str], list[Cell]]:
    """The place in the order, and the cells."""
    complete = [run for run in runs if run.state == COMPLETE]
    ends = [run.last for run in complete if run.last is not None]
    bests = [run.best for run in complete if run.best is not None]
    mean = statistics.fmean(ends) if ends else None
    # Unsigned: it is no change.
    spread = f"{statistics.stdev(ends):.2%}" if len(ends) > 1 else _UNKNOWN
    cells: list[Cell] = [
        name,
        f"{len(complete)} of {len(runs)}",
        Change(mean),
        spread,
        Change(min(ends, default=None)),
        Change(max(ends, default=None)),
        Change(statistics.fmean(bests) if bests else None),
        bytes_text(statistics.fmean(run.compiles for run in complete)) if complete else _UNKNOWN,
        duration_text(statistics.fmean(run.cpu_s for run in complete)) if complete else _UNKNOWN,
    ]
    return (math.inf if mean is None else mean, name), cells


def _csv_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table, changes as numbers."""
    rows = []
    for row in table.rows:
        values = (_exact(cell.value) if isinstance(cell, Change) else cell for cell in row)
        rows.append(dict(zip(table.head, values, strict=True)))
    return rows


def _run_rows(comparison: Comparison) -> list[dict[str, Any]]:
    changes = ("validation_mean", "validation_total", "best_validation_mean")
    return [
        {**run, **{name: _exact(run[name]) for name in changes}, "cpu_s": f"{run['cpu_s']:.2f}"}
        for run in comparison.to_json()["runs"]
    ]


def _curve_rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {"algorithm": run.algorithm, "seed": run.seed, "compiles": round(compiles), "validation_mean": _exact(value)}
        for run in comparison.runs
        for compiles, value in zip(run.validation.compiles, run.validation.values, strict=True)
    ]


def _exact(change: float | None) -> str:
    return "" if change is None else f"{change:.6f}"


def _number(entry: Mapping[str, Any], key: str) -> float:
    """A number of an entry; 0 if there is none."""
    return number(entry, key) or 0.0
