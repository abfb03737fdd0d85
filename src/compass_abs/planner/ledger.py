"""Who was moved when, as far as budgets need to know."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from compass_abs.model import Migration

HOUR = 3600.0


class Entry(NamedTuple):
    """The moves of one decision."""

    time: float
    instances: int
    jobs: tuple[str, ...]
    #: When the last of these gangs goes on.
    until: float


class Ledger:
    """Moves of the last hour, and how often each running job was moved.

    The one thing that budgets need and placements don't tell: a controller that restarts gives the entries of its
    journal back with `add`. Without budgets nothing reads it.
    """

    __slots__ = ("_by_job", "_recent")

    def __init__(self) -> None:
        self._recent: deque[Entry] = deque()
        self._by_job: dict[str, int] = {}

    def add(self, entry: Entry) -> None:
        """Notes moves; in the order of their times."""
        self._recent.append(entry)
        for job_id in entry.jobs:
            self._by_job[job_id] = self._by_job.get(job_id, 0) + 1

    def take_back(self, moves: Iterable[Migration]) -> None:
        """Forgets the latest entry, whose moves these were and which could not be carried out."""
        jobs = tuple(dict.fromkeys(move.instance.job_id for move in moves))
        if self._recent and self._recent[-1].jobs == jobs:
            self._recent.pop()
        for job_id in jobs:
            if self._by_job.get(job_id):
                self._by_job[job_id] -= 1

    def forget(self, job_id: str) -> None:
        """A job has ended."""
        self._by_job.pop(job_id, None)

    def moves_of(self, job_id: str) -> int:
        """How often a running job was moved."""
        return self._by_job.get(job_id, 0)

    def last_hour(self, now: float) -> int:
        """Instances moved in the hour before `now`."""
        recent = self._recent
        while recent and recent[0].time <= now - HOUR and recent[0].until <= now:
            recent.popleft()
        return sum(entry.instances for entry in recent if entry.time > now - HOUR)

    def in_flight(self, now: float) -> int:
        """Instances that are moving at `now`."""
        return sum(entry.instances for entry in self._recent if entry.until > now)

    def hour_frees(self, now: float) -> float | None:
        """When the hourly budget has room for more than it has now."""
        times = [entry.time + HOUR for entry in self._recent if entry.time + HOUR > now]
        return min(times, default=None)

    def flight_ends(self, now: float) -> float | None:
        """When the first of those that are moving goes on."""
        return min((entry.until for entry in self._recent if entry.until > now), default=None)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What `add` needs to be given to rebuild this, oldest first."""
        return tuple(self._recent)
