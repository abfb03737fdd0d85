"""What stands within one set of axes: bars, dots, lines, points or steps of each scheduler."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.reporting.figure_data import Panel, Point
from compass_abs.reporting.palette import Look, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ERROR = {"elinewidth": 0.7, "ecolor": "#333333"}
_FRONTIER = "#b5b5b5"
#: Error bars that one line has room for, and places on an axis that can each be named.
_MOST_ERRORS, _MOST_TICKS = 4, 7
#: Two ticks of a logarithmic axis stand at least this factor apart.
_APART = 1.45
#: And two of a linear one this share of its length.
_SPACED = 0.11


def fill(kind: str, panel: Panel, ax: "Axes", known: Mapping[str, Look], rows: Sequence[str] = ()) -> None:
    """Draws the panel; `rows` are the schedulers, from the top, where each has a line of its own."""
    ax.set_title(panel.title)
    if not any(panel.series.values()):
        ax.set_axis_off()
        ax.text(0.5, 0.5, "nothing was measured", ha="center", va="center", color="#777777", transform=ax.transAxes)
        return
    if rows:
        _rows(panel, ax, known, rows)
        return
    if kind == "bars":
        _groups(panel, ax, known)
    else:
        if panel.better and kind == "points":
            _frontier(panel, ax)
        for i, (name, points) in enumerate(panel.series.items()):
            _line(kind, name, points, ax, known[name], (i, len(panel.series)))
        ax.set_xlabel(panel.x_label)
        if kind == "points":
            ax.grid(True, axis="x")
        _name_places(kind, panel, ax)
    if panel.from_zero:
        _from_zero(panel, ax.set_ylim)
    if panel.share:
        _per_cent(ax.yaxis)


def _from_zero(panel: Panel, limit: Any) -> None:
    """Zero is in sight, and at the edge unless something is negative."""
    if all(point.y - point.error >= 0 for points in panel.series.values() for point in points):
        limit(0)


def _per_cent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0))


def _rows(panel: Panel, ax: "Axes", known: Mapping[str, Look], rows: Sequence[str]) -> None:
    """A bar for each scheduler from left to right; a dot where the axis doesn't start at zero."""
    for name, points in panel.series.items():
        at, look = rows.index(name), known[name]
        for point in points:
            if panel.from_zero:
                ax.barh(at, point.y, 0.76, color=look.color, hatch="////" if look.dash else None, edgecolor="white",
                        linewidth=0.4, xerr=point.error or None, error_kw=_ERROR)  # fmt: skip
            else:
                # A bound's mark is a line along the axis, which would vanish in its own error bar.
                marker = "|" if look.marker == "_" else look.marker
                ax.errorbar(point.y, at, xerr=point.error or None, color=look.color, marker=marker, markersize=5.5,
                            elinewidth=0.9)  # fmt: skip
    ax.set_yticks(range(len(rows)), [name_of(name) for name in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.grid(True, axis="x")
    if panel.from_zero:
        _from_zero(panel, ax.set_xlim)
    ax.locator_params(axis="x", nbins=5)
    if panel.share:
        _per_cent(ax.xaxis)


def _groups(panel: Panel, ax: "Axes", known: Mapping[str, Look]) -> None:
    """A group of bars for each x, a bar in it for each scheduler."""
    groups = list(dict.fromkeys(point.x for points in panel.series.values() for point in points))
    width = 0.84 / max(1, len(panel.series))
    for i, (name, points) in enumerate(panel.series.items()):
        for point in points:
            at = groups.index(point.x) + (i - (len(panel.series) - 1) / 2) * width
            ax.bar(at, point.y, width * 0.9, color=known[name].color, hatch="////" if known[name].dash else None,
                   edgecolor="white", linewidth=0.4, yerr=point.error or None, error_kw=_ERROR)  # fmt: skip
    names = [f"{group:g}" if isinstance(group, float) else str(group) for group in groups]
    slanted: Any = {"rotation": 30, "ha": "right"} if sum(map(len, names)) > 24 else {}
    ax.set_xticks(range(len(groups)), names, **slanted)
    ax.tick_params(axis="x", length=0)


def _line(kind: str, name: str, points: Sequence[Point], ax: "Axes", look: Look, place: tuple[int, int]) -> None:
    style: Any = (0, look.dash) if look.dash else "-"
    xs, ys = [point.x for point in points], [point.y for point in points]
    if kind == "steps":
        ax.step(xs, ys, where="post", color=look.color, linestyle=style, linewidth=1.1)
        return
    line = style if kind == "lines" else "none"
    ax.plot(xs, ys, color=look.color, linestyle=line, marker=look.marker, markersize=6 if kind == "points" else 4.5)
    # A few for each line, each line's elsewhere: all of them at once would hide one another and what they belong to.
    every = -(-len(points) // _MOST_ERRORS)
    for i, point in enumerate(points):
        if point.error and (i - place[0]) % every == 0:
            ax.errorbar(point.x, point.y, yerr=point.error, color=look.color, elinewidth=0.8, alpha=0.65)


def _frontier(panel: Panel, ax: "Axes") -> None:
    """A staircase through those that nobody beats in both directions; bounds, which cost nothing, aside."""
    sign = 1 if panel.better == "lower" else -1
    found: list[Point] = []
    points = [point for name, points in panel.series.items() if name not in panel.bounds for point in points]
    for point in sorted(points, key=lambda point: (point.x, sign * point.y)):
        if not found or sign * point.y < sign * found[-1].y:
            found.append(point)
    xs, ys = [point.x for point in found], [point.y for point in found]
    ax.step(
        [*xs, max(point.x for point in points)], [*ys, ys[-1]], where="post", color=_FRONTIER, linewidth=3, zorder=0
    )


def _name_places(kind: str, panel: Panel, ax: "Axes") -> None:
    """Ticks where there are measurements, unless these are too many or no numbers that people choose."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    if panel.log_x:
        ax.set_xscale("log")
    if panel.x_share:
        _per_cent(ax.xaxis)
    if kind == "steps":
        ax.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: f"{int(hour)}:{round(hour % 1 * 60):02d}"))
    if kind != "lines":
        return
    places = _told_apart(sorted({point.x for points in panel.series.values() for point in points}), panel.log_x)
    if len(places) <= _MOST_TICKS:
        ax.set_xticks(places, [f"{x:.0%}" if panel.x_share else f"{x:,g}" for x in places])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())


def _told_apart(places: Sequence[float], log: bool) -> list[float]:
    """Those of the places whose names don't run into one another; the last of all is kept."""
    kept: list[float] = []
    for x in places:
        near = kept and (x < kept[-1] * _APART if log else x - kept[-1] < _SPACED * (places[-1] - places[0]))
        if near and x == places[-1]:
            kept.pop()
        if not near or x == places[-1]:
            kept.append(x)
    return kept
