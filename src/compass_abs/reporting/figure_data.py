"""What figures show, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


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
    #: Values from 0 to 1, written as per cent.
    share: bool = False
    x_share: bool = False
    #: Of points: which way is better, to draw the frontier; none without it.
    better: Literal["lower", "higher"] | None = None
    #: Schedulers that stand for what is possible and take no part in the frontier.
    bounds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FigureData:
    """A figure: panels in rows of at most `columns`."""

    kind: Literal["bars", "lines", "points", "steps"]
    panels: Sequence[Panel]
    columns: int = 3
    caption: str = ""
    legend: bool = True
