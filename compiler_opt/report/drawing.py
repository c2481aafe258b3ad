"""What plots share: figures, ticks, colours, and the way into a page.

Colours are drawn as placeholders and replaced by CSS variables of the page, so that plots follow its light or dark
theme. Text stays text, in the page's font.

Matplotlib is imported by the first figure, since that takes longer than all other imports of a command together.
"""

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from markupsafe import Markup

from compiler_opt.report.formatting import MINUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = {
    "text": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "good": "#040404",
    "bad": "#050505",
    "neutral": "#060606",
    "accent": "#070707",
}
_ON_WHITE = {
    "text": "#1d2024",
    "muted": "#626a73",
    "grid": "#e3e4e1",
    "good": "#1f8a5b",
    "bad": "#c8453b",
    "neutral": "#a4a9b0",
    "accent": "#2d66c3",
}
_TICK_POINTS = 42
"""The width of a label such as `+1000%` and of the space around it."""


def new_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def limit_ticks(axis: "Axis", count: int, *, integer: bool = False) -> None:
    """Draws at most `count` intervals between ticks; with `integer`, only at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(count, integer=integer))


def percent_tick(value: float, position: float | None = None) -> str:
    """A tick's label, as Matplotlib asks for it."""
    del position
    return f"{value:+g}%".replace("-", MINUS) if value else "0%"


def count_tick(value: float, position: float | None = None) -> str:
    """The same for a number of things."""
    del position
    return f"{value:,.0f}"


def percentages(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def side(change: float) -> str:
    return COLORS["good" if change < 0 else "bad" if change > 0 else "neutral"]


def style_axes(
    axes: "Axes", label: str, *, percent: bool = True, zero_line: bool = False, grid: Literal["x", "y"] = "x"
) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(COLORS["grid"])
    axes.tick_params(colors=COLORS["muted"], labelsize=9, length=0, which="both")
    for tick in axes.get_yticklabels():
        tick.set_color(COLORS["text"])
    axes.grid(axis=grid, color=COLORS["grid"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(label, color=COLORS["muted"], fontsize=9)
    if percent:
        limit_ticks(axes.xaxis, 6)
        axes.xaxis.set_major_formatter(percent_tick)
    if zero_line:
        axes.axvline(0, color=COLORS["muted"], linewidth=0.8)


def legend(axes: "Axes", ncols: int) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=ncols,
        frameon=False,
        fontsize=9,
        labelcolor=COLORS["muted"],
        handletextpad=0.4,
        columnspacing=1.4,
        borderaxespad=0.2,
    )


def svg_file(figure: "Figure", name: str) -> str:
    """The figure as an SVG file on white, which other pages can show."""
    figure.patch.set_alpha(1)
    svg = _drawn(figure, name)
    for color, placeholder in COLORS.items():
        svg = svg.replace(placeholder, _ON_WHITE[color])
    return svg


def axes_points(axes: "Axes") -> float:
    """The width of axes as the layout makes it, without labels."""
    figure = cast("Figure", axes.figure)  # reports have no figures in figures
    figure.draw_without_rendering()
    return float(axes.get_window_extent().width * 72 / figure.dpi)


def _drawn(figure: "Figure", name: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.ticker import MaxNLocator

    for axes in figure.axes:
        locator = axes.xaxis.get_major_locator()
        if isinstance(locator, MaxNLocator):
            locator.set_params(nbins=max(2, min(6, int(axes_points(axes) / _TICK_POINTS))))
    buffer = io.StringIO()
    # The salt makes identifiers differ between the plots of a page, and equal between runs.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def svg(figure: "Figure", name: str) -> Markup:
    """The figure as an `<svg>` element without size and background, with CSS variables as colours."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    svg = _drawn(figure, name)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' width="[^"]*" height="[^"]*"', ' role="img"', svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", svg)
    for color, placeholder in COLORS.items():
        svg = svg.replace(placeholder, f"var(--{color})")
    return Markup(svg)
