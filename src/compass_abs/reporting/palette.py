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
    "sif-opt-moves": Look(_GREY, DASHED, "+", "SIFOpt, paying"),
    "compass-jit": Look(_VERMILION, SOLID, "*", "COMPASS-JIT"),
    "compass-abs": Look(_BLUE, SOLID, "o", "COMPASS-ABS"),
    "compass-abs-literal": Look(_BLUE, DOTTED, "o", "COMPASS-ABS, literal"),
    "compass-abs-residual": Look(_BLUE, DASHED, "o", "COMPASS-ABS, residual fillers"),
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
    """The look of each scheduler; those unknown here get spare ones in the order of their names."""
    chosen = {name: LOOKS[name] for name in schedulers if name in LOOKS}
    for i, name in enumerate(sorted(name for name in dict.fromkeys(schedulers) if name not in LOOKS)):
        color, dash = _SPARE[i % len(_SPARE)]
        chosen[name] = Look(color, dash, _SPARE_MARKERS[i % len(_SPARE_MARKERS)], name)
    return chosen


def name_of(scheduler: str) -> str:
    """How people know a scheduler."""
    look = LOOKS.get(scheduler)
    return look.label if look else scheduler
