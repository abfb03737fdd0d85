"""Turns the rows of one file into a trace, and counts what is left out and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from compass_abs.model import Job
from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.trace import DAY, MOST_JOBS, Trace, sort_jobs
from compass_abs.traces.values import instant


class BadRows(StrEnum):
    """What to do with a row that makes no sense."""

    RAISE = "raise"
    SKIP = "skip"


class RowOrder(StrEnum):
    """What to make of rows that are not in order of submission."""

    BY_TIME = "by-time"
    """A row earlier than the one before it is a bad row."""
    ANY = "any"
    """Rows are sorted, and how many were out of order is noted."""


class Clock(StrEnum):
    """What the times of a format count from."""

    DATES = "dates"
    """Seconds since 1970 on the wall clock of the cluster."""
    RELATIVE = "relative"
    """Seconds from an instant of the publisher's choosing."""


class JobRow(NamedTuple):
    """One job as a format describes it, before the clock is set to the first midnight."""

    id: str
    instances: int
    gpus: int
    submitted: float
    duration: float
    priority: int = 0
    movable: bool = True
    pool: str = ""
    deadline: float | None = None
    pause: float | None = None


class LeftOut(StrEnum):
    """Why a row that makes sense is not a job of the study."""

    NO_GPU = "asks for no GPU"
    SHARE = "asks for a share of a GPU"
    UNEQUAL = "GPUs do not split into equal instances"
    TOO_LARGE = "an instance is larger than a node"
    NEVER_RAN = "never ran"
    UNFINISHED = "was still running, or its end was not recorded"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is: the 1-based row among the data, and the line of the file (0 where lines mean nothing)."""

    row: int
    line: int = 0

    def __str__(self) -> str:
        return f"row {self.row} (line {self.line})" if self.line else f"row {self.row}"


class Gatherer:
    """Collects the rows of one file."""

    def __init__(
        self, file: str, bad_rows: BadRows, order: RowOrder, progress: Callable[[int], None] | None = None
    ) -> None:
        self.file = file
        #: To be called with the bytes of the file read so far.
        self.progress = progress
        self.bad_rows = bad_rows
        self.order = order
        self.dropped: dict[str, int] = {}
        self._rows: list[JobRow] = []
        self._ids: set[str] = set()
        self._latest = float("-inf")
        self._disordered = 0

    def refuse(self, place: Place, error: BadValueError | str, kind: str = "") -> None:
        """Counts a bad row, or raises for it."""
        if self.bad_rows is BadRows.RAISE:
            raise TraceError(f"{self.file}, {place}: {error}; correct the row or pass --skip-bad-rows") from None
        kind = kind or (error.column if isinstance(error, BadValueError) else "unreadable")
        self._count(f"bad row: {kind}")

    def leave_out(self, reason: LeftOut) -> None:
        """Counts a row that makes sense but is not a job of the study."""
        self._count(reason.value)

    def add(self, place: Place, row: JobRow) -> None:
        """Takes a row in."""
        if len(self._rows) >= MOST_JOBS:
            raise TraceError(
                f"{self.file}, {place}: more than {MOST_JOBS:,} jobs, some 10 GB of memory; cut the file into parts"
            )
        if row.id in self._ids:
            self.refuse(place, f"job {row.id!r} appeared before", "job id repeated")
            return
        if row.submitted < self._latest:
            if self.order is RowOrder.BY_TIME:
                self.refuse(
                    place,
                    f"job {row.id!r} was submitted {self._latest - row.submitted:g} s before the one above it "
                    "(--any-order sorts such files)",
                    "time goes backwards",
                )
                return
            self._disordered += 1
        else:
            self._latest = row.submitted
        self._ids.add(row.id)
        self._rows.append(row)

    def trace(self, name: str, capacity: int, clock: Clock, origin: datetime | None) -> Trace:
        """The trace of the rows taken in; raises when there is none."""
        if not self._rows:
            left_out = "; ".join(f"{n} rows: {why}" for why, n in self.dropped.items())
            raise TraceError(f"{self.file}: no jobs" + (f" ({left_out})" if left_out else "; the file has no rows"))
        midnight, offset = self._first_midnight(clock, origin)
        jobs = sort_jobs(list(self._jobs(offset)))
        if jobs[0].submitted < 0:
            raise TraceError(
                f"{self.file}: job {jobs[0].id!r} was submitted before the origin {origin}; give an earlier one"
            )
        notes = []
        if self._disordered:
            rows = "1 row was" if self._disordered == 1 else f"{self._disordered:,} rows were"
            notes.append(f"{rows} out of order and sorted by time of submission")
        return Trace(jobs, name, capacity, midnight, dict(self.dropped), tuple(notes), source=self.file)

    def _first_midnight(self, clock: Clock, origin: datetime | None) -> tuple[datetime | None, float]:
        """The midnight of day 1, and what to add to each row's time to count from it."""
        if clock is Clock.DATES:
            if origin is None:
                first = min(row.submitted for row in self._rows) // DAY * DAY
                return instant(first), -first
            origin = origin.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
            return origin, -(origin - instant(0)).total_seconds()
        if origin is None:
            return None, 0.0
        midnight = origin.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        return midnight, (origin.replace(tzinfo=None) - midnight) / timedelta(seconds=1)

    def _jobs(self, offset: float) -> Iterator[Job]:
        # Positional: a keyword call costs a third more, and there are millions of rows.
        for id_, instances, gpus, submitted, duration, priority, movable, pool, deadline, pause in self._rows:
            yield Job(
                id_,
                instances,
                gpus,
                submitted + offset,
                duration,
                pool,
                priority,
                movable,
                None if deadline is None else deadline + offset,
                pause,
            )

    def _count(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
