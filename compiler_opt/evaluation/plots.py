"""Plots of reports, as SVG elements of an HTML page."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from compiler_opt.evaluation.history import Curve, History, smoothed
from compiler_opt.evaluation.importance import Importance
from compiler_opt.evaluation.results import DEFAULT, PARTS, Evaluation, ProjectResult
from compiler_opt.report.drawing import (
    COLORS,
    axes_points,
    count_tick,
    legend,
    limit_ticks,
    new_figure,
    percent_tick,
    percentages,
    side,
    style_axes,
    svg,
    svg_file,
)
from compiler_opt.report.formatting import change_text, plot_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HUES = ("#3d7bd9", "#d9822b", "#2f9e6b", "#d9534a", "#8b5fbf", "#8a8f96", "#c25a9b", "#96922a")
"""Of algorithms; they can be read on white and on black."""
_LINE_STYLES = ("-", "--", ":")
_MARKERS = "osD^vP"
_MAX_PROJECTS = 60
_MAX_BAR_LABEL, _MAX_CURVE_LABEL, _MAX_TICK_LABEL = 36, 28, 14
_BAR_TEXT_POINTS = 46
"""The width of a text such as `+100.00%` and of the space around it."""
_MAX_FEATURES = 60


def project_bars(evaluation: Evaluation) -> Markup:
    """Change of each project's linked text: what is evaluated as bars, the parts of it and baselines as points.

    Baselines have a scale of their own.
    """
    projects = _linked_projects(evaluation)
    baselines = evaluation.baselines
    figure = _bar_figure(len(projects))
    ratios = [3, 2] if baselines else [1]
    bars, *others = figure.subplots(1, len(ratios), sharey=True, squeeze=False, width_ratios=ratios)[0]
    changes = [project.linked_change(evaluation.policy) or 0 for project in projects]
    alone = [[project.linked_change(name) or 0 for name in evaluation.alone] for project in projects]
    _bars(bars, [project.name for project in projects], changes, alone)
    style_axes(bars, f"{evaluation.policy}: change of linked text", zero_line=True)
    if evaluation.alone:
        _points(bars, projects, evaluation.alone)
        legend(bars, ncols=len(evaluation.alone))
    for points in others:
        _points(points, projects, baselines)
        style_axes(points, "baselines: the same, on another scale", zero_line=True)
        points.tick_params(axis="y", length=0)
        legend(points, ncols=len(baselines))
    return svg(figure, "projects")


def part_bars(evaluation: Evaluation) -> Markup:
    """What each part of the text adds to the change of each project's linked text, as stacked bars."""
    projects = _linked_projects(evaluation)
    figure = _bar_figure(len(projects))
    axes = figure.subplots()
    places = np.arange(len(projects))
    ends = {True: np.zeros(len(projects)), False: np.zeros(len(projects))}
    for color, part in zip(_HUES, PARTS, strict=False):
        values = 100 * np.array([project.contribution(evaluation.policy, part) for project in projects])
        if not values.any():
            continue
        # What grows and what shrinks go to different sides.
        left = np.where(values < 0, ends[False], ends[True])
        axes.barh(places, values, left=left, height=0.62, color=color, label=part)
        ends[False] += np.minimum(values, 0)
        ends[True] += np.maximum(values, 0)
    axes.set_yticks(places, [plot_label(project.name, _MAX_BAR_LABEL) for project in projects])
    axes.set_ylim(-0.6, len(projects) - 0.4)
    style_axes(axes, f"{evaluation.policy}: bytes of each part over all text of the default", zero_line=True)
    if axes.containers:
        legend(axes, ncols=len(PARTS))
    return svg(figure, "parts")


def _linked_projects(evaluation: Evaluation) -> list[ProjectResult]:
    """The projects that plots by project show, the one that shrank most last."""
    projects = [p for p in evaluation.projects if p.linked_change(evaluation.policy) is not None][:_MAX_PROJECTS]
    return sorted(projects, key=lambda project: -(project.linked_change(evaluation.policy) or 0))


