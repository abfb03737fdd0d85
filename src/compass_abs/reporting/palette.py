"""One colour, line and marker for each scheduler, the same in every figure and report."""

from collections.abc import Sequence
from typing import NamedTuple

# Okabe and Ito's eight colours, told apart with every common colour blindness. Black and yellow are replaced by
# greys and a darker gold, since lines have to be seen on white and on near-black paper.
_BLUE, _SKY, _GREEN, _ORANGE = "#0072B2", "#56B4E9", "#009E73", "#E69F00"
_VERMILION, _PURPLE, _GOLD, _GREY = "#D55E00", "#CC79A7", "#B3A100", "#7A7A7A"


class Look(NamedTuple):
    """How a scheduler is drawn; `dash` in units of the line width, empty for a solid line."""

    color: str
    dash: tuple[float, ...]
    marker: str
    label: str


SOLID: tuple[float, ...] = ()
DASHED: tuple[float, ...] = (4, 2)
DOTTED: tuple[float, ...] = (1, 2)

LOOKS: dict[str, Look] = {
    "bound": Look(_GREY, DOTTED, "_", "bound"),
    "sif-opt": Look(_GREY, DOTTED, "_", "SIFOpt (bound)"),
    "hierarchical-opt": Look(_GREY, (1, 4), "|", "bound on racks"),
    "sif-opt-moves": Look(_GREY, DASHED, "+", "SIFOpt, paying"),
    "compass-jit": Look(_VERMILION, SOLID, "*", "COMPASS-JIT"),
    "compass-abs": Look(_BLUE, SOLID, "o", "COMPASS-ABS"),
    "compass-abs-literal": Look(_BLUE, DOTTED, "H", "COMPASS-ABS literal"),
    "compass-abs-residual": Look(_BLUE, DASHED, "p", "COMPASS-ABS residual"),
    "gfs": Look(_GREEN, SOLID, "s", "GFS (best fit)"),
    "fgd": Look(_SKY, SOLID, "^", "FGD"),
    "cafgd": Look(_SKY, DASHED, "v", "CAFGD"),
    "mcg": Look(_PURPLE, SOLID, "D", "MCG"),
    "fft": Look(_ORANGE, SOLID, "P", "FFT"),
    "drr": Look(_GOLD, SOLID, "X", "DRR"),
}

# For whatever else is registered: the pairs of colour and line that no known scheduler has.
_SPARE = [(color, dash) for dash in (DASHED, DOTTED) for color in (_GREEN, _PURPLE, _ORANGE, _GOLD, _VERMILION, _SKY)]
_SPARE_MARKERS = "hp<>d8H1234"


def looks(schedulers: Sequence[str]) -> dict[str, Look]:
    """The look of each scheduler.

    A setting of a known one, such as `fft:period=60`, has its colour with another line and marker; those unknown here
    get spare looks in the order of their names.
    """
    names = list(dict.fromkeys(schedulers))
    chosen = {name: LOOKS[name] for name in names if name in LOOKS}
    settings, strangers = 0, 0
    for name in sorted(name for name in names if name not in LOOKS):
        base = LOOKS.get(name.partition(":")[0])
        if base is not None:
            dash = (DASHED, DOTTED)[settings % 2]
            chosen[name] = Look(base.color, dash, _SPARE_MARKERS[settings % len(_SPARE_MARKERS)], name_of(name))
            settings += 1
        else:
            color, dash = _SPARE[strangers % len(_SPARE)]
            marker = _SPARE_MARKERS[-1 - strangers % len(_SPARE_MARKERS)]
            chosen[name] = Look(color, dash, marker, name_of(name))
            strangers += 1
    return chosen


def name_of(scheduler: str) -> str:
    """How people know a scheduler: `fft:period=60` is FFT (period 60)."""
    if scheduler in LOOKS:
        return LOOKS[scheduler].label
    name, colon, parameters = scheduler.partition(":")
    known = LOOKS[name].label if name in LOOKS else name
    return f"{known} ({parameters.replace('=', ' ').replace(',', ', ')})" if colon else known
