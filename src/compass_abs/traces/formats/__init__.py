"""The published layouts, one file each, in the order in which a file is tried against them."""

from compass_abs.traces.formats.helios import HELIOS
from compass_abs.traces.layout import Format

FORMATS: tuple[Format, ...] = (HELIOS,)

__all__ = ["FORMATS", "Format"]