def _points(axes: "Axes", projects: Sequence[ProjectResult], names: Sequence[str]) -> None:
    """Draws the changes of projects under these policies as points."""
    for marker, name in zip(_MARKERS, names, strict=False):
        known = [project.linked_change(name) for project in projects]
        axes.plot(
            [math.nan if change is None else 100 * change for change in known],
            range(len(projects)),
            marker,
            color=COLORS["muted"],
            markersize=5,
            fillstyle="none" if marker == "D" else "full",
            label=name,
        )


def change_bars(names: Sequence[str], changes: Sequence[float], label: str) -> Markup:
    """Relative changes as bars, the first on top."""
    return svg(_change_figure(names, changes, label), "changes")


def change_bars_file(names: Sequence[str], changes: Sequence[float], label: str) -> str:
    """The same as an SVG file."""
    return svg_file(_change_figure(names, changes, label), "changes")


def _change_figure(names: Sequence[str], changes: Sequence[float], label: str) -> "Figure":
    figure = _bar_figure(len(names))
    axes = figure.subplots()
    _bars(axes, names[::-1], changes[::-1])
    style_axes(axes, label, zero_line=True)
    return figure


def trade_off(names: Sequence[str], sizes: Sequence[float], costs: Sequence[float], labels: tuple[str, str]) -> Markup:
    """Relative changes of a size and of a cost as points with names, joined in order; both began at the origin."""
    figure = new_figure(9, 3.8)
    axes = figure.subplots()
    x, y = percentages(sizes), percentages(costs)
    axes.plot(x, y, "o-", color=COLORS["accent"], markersize=4, linewidth=1)
    axes.plot([0], [0], "o", color=COLORS["text"], markersize=4)
    for name, place in zip(names, zip(x, y, strict=True), strict=True):
        axes.annotate(name, place, (4, 4), textcoords="offset points", color=COLORS["muted"], fontsize=8)
    axes.axhline(0, color=COLORS["muted"], linewidth=0.8)
    axes.yaxis.set_major_formatter(percent_tick)
    axes.set_ylabel(labels[1], color=COLORS["muted"], fontsize=9)
    style_axes(axes, labels[0], zero_line=True, grid="y")
    return svg(figure, "trade-off")


def _bar_figure(num_bars: int) -> "Figure":
    return new_figure(9, 0.9 + 0.34 * max(2, num_bars))


def _bars(
    axes: "Axes", names: Sequence[str], changes: Sequence[float], points: Sequence[Sequence[float]] | None = None
) -> None:
    """Draws relative changes as bars, the last on top; their texts are beyond these points, too."""
    percent = percentages(changes)
    beside = [percentages(each) for each in points] if points is not None else [[] for _ in percent]
    ends = [min(c, *p, 0) if c < 0 else max(c, *p, 0) for c, p in zip(percent, beside, strict=True)]
    places = np.arange(len(percent))
    axes.barh(places, percent, height=0.62, color=[side(change) for change in percent])
    for place, change, end in zip(places, percent, ends, strict=True):
        axes.annotate(
            change_text(change / 100),
            (end, place),
            xytext=(-5 if change < 0 else 5, 0),
            textcoords="offset points",
            ha="right" if change < 0 else "left",
            va="center",
            color=COLORS["text"],
            fontsize=9,
        )
    axes.set_yticks(places, [plot_label(name, _MAX_BAR_LABEL) for name in names])
    axes.set_ylim(-0.6, len(percent) - 0.4)
    low, high = min([0, *ends]), max([0, *ends])
    length = max(high - low, 0.05)
    axes.set_xlim(low - length / 20, high + length / 20)
    # Room for the texts at the ends of the bars, of which the layout decides how long these are.
    share = min(0.35, _BAR_TEXT_POINTS / axes_points(axes))
    sides = max(1, (low < 0) + (high > 0))
    room = length * share / (1 - sides * share)
    axes.set_xlim(low - (room if low < 0 else room / 6), high + (room if high > 0 else room / 6))


