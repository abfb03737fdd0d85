"""From a name or a file to a `Trace`, whatever its format."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from compass_abs.model import CAPACITIES
from compass_abs.model.cluster_state import LARGEST_CAPACITY
from compass_abs.traces.catalog import Published, locate
from compass_abs.traces.errors import TraceError
from compass_abs.traces.formats import FORMATS, Format
from compass_abs.traces.formats.plain import COLUMNS
from compass_abs.traces.gathering import BadRows, Gatherer, RowOrder
from compass_abs.traces.tables import TableFormat
from compass_abs.traces.tail import Tail, with_tail
from compass_abs.traces.trace import Trace


def read_trace(
    name_or_path: str | Path,
    format: str | None = None,
    bad_rows: BadRows = BadRows.RAISE,
    *,
    capacity: int | None = None,
    largest_instance: int | None = None,
    order: RowOrder | None = None,
    origin: datetime | None = None,
    tail: Tail = Tail.AS_PUBLISHED,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """The jobs of a named trace or of a file, preprocessed as in the paper.

    A name is looked up under $COMPASS_TRACES, then among the fetched files, then among the bundled samples. `origin`
    is the clock time of second 0 for files with relative times, and the first midnight for files with dates.
    `largest_instance` is for clusters whose instances may span several nodes of a domain: its GPUs.
    `seed` is used by `Tail.REFILLED` only. `progress` is called with the bytes of the file read so far.
    """
    path, published = locate(name_or_path)
    chosen = _by_name(format) if format else _by_content(path)
    nodes = capacity
    if nodes is None:
        nodes = chosen.declared_capacity(path) or (published.capacity if published else 8)
    if largest_instance is not None:
        nodes = largest_instance
    elif nodes not in CAPACITIES and (capacity is not None or not 1 <= nodes <= LARGEST_CAPACITY * 8):
        raise TraceError(f"{path}: capacity is {nodes}, expected one of {', '.join(map(str, CAPACITIES))}")
    gatherer = Gatherer(str(path), bad_rows, order or chosen.order, progress)
    chosen.gather(path, nodes, gatherer)
    if origin is None and published is not None:
        origin = published.origin
    trace = gatherer.trace(_name(path, published), nodes, chosen.clock, origin)
    trace = chosen.finish(trace, path)
    if published is not None:
        trace = replace(trace, notes=(*trace.notes, *published.notes), synthetic=trace.synthetic or published.synthetic)
    return with_tail(trace, tail, seed)


def _by_name(name: str) -> Format:
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    raise TraceError(f"format is {name!r}, expected one of {', '.join(f.name for f in FORMATS)}")


def _by_content(path: Path) -> Format:
    for candidate in FORMATS:
        if candidate.matches(path):
            return candidate
    # A file that lacks a column or two of a known layout is more likely that than anything else.
    tables = [f for f in FORMATS if isinstance(f, TableFormat)]
    missing, nearest = min(((f.missing(path), f) for f in tables), key=lambda pair: len(pair[0]) / len(pair[1].columns))
    if len(missing) <= len(nearest.columns) / 2:
        columns = ", ".join(map(repr, missing))
        raise TraceError(f"{path}: the header lacks column {columns} of {nearest.title}; --format names another format")
    line = _first_line(path)
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if line.count(separator) > line.count(","):
            raise TraceError(f"{path}: values are separated by {name} in its first line {line!r}; expected commas")
    raise TraceError(
        f"{path}: it starts with {line!r}, which is no known trace; jobs of your own need the columns "
        f"{', '.join(COLUMNS)} (docs/traces.md), and --format names one of {', '.join(f.name for f in FORMATS)}"
    )


def _name(path: Path, published: Published | None) -> str:
    return published.name if published else path.name.split(".")[0]


def _first_line(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(120)
    return start.split(b"\n")[0].decode("utf-8", "replace").strip()
