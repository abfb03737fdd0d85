"""What a simulation tells those who watch it."""

from collections.abc import Sequence

from compass_abs.model import Job, Migration, Reason
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.node_changes import NodeChange


class Observer:
    """Hears of everything that happens, in order; times in microseconds. Does nothing unless overridden."""

    def submitted(self, now: int, job: Job) -> None:
        """A job joined the queue."""

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        """A gang was placed; it works from `record.resumes` on."""

    def refused(self, now: int, job: Job, reason: Reason) -> None:
        """A job was tried and has to wait."""

    def moved(self, now: int, moves: Sequence[Migration]) -> None:
        """Instances changed nodes, in this order."""

    def paused(self, now: int, record: JobRecord, pause: int) -> None:
        """A gang stands still for a migration, until `record.resumes`."""

    def finished(self, now: int, record: JobRecord) -> None:
        """A job has ended."""

    def lost(self, now: int, record: JobRecord) -> None:
        """A gang lost a node and is back in the queue."""

    def node_changed(self, now: int, change: NodeChange, index: int) -> None:
        """A node came, went, or was cordoned."""

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        """Nothing happened between the two times; `meter` has what the cluster looked like."""


class Several(Observer):
    """Tells several observers, in this order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def submitted(self, now: int, job: Job) -> None:
        for observer in self._observers:
            observer.submitted(now, job)

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        for observer in self._observers:
            observer.started(now, record, nodes)

    def refused(self, now: int, job: Job, reason: Reason) -> None:
        for observer in self._observers:
            observer.refused(now, job, reason)

    def moved(self, now: int, moves: Sequence[Migration]) -> None:
        for observer in self._observers:
            observer.moved(now, moves)

    def paused(self, now: int, record: JobRecord, pause: int) -> None:
        for observer in self._observers:
            observer.paused(now, record, pause)

    def finished(self, now: int, record: JobRecord) -> None:
        for observer in self._observers:
            observer.finished(now, record)

    def lost(self, now: int, record: JobRecord) -> None:
        for observer in self._observers:
            observer.lost(now, record)

    def node_changed(self, now: int, change: NodeChange, index: int) -> None:
        for observer in self._observers:
            observer.node_changed(now, change, index)

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        for observer in self._observers:
            observer.passed(now, until, meter, busy, waiting)
