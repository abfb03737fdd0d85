"""The plain format for anyone's own jobs, as CSV; the same columns as Parquet are in `plain_parquet`.

Lines `# key: value` before the header carry what is known of the trace; all are optional.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

from compass_abs.model import Job
from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat, open_text
from compass_abs.traces.trace import Trace
from compass_abs.traces.values import MOST_SECONDS, count, moment, name, number, seconds

COLUMNS = ("job_id", "instances", "gpus", "submitted", "duration")
OPTIONAL = ("priority", "movable", "pool", "deadline", "pause")
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "": True}
_PREAMBLE = "# "
#: A preamble is a handful of lines; a longer one is not ours.
_LONGEST_PREAMBLE = 1_000


def parse_plain(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    """A job of the plain format, times in seconds."""
    return _job(values, capacity, seconds(values[3], "submitted"))


def _parse_dated(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    return _job(values, capacity, moment(values[3], "submitted_at"))


def _job(values: Sequence[str], capacity: int, submitted: float) -> JobRow | LeftOut:
    job_id, instances, gpus, _, duration, priority, movable, pool, deadline, pause = values
    each = count(gpus, "gpus")
    if each > capacity:
        known = f"at most {capacity}, the GPUs of a node (--capacity changes it) or of a domain (--topology does)"
        raise BadValueError("gpus", gpus, known)
    service = seconds(duration, "duration")
    if not service:
        raise BadValueError("duration", duration, "a number of seconds > 0")
    return JobRow(
        name(job_id, "job_id"),
        count(instances, "instances"),
        each,
        submitted,
        service,
        _whole(priority, "priority") if priority else 0,
        _truth(movable),
        pool,
        seconds(deadline, "deadline") if deadline else None,
        seconds(pause, "pause") if pause else None,
    )


def _whole(text: str, column: str) -> int:
    value = number(text, column, "a whole number")
    if value != int(value) or abs(value) > MOST_SECONDS:
        raise BadValueError(column, text, "a whole number")
    return int(value)


def _truth(text: str) -> bool:
    value = _TRUTH.get(text.strip().lower())
    if value is None:
        raise BadValueError("movable", text, "true or false")
    return value


def read_preamble(path: Path) -> dict[str, list[str]]:
    """The `# key: value` lines before the header."""
    with open_text(path) as stream:
        return _preamble(stream)


def _preamble(stream: TextIO) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for _ in range(_LONGEST_PREAMBLE):
        line = stream.readline(65_536)
        if not line.startswith(_PREAMBLE):
            break
        key, colon, value = line[len(_PREAMBLE) :].partition(":")
        if colon:
            said.setdefault(key.strip().lower(), []).append(value.strip())
    return said


def describe(trace: Trace, said: dict[str, list[str]], where: str) -> Trace:
    """The trace with what its preamble says of it."""

    def last(key: str) -> str:
        return said.get(key, [""])[-1]

    origin = trace.origin
    if last("origin") and origin is None:
        try:
            origin = datetime.fromisoformat(last("origin")).replace(tzinfo=None)
        except ValueError:
            raise TraceError(f"{where}: origin is {last('origin')!r}, expected a date such as 2020-03-18") from None
    dropped = dict(trace.dropped)
    for line in said.get("left out", []):
        amount, _, why = line.partition(" ")
        if amount.isdecimal() and len(amount) < 16 and why:
            dropped[why] = dropped.get(why, 0) + int(amount)
    return replace(
        trace,
        name=last("name") or trace.name,
        origin=origin,
        dropped=dropped,
        notes=(*said.get("note", []), *trace.notes),
        synthetic=trace.synthetic or _truth(last("synthetic") or "false"),
        source=last("made by") or trace.source,
    )


def preamble_of(trace: Trace) -> list[tuple[str, str]]:
    """What `describe` reads back."""
    said = [("name", trace.name), ("capacity", str(trace.capacity))]
    if trace.origin is not None:
        said.append(("origin", trace.origin.date().isoformat()))
    if trace.synthetic:
        said.append(("synthetic", "true"))
    if trace.source:
        said.append(("made by", trace.source))
    said += [("note", note) for note in trace.notes]
    said += [("left out", f"{amount} {why}") for why, amount in trace.dropped.items()]
    return [(key, " ".join(value.split())) for key, value in said]


def capacity_in(said: dict[str, list[str]], where: str) -> int | None:
    """GPUs of a node according to the preamble."""
    value = said.get("capacity", [""])[-1]
    try:
        return count(value, "capacity") if value else None
    except BadValueError as error:
        raise TraceError(f"{where}: {error}") from None


@dataclass(frozen=True, slots=True)
class PlainFormat(TableFormat):
    """A table with a preamble."""

    def declared_capacity(self, path: Path) -> int | None:
        """What the preamble says."""
        return capacity_in(read_preamble(path), str(path))

    def finish(self, trace: Trace, path: Path) -> Trace:
        """The trace with what its preamble says of it."""
        try:
            return describe(trace, read_preamble(path), str(path))
        except BadValueError:
            raise TraceError(f"{path}: synthetic must be true or false") from None


PLAIN = PlainFormat(
    name="plain",
    title="the plain format",
    columns=COLUMNS,
    optional=OPTIONAL,
    parse=parse_plain,
    clock=Clock.RELATIVE,
    order=RowOrder.BY_TIME,
)
PLAIN_DATED = PlainFormat(
    name="plain-dated",
    title="the plain format with dates",
    columns=("job_id", "instances", "gpus", "submitted_at", "duration"),
    optional=OPTIONAL,
    parse=_parse_dated,
    clock=Clock.DATES,
    order=RowOrder.BY_TIME,
)


def columns_used(jobs: Sequence[Job]) -> list[str]:
    """The columns that say something about these jobs."""
    plain = Job("", 1, 1)
    extra = [c for c in OPTIONAL if any(getattr(job, c) != getattr(plain, c) for job in jobs)]
    return [*COLUMNS, *extra]


def cell(job: Job, column: str) -> str | int | float | bool | None:
    """The value of a job in a column."""
    value: str | int | float | bool | None = job.id if column == "job_id" else getattr(job, column)
    return value


def _text(value: str | int | float | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def write_csv(trace: Trace, path: Path) -> None:
    """Writes the trace as plain CSV; a file that is there already is replaced only when the new one is whole."""
    columns = columns_used(trace.jobs)
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        for key, value in preamble_of(trace):
            stream.write(f"{_PREAMBLE}{key}: {value}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(cell(job, c)) for c in columns] for job in trace.jobs)
    partial.replace(path)


def preamble_as_text(trace: Trace) -> str:
    """The preamble as one JSON text, for files that keep it as metadata."""
    return json.dumps(preamble_of(trace), ensure_ascii=False)
