"""Figures for papers and pages: vector PDF and SVG, and PNG, in one quiet, colour-blind-safe style.

The same data gives the same bytes: no dates, no random ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compass_abs.reporting.comparison import ReportError
from compass_abs.reporting.palette import Look, looks, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
    "svg.hashsalt": "compass-abs",
    # Letters stay letters in PDF and SVG, and the font is the one that ships with matplotlib: equal everywhere.
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
}


@dataclass(frozen=True, slots=True)
class Point:
    """A mean, and the standard error that its error bar shows; 0 for none."""

    x: Any
    y: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes: the points of each scheduler."""

    title: str
    series: Mapping[str, Sequence[Point]]
    x_label: str = ""
    #: Draws the y axis from 0, as bars need.
    from_zero: bool = False
    log_x: bool = False


@dataclass(frozen=True, slots=True)
class FigureData:
    """A figure: panels in rows of at most `columns`."""

    kind: Literal["bars", "lines", "points", "steps"]
    panels: Sequence[Panel]
    columns: int = 3
    caption: str = ""
    #: Columns of the legend's grid; schedulers appear in it in the order of the first panel.
    legend: bool = field(default=True)


def draw(data: FigureData) -> "Figure":
    """The figure, to be saved or shown."""
    from matplotlib.figure import Figure

    if not data.panels:
        raise ReportError(f"figure {data.caption!r} has no panel: there was no result to draw")
    columns = min(data.columns, len(data.panels))
    rows = -(-len(data.panels) // columns)
    with _styled():
        figure = Figure(figsize=(3.3 * columns + 0.2, 2.5 * rows + 0.6), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        names = list(dict.fromkeys(name for panel in data.panels for name in panel.series))
        known = looks(names)
        for panel, ax in zip(data.panels, axes.flat, strict=False):
            _panel(data.kind, panel, ax, known)
        for ax in list(axes.flat)[len(data.panels) :]:
            ax.set_visible(False)
        if data.legend and data.kind != "bars":
            handles, labels = _unique(axes.flat)
            figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))))
    return figure


def save(figure: "Figure", stem: Path, kinds: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Writes the figure once for each kind, `stem` with the kind as its ending."""
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Producer": None, "Creator": "compass-abs"},
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": "compass-abs"},
    }
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    with _styled():
        for kind in kinds:
            path = stem.with_name(f"{stem.name}.{kind}")
            figure.savefig(path, metadata=metadata[kind])
            paths.append(path)
    return paths


@contextmanager
def _styled() -> Iterator[None]:
    """matplotlib with our settings, whatever the user's are; no window is ever opened."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def _panel(kind: str, panel: Panel, ax: "Axes", known: Mapping[str, Look]) -> None:
    ax.set_title(panel.title)
    if kind == "bars":
        _bars(panel, ax, known)
    else:
        for name, points in panel.series.items():
            _line(kind, name, points, ax, known[name])
        ax.set_xlabel(panel.x_label)
        if kind == "points":
            ax.grid(True, axis="x")
    if panel.from_zero:
        ax.set_ylim(bottom=0)
    if panel.log_x:
        ax.set_xscale("log")


def _bars(panel: Panel, ax: "Axes", known: Mapping[str, Look]) -> None:
    """A bar for each scheduler, grouped by x where there are several."""
    groups = list(dict.fromkeys(point.x for points in panel.series.values() for point in points))
    width = 0.84 / max(1, len(panel.series))
    for i, (name, points) in enumerate(panel.series.items()):
        for point in points:
            at = groups.index(point.x) + (i - (len(panel.series) - 1) / 2) * width
            ax.bar(at, point.y, width * 0.9, color=known[name].color, hatch="///" if known[name].dash else None,
                   edgecolor="white", linewidth=0.4, yerr=point.error or None,
                   error_kw={"elinewidth": 0.7, "ecolor": "#333333"})  # fmt: skip
    if len(groups) == 1:
        step = [(i - (len(panel.series) - 1) / 2) * width for i in range(len(panel.series))]
        ax.set_xticks(step, [name_of(name) for name in panel.series], rotation=40, ha="right", fontsize=7.5)
    else:
        ax.set_xticks(range(len(groups)), [str(group) for group in groups])
    ax.tick_params(axis="x", length=0)


def _line(kind: str, name: str, points: Sequence[Point], ax: "Axes", look: Look) -> None:
    style: Any = (0, look.dash) if look.dash else "-"
    xs, ys = [point.x for point in points], [point.y for point in points]
    text = name_of(name)
    if kind == "steps":
        ax.step(xs, ys, where="post", color=look.color, linestyle=style, linewidth=1.1, label=text)
        return
    errors = [point.error for point in points] if any(point.error for point in points) else None
    line = style if kind == "lines" else "none"
    ax.errorbar(xs, ys, yerr=errors, color=look.color, linestyle=line, marker=look.marker,
                elinewidth=0.7, label=text)  # fmt: skip


def _unique(axes: Any) -> tuple[list[Any], list[str]]:
    """A legend entry for each scheduler, once."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    return list(found.values()), list(found)
