"""Figures for papers and pages: vector PDF and SVG, and PNG, in one quiet, colour-blind-safe style.

The same data gives the same bytes: no dates, no random ids.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compass_abs.reporting.axes import fill
from compass_abs.reporting.comparison import ReportError
from compass_abs.reporting.figure_data import FigureData, Panel, Point
from compass_abs.reporting.palette import Look, looks, name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FigureData", "Panel", "Point", "draw", "save"]

#: Inches: a panel, and an entry of the legend.
_WIDTH, _HEIGHT, _LEGEND_COLUMN = 3.3, 2.5, 2.2
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


def draw(data: FigureData) -> "Figure":
    """The figure, to be saved or shown."""
    from matplotlib.figure import Figure

    if not data.panels:
        raise ReportError(f"figure {data.caption!r} has no panel: there was no result to draw")
    names = list(dict.fromkeys(name for panel in data.panels for name in panel.series))
    columns = min(data.columns, len(data.panels))
    rows = -(-len(data.panels) // columns)
    # Bars without groups lie, each with its scheduler's name before it; everything else has a legend.
    lying = names if data.kind == "bars" and not _grouped(data) else []
    wide = max(_WIDTH * columns, _LEGEND_COLUMN if data.legend and not lying else 0.0)
    high = (0.19 * len(lying) + 0.55 if lying else _HEIGHT) * rows
    with _styled():
        known = looks(names)
        legend = _legend(names, known, data.kind) if data.legend and not lying else []
        most = max(1, int(wide / _LEGEND_COLUMN))
        figure = Figure(
            figsize=(wide + (1.3 if lying else 0.2), high + 0.2 + 0.2 * -(-len(legend) // most)), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
        for i, (panel, ax) in enumerate(zip(data.panels, axes.flat, strict=False)):
            fill(data.kind, panel, ax, known, lying)
            if lying and i % columns:
                ax.tick_params(axis="y", labelleft=False)
        for ax in list(axes.flat)[len(data.panels) :]:
            ax.set_visible(False)
        if legend:
            figure.legend(handles=legend, loc="outside lower center", ncols=min(most, len(legend)), handlelength=2.8)
    return figure


def _grouped(data: FigureData) -> bool:
    """Whether bars stand for more than one x."""
    return any(len({p.x for points in panel.series.values() for p in points}) > 1 for panel in data.panels)


def _legend(names: Sequence[str], known: Mapping[str, Look], kind: str) -> list[Any]:
    """An entry for each scheduler, drawn as it is in the panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = []
    for name in names:
        look, label = known[name], name_of(name)
        if kind == "bars":
            entries.append(
                Patch(facecolor=look.color, edgecolor="white", hatch="////" if look.dash else None, label=label)
            )
            continue
        line: Any = "none" if kind == "points" else (0, look.dash) if look.dash else "-"
        marker = None if kind == "steps" else look.marker
        entries.append(Line2D([], [], color=look.color, linestyle=line, marker=marker, label=label))
    return entries


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
            if kind == "svg":
                path.write_text(_rounded(path.read_text(encoding="utf-8")), encoding="utf-8")
            paths.append(path)
    return paths


def _rounded(svg: str) -> str:
    """The picture with coordinates to a hundredth of a point, which nobody sees and takes a third less room."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", svg)


@contextmanager
def _styled() -> Iterator[None]:
    """matplotlib with our settings, whatever the user's are; no window is ever opened."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield
