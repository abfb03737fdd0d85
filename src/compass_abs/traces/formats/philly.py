"""Philly `cluster_job_log`, JSON as published by msr-fiddle (Microsoft, ATC '19)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.gathering import Clock, Gatherer, JobRow, LeftOut, Place, RowOrder
from compass_abs.traces.tables import open_text
from compass_abs.traces.trace import Trace
from compass_abs.traces.values import moment, name

_CHUNK = 1 << 20
#: More blank space than this before the first bracket, and it is no log.
_BLANKS = 4_096
#: The longest record of the published file has some tens of kilobytes.
_LONGEST_RECORD = 1 << 24


@dataclass(frozen=True, slots=True)
class PhillyLog:
    """A JSON array of jobs, read a record at a time."""

    name: str = "philly"
    title: str = "a Philly cluster_job_log"
    clock: Clock = Clock.DATES
    order: RowOrder = RowOrder.ANY

    def matches(self, path: Path) -> bool:
        """True when the file starts as a JSON array does."""
        with open_text(path) as stream:
            return stream.read(_BLANKS).lstrip()[:1] == "["

    def declared_capacity(self, path: Path) -> int | None:
        """None: the log doesn't say how many GPUs a server has."""
        return None

    def finish(self, trace: Trace, path: Path) -> Trace:
        """The trace as it is."""
        return trace

    def gather(self, path: Path, capacity: int, gatherer: Gatherer) -> None:
        """Reads every record of the file into the gatherer."""
        with open_text(path, gatherer.progress) as stream:
            for number, record in enumerate(_records(stream, path), start=1):
                try:
                    row = _parse(record, capacity)
                except BadValueError as error:
                    gatherer.refuse(Place(number), error)
                    continue
                if isinstance(row, JobRow):
                    gatherer.add(Place(number), row)
                else:
                    gatherer.leave_out(row)


def _parse(record: object, capacity: int) -> JobRow | LeftOut:
    """Demand from the first attempt, service from its start to the end of the last, as in the authors' analysis."""
    job = _typed(record, dict, "record", "a JSON object")
    job_id = name(_text(job, "jobid"), "jobid")
    submitted = moment(_text(job, "submitted_time"), "submitted_time")
    attempts = _typed(job.get("attempts"), list, "attempts", "a list")
    if not attempts:
        return LeftOut.NEVER_RAN
    first = _typed(attempts[0], dict, "attempts", "a list of JSON objects")
    last = _typed(attempts[-1], dict, "attempts", "a list of JSON objects")
    sizes = [
        len(_typed(_typed(server, dict, "detail", "JSON objects").get("gpus"), list, "gpus", "a list of GPUs"))
        for server in _typed(first.get("detail"), list, "detail", "a list of servers")
    ]
    if not sum(sizes):
        return LeftOut.NO_GPU
    start, end = _recorded(first, "start_time"), _recorded(last, "end_time")
    if start is None or end is None:
        return LeftOut.UNFINISHED
    if end < start:
        raise BadValueError("end_time", last["end_time"], f"a time after start_time, {first['start_time']}")
    if len(set(sizes)) > 1:
        return LeftOut.UNEQUAL
    if sizes[0] > capacity:
        return LeftOut.TOO_LARGE
    if end == start:
        return LeftOut.NEVER_RAN
    return JobRow(job_id, len(sizes), sizes[0], submitted, end - start)


def _recorded(attempt: dict[str, Any], key: str) -> float | None:
    """A time; None where the log has null, "" or "None", its three ways of not knowing."""
    value = attempt.get(key)
    if value is None or value in ("", "None"):
        return None
    return moment(_text(attempt, key), key)


def _text(record: dict[str, Any], key: str) -> str:
    return str(_typed(record.get(key), str, key, "a text"))


def _typed(value: Any, wanted: type, key: str, expected: str) -> Any:
    if not isinstance(value, wanted):
        raise BadValueError(key, value, expected)
    return value


def _records(stream: TextIO, path: Path) -> Iterator[object]:
    """The elements of a JSON array, one after the other."""
    decoder = json.JSONDecoder()
    text, number = stream.read(_CHUNK).lstrip(), 0
    if not text:
        raise TraceError(f"{path}: the file is empty; expected a JSON list of jobs")
    text = text.removeprefix("[")
    at, ended = 0, not text
    while True:
        at = _end_of_separators(text, at)
        if text.startswith("]", at):
            return
        try:
            if at == len(text):
                raise ValueError("the list does not end")
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            # Either broken, or cut by the end of the chunk: more text decides.
            rest = len(text) - at
            more = "" if ended or rest > _LONGEST_RECORD else stream.read(max(_CHUNK, rest))
            ended = ended or not more
            if not more:
                raise TraceError(f"{path}, row {number + 1}: not a JSON record ({error})") from None
            text, at = text[at:] + more, 0
            continue
        number += 1
        yield record


def _end_of_separators(text: str, start: int) -> int:
    while start < len(text) and text[start] in " \t\r\n,":
        start += 1
    return start