def module_distribution(evaluation: Evaluation) -> Markup:
    """Histogram of the modules' changes of object text."""
    changes = 100 * np.array([module.change(evaluation.policy) for module in evaluation.modules])
    figure = new_figure(4.6, 3.1)
    axes = figure.subplots()
    if len(changes):
        reach = max(0.5, float(np.quantile(np.abs(changes), 0.99)))
        # The smallest of 1, 2, 5 times a power of ten that gives at most 12 bars on each side.
        power = 10 ** np.floor(np.log10(reach / 12))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= reach / 12 * 0.999)
        edges = step * (np.arange(-np.ceil(reach / step) - 1, np.ceil(reach / step) + 1) + 0.5)
        counts, _ = np.histogram(np.clip(changes, edges[0], edges[-1]), edges)
        middles = (edges[1:] + edges[:-1]) / 2
        colors = [side(middle if abs(middle) > step / 4 else 0) for middle in middles]
        axes.bar(middles, counts, width=step * 0.88, color=colors)
        axes.set_ylim(0, 1.15 * max(1, counts.max()))  # Room for the label of the median.
        median = float(np.median(changes))
        axes.axvline(median, color=COLORS["accent"], linewidth=1.2)
        axes.annotate(
            f"median {change_text(median / 100)}",
            (median, 1),
            xycoords=("data", "axes fraction"),
            xytext=(5, -3),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color=COLORS["accent"],
        )
    limit_ticks(axes.yaxis, 5, integer=True)
    axes.set_ylabel("modules", color=COLORS["muted"], fontsize=9)
    style_axes(axes, "change of object text (outliers in the outer bars)", grid="y")
    return svg(figure, "modules")


def size_scatter(evaluation: Evaluation) -> Markup:
    """Each module's change over its size, to see whether large or small modules change."""
    modules = [module for module in evaluation.modules if module.output(DEFAULT).text_bytes > 0]
    sizes = np.array([module.output(DEFAULT).text_bytes for module in modules], float)
    changes = 100 * np.array([module.change(evaluation.policy) for module in modules])
    figure = new_figure(4.6, 3.1)
    axes = figure.subplots()
    axes.scatter(sizes, changes, s=11, c=[side(change) for change in changes] or None, alpha=0.55, linewidths=0)
    axes.axhline(0, color=COLORS["muted"], linewidth=0.8)
    axes.set_xscale("log")
    # Powers of ten have exponents that nobody can read on a narrow screen.
    axes.xaxis.set_major_formatter(count_tick)
    axes.xaxis.set_minor_formatter(count_tick if len(sizes) and sizes.max() < 5 * sizes.min() else "")
    axes.yaxis.set_major_formatter(percent_tick)
    axes.set_ylabel("change of object text", color=COLORS["muted"], fontsize=9)
    style_axes(axes, "object text of the module under the default, bytes", percent=False, grid="y")
    return svg(figure, "sizes")


