"""Statistics of a corpus as tables for the terminal and as plots."""

from collections.abc import Mapping

import numpy as np

from compiler_opt.corpus.statistics import QUANTILES, Statistics
from compiler_opt.report.drawing import COLORS, count_tick, limit_ticks, new_figure, style_axes, svg_file
from compiler_opt.report.formatting import count_text, plot_label
from compiler_opt.report.table import Table

NUMBERS: Mapping[str, str] = {
    "functions": "functions",
    "instructions": "instructions",
    "call_sites": "call sites",
    "decisions": "decisions",
    "bitcode_bytes": "bitcode, bytes",
}
"""Counts of a module and their headings."""

_MAX_BARS = 40
_SHOWN_COPIES = 3


def table(statistics: Statistics) -> str:
    """Projects, the distribution over modules, shares of languages, levels and targets, and copies."""
    numbers = [number for number in NUMBERS if len(statistics.values(number))]
    headings = [NUMBERS[number] for number in numbers]
    rows: list[list[str]] = []
    for project, count in statistics.count_by("project").items():
        languages = {module.language for module in statistics.modules if module.project == project}
        totals = [_text(statistics.total(number, project)) for number in numbers]
        rows.append([project, ", ".join(sorted(languages)), f"{count:,}", *totals])
    totals = [_text(statistics.total(number)) for number in numbers]
    together = ["together", "", f"{len(statistics.modules):,}", *totals]
    projects = Table(["project", "language", "modules", *headings], rows, together, num_text_columns=2)
    spread = [
        [name, *(_text(round(statistics.distribution(number)[name])) for number in numbers)] for name in QUANTILES
    ]
    lines = [*projects.lines(), "", *Table(["per module", *headings], spread).lines(), ""]
    for field, heading in {"language": "languages", "level": "levels", "target": "targets"}.items():
        shares = ", ".join(f"{name} {count:,}" for name, count in statistics.count_by(field).items())
        lines.append(f"{heading}: {shares}")
    lines += _copies(statistics)
    if failures := statistics.failures():
        first = next(iter(failures.values()))
        lines.append(f"{count_text(len(failures), 'module')} could not be counted; the first: {first}")
    return "\n".join(lines)


def _copies(statistics: Statistics) -> list[str]:
    groups = statistics.copies()
    if not groups:
        return ["copies: none with the same bitcode"]
    superfluous = sum(len(group) - 1 for group in groups)
    share = superfluous / len(statistics.modules)
    lines = [f"copies: {count_text(superfluous, 'module')} ({share:.1%}) with the same bitcode as another"]
    lines += [f"  {len(group)} times: {group[0]} = {group[1]}" for group in groups[:_SHOWN_COPIES]]
    return lines


def plots(statistics: Statistics) -> dict[str, str]:
    """SVG files by name: distributions over modules, and sizes of projects."""
    return {"modules.svg": _distributions(statistics), "projects.svg": _projects(statistics)}


def _distributions(statistics: Statistics) -> str:
    """A histogram over the modules for each number, on a logarithmic scale."""
    numbers = [number for number in NUMBERS if len(statistics.values(number))]
    figure = new_figure(9, 2.6 * ((len(numbers) + 1) // 2))
    grid = figure.subplots((len(numbers) + 1) // 2, 2, squeeze=False)
    for axes in grid.flat[len(numbers) :]:
        axes.set_visible(False)
    for axes, number in zip(grid.flat, numbers, strict=False):
        values = statistics.values(number)
        some = values[values > 0]
        edges = np.geomspace(some.min(), some.max() * 1.01, 25) if len(some) else np.array([1.0, 2.0])
        if len(some) < len(values):
            # Modules with a count of 0 get a bar of their own, left of 1.
            edges = np.concatenate([[0.5], edges])
        axes.hist(np.maximum(values, 0.7), edges, color=COLORS["accent"])
        axes.set_xscale("log")
        axes.axvline(max(0.7, float(np.median(values))), color=COLORS["text"], linewidth=1)
        limit_ticks(axes.yaxis, 5, integer=True)
        axes.set_ylabel("modules", color=COLORS["muted"], fontsize=9)
        label = f"{NUMBERS[number]} (line: median {_text(round(float(np.median(values))))})"
        style_axes(axes, label, percent=False, grid="y")
    return svg_file(figure, "modules")


def _projects(statistics: Statistics) -> str:
    """Bars of modules and of instructions for each project."""
    counts = dict(list(statistics.count_by("project").items())[:_MAX_BARS])
    names = list(counts)[::-1]
    places = np.arange(len(names))
    figure = new_figure(9, 0.9 + 0.26 * max(2, len(names)))
    modules, instructions = figure.subplots(1, 2, sharey=True)
    modules.barh(places, [counts[name] for name in names], color=COLORS["accent"], height=0.7)
    limit_ticks(modules.xaxis, 5, integer=True)
    modules.set_yticks(places, [plot_label(name) for name in names])
    style_axes(modules, "modules", percent=False)
    instructions.barh(
        places, [statistics.total("instructions", name) or 0 for name in names], color=COLORS["accent"], height=0.7
    )
    limit_ticks(instructions.xaxis, 4)
    instructions.xaxis.set_major_formatter(count_tick)
    style_axes(instructions, "instructions", percent=False)
    return svg_file(figure, "projects")


def _text(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
