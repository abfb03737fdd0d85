"""The published layouts, one file each, in the order in which a file is tried against them."""

from compass_abs.traces.formats.acme import ACME, ACME_CONVERTED
from compass_abs.traces.formats.gfs import GFS
from compass_abs.traces.formats.helios import HELIOS
from compass_abs.traces.formats.openb import OPENB
from compass_abs.traces.formats.philly import PhillyLog
from compass_abs.traces.formats.philly_flat import PHILLY_FLAT
from compass_abs.traces.formats.plain import PLAIN, PLAIN_DATED
from compass_abs.traces.formats.plain_parquet import PlainParquet
from compass_abs.traces.layout import Format

#: Those known by their first bytes come before those known by their header.
FORMATS: tuple[Format, ...] = (
    PlainParquet(),
    PhillyLog(),
    # Acme has every column of Helios and more.
    ACME,
    HELIOS,
    GFS,
    ACME_CONVERTED,
    OPENB,
    PHILLY_FLAT,
    PLAIN,
    PLAIN_DATED,
)

__all__ = ["FORMATS", "Format"]
