"""The plain format as Parquet."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.formats.plain import (
    COLUMNS,
    OPTIONAL,
    capacity_in,
    cell,
    columns_used,
    describe,
    parse_plain,
    preamble_as_text,
)
from compass_abs.traces.gathering import Clock, Gatherer, JobRow, Place, RowOrder
from compass_abs.traces.trace import Trace

_KEY = "compass"
_SLICE = 100_000


@dataclass(frozen=True, slots=True)
class PlainParquet:
    """The columns of the plain format in a Parquet file."""

    name: str = "parquet"
    title: str = "the plain format as Parquet"
    clock: Clock = Clock.RELATIVE
    order: RowOrder = RowOrder.BY_TIME

    def matches(self, path: Path) -> bool:
        """True when the file starts with Parquet's mark."""
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(4) == b"PAR1"

    def declared_capacity(self, path: Path) -> int | None:
        """What the metadata says."""
        return capacity_in(_said(path), str(path))

    def finish(self, trace: Trace, path: Path) -> Trace:
        """The trace with what the metadata says of it."""
        try:
            return describe(trace, _said(path), str(path))
        except BadValueError:
            raise TraceError(f"{path}: synthetic must be true or false") from None

    def gather(self, path: Path, capacity: int, gatherer: Gatherer) -> None:
        """Reads every row of the file into the gatherer."""
        for number, values in enumerate(_rows(path), start=1):
            try:
                row = parse_plain(values, capacity)
            except BadValueError as error:
                gatherer.refuse(Place(number), error)
                continue
            if isinstance(row, JobRow):
                gatherer.add(Place(number), row)
            else:
                gatherer.leave_out(row)


def _rows(path: Path) -> Iterator[tuple[str, ...]]:
    """The rows as text, so that one parser checks them wherever they come from."""
    import polars as pl

    try:
        lazy = pl.scan_parquet(path)
        there = lazy.collect_schema().names()
        missing = [c for c in COLUMNS if c not in there]
        if missing:
            raise TraceError(f"{path}: column {missing[0]!r} is missing; the plain format has {', '.join(COLUMNS)}")
        chosen = [
            (pl.col(c).cast(pl.String) if c in there else pl.lit(None, pl.String).alias(c)).fill_null("")
            for c in (*COLUMNS, *OPTIONAL)
        ]
        start = 0
        while True:
            part = lazy.slice(start, _SLICE).select(chosen).collect()
            yield from part.iter_rows()
            if part.height < _SLICE:
                return
            start += _SLICE
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        # Some damaged files bring its reader to panic, which is no ordinary exception.
        raise TraceError(f"{path}: not a readable Parquet file ({_first_line(error)})") from None


def _said(path: Path) -> dict[str, list[str]]:
    import polars as pl

    try:
        text = pl.read_parquet_metadata(path).get(_KEY)
        pairs = json.loads(text) if text else []
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise TraceError(f"{path}: not a readable Parquet file ({_first_line(error)})") from None
    said: dict[str, list[str]] = {}
    try:
        for key, value in pairs:
            said.setdefault(str(key), []).append(str(value))
    except (TypeError, ValueError):
        raise TraceError(f"{path}: its metadata {_KEY!r} is not a list of pairs") from None
    return said


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def write_parquet(trace: Trace, path: Path) -> None:
    """Writes the trace as plain Parquet; a file that is there already is replaced only when the new one is whole."""
    import polars as pl

    columns: dict[str, list[Any]] = {c: [cell(job, c) for job in trace.jobs] for c in columns_used(trace.jobs)}
    partial = path.with_name(path.name + ".part")
    pl.DataFrame(columns).write_parquet(partial, metadata={_KEY: preamble_as_text(trace)})
    partial.replace(path)
