"""Traces as files in the plain format."""

from pathlib import Path

from compass_abs.traces.errors import TraceError
from compass_abs.traces.formats.plain import write_csv
from compass_abs.traces.formats.plain_parquet import write_parquet
from compass_abs.traces.trace import Trace


def write_trace(trace: Trace, path: Path) -> None:
    """Writes the trace as plain CSV or Parquet, by the name's ending; `read_trace` reads back the same jobs."""
    if not trace.jobs:
        raise TraceError(f"{path}: trace {trace.name!r} has no jobs to write")
    writers = {".csv": write_csv, ".parquet": write_parquet}
    if path.suffix not in writers:
        raise TraceError(f"{path}: expected a name that ends in .csv or .parquet")
    try:
        writers[path.suffix](trace, path)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