def training_curve(history: History | None) -> Markup | None:
    """Reward over compilations: the mean, thin lines for each project, and validation; None without rewards."""
    if history is None or not history.reward.values:
        return None
    figure = new_figure(9, 3.2)
    axes = figure.subplots()
    window = max(1, len(history.reward.values) // 20)
    for number, curve in enumerate(history.projects):
        line = smoothed(curve, window)
        label = "single projects" if number == 0 else None
        axes.plot(
            line.compiles, percentages(line.values), color=COLORS["neutral"], linewidth=0.8, alpha=0.7, label=label
        )
    iterations = history.reward
    axes.plot(iterations.compiles, percentages(iterations.values), ".", color=COLORS["accent"], markersize=3, alpha=0.4)
    mean = smoothed(iterations, window)
    label = f"training, mean of {window} iterations" if window > 1 else "training"
    axes.plot(mean.compiles, percentages(mean.values), color=COLORS["accent"], linewidth=2, label=label)
    for marker, curve in zip(_MARKERS, history.validation, strict=False):
        # Changes become reductions, like rewards.
        reductions = [-100 * value for value in curve.values]
        label = f"validation, {curve.name}"
        axes.plot(
            curve.compiles, reductions, marker + "-", color=COLORS["text"], markersize=4, linewidth=1, label=label
        )
    axes.axhline(0, color=COLORS["muted"], linewidth=0.8)
    axes.set_ylabel("reward (relative reduction of the score)", color=COLORS["muted"], fontsize=9)
    axes.yaxis.set_major_formatter(percent_tick)
    style_axes(axes, "compilations", percent=False, grid="y")
    limit_ticks(axes.xaxis, 6, integer=True)
    axes.xaxis.set_major_formatter(count_tick)
    legend(axes, ncols=3)
    return svg(figure, "training")


def comparison_curves(
    curves: Mapping[str, Sequence[Curve]], complete: Mapping[str, Sequence[bool]], label: str
) -> tuple[Markup, str]:
    """Relative changes over compilations by algorithm, as an element of a page and as a file.

    On the left is the mean of an algorithm's complete runs, on the right where each run ends.

    Args:
      curves: one for each run of each algorithm, some maybe empty.
      complete: of each run, whether it is complete.
      label: of the vertical axis.
    """
    figure = new_figure(9, 4.6)
    means, ends = figure.subplots(1, 2, sharey=True, width_ratios=[3, max(0.6, 0.28 * len(curves))])
    for number, (name, runs) in enumerate(curves.items()):
        color = _HUES[number % len(_HUES)]
        style = _LINE_STYLES[number // len(_HUES) % len(_LINE_STYLES)]
        name_shown = plot_label(name, _MAX_CURVE_LABEL)
        for curve, is_complete in zip(runs, complete[name], strict=True):
            if curve.compiles:
                filled = {"fillstyle": "full" if is_complete else "none"}
                ends.plot([number], [100 * curve.values[-1]], "o", color=color, markersize=5, alpha=0.8, **filled)
        whole = [
            curve for curve, is_complete in zip(runs, complete[name], strict=True) if is_complete and curve.compiles
        ]
        if not whole:
            means.plot([], [], style, color=color, linewidth=2, label=f"{name_shown} (no complete run)")
            continue
        # At the compiles of all runs, as far as all of them go.
        last = min(curve.compiles[-1] for curve in whole)
        places = sorted({place for curve in whole for place in curve.compiles if place <= last})
        values = 100 * np.array([np.interp(places, curve.compiles, curve.values) for curve in whole])  # [runs, places]
        means.plot(places, values.mean(axis=0), style, color=color, linewidth=2, label=name_shown)
        mean = 100 * float(np.mean([curve.values[-1] for curve in whole]))
        ends.plot([number - 0.3, number + 0.3], [mean, mean], color=color, linewidth=2)
    for axes in (means, ends):
        axes.axhline(0, color=COLORS["muted"], linewidth=0.8)
    means.set_ylabel(label, color=COLORS["muted"], fontsize=9)
    means.yaxis.set_major_formatter(percent_tick)
    style_axes(means, "compilations", percent=False, grid="y")
    style_axes(ends, "each run's end", percent=False, grid="y")
    limit_ticks(means.xaxis, 6, integer=True)
    means.xaxis.set_major_formatter(count_tick)
    ends.set_xticks(range(len(curves)), [plot_label(name.split()[0], _MAX_TICK_LABEL) for name in curves], rotation=90)
    ends.set_xlim(-0.7, max(1, len(curves)) - 0.3)
    if curves:
        figure.legend(
            *means.get_legend_handles_labels(),
            loc="outside upper left",
            ncols=4 if max(map(len, curves)) < 16 else 2,
            frameon=False,
            fontsize=9,
            labelcolor=COLORS["muted"],
        )
    return svg(figure, "comparison"), svg_file(figure, "comparison")


def importance_bars(importances: Sequence[Importance]) -> str:
    """An SVG file: the share of decisions that each feature changes, with intervals; the first feature on top."""
    shown = importances[:_MAX_FEATURES][::-1]
    figure = _bar_figure(len(shown))
    axes = figure.subplots()
    places = np.arange(len(shown))
    values = np.array([each.changed.value for each in shown])
    bounds = np.array([[each.changed.low, each.changed.high] for each in shown]).T  # [2, features]
    reach = np.abs(bounds - values)
    axes.barh(
        places,
        100 * values,
        height=0.62,
        color=COLORS["accent"],
        xerr=100 * reach,
        error_kw={"ecolor": COLORS["text"], "elinewidth": 1, "capsize": 2},
    )
    axes.set_yticks(places, [plot_label(each.feature, _MAX_BAR_LABEL) for each in shown])
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlim(0, 105 * max(float(bounds.max()), 1e-3))
    style_axes(axes, "decisions that change when the feature is shuffled")
    # Shares have no sign.
    axes.xaxis.set_major_formatter("{x:g}%")
    return svg_file(figure, "importance")
