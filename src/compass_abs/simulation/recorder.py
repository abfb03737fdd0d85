"""Keeps what happened as tables: a row a job, a row an event, a row whenever the cluster changed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.model import ClusterState, Job, Migration, Reason, Verdict
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.node_changes import NodeChange
from compass_abs.simulation.observer import Observer

if TYPE_CHECKING:
    import polars

JOB_COLUMNS = (
    "number", "job", "instances", "gpus", "priority", "submitted_us", "started_us", "finished_us", "queueing_us",
    "service_us", "delay_us", "redone_us", "jct_us", "pauses", "migrations", "requeues",
)  # fmt: skip
EVENT_COLUMNS = (
    "time_us", "event", "job", "instances", "gpus", "nodes", "instance", "source", "target", "cause", "mode", "span_us",
)  # fmt: skip
SERIES_COLUMNS = (
    "time_us", "used_gpus", "busy_gpus", "installed_gpus", "nodes", "partial_nodes", "n_sif", "empty_nodes", "waiting",
    "running", "wcc_margin", "blocked",
)  # fmt: skip


class Recorder(Observer):
    """Give it to a `Simulation` as its observer; the three tables are there afterwards, as polars dataframes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._jobs: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._series: list[tuple[Any, ...]] = []
        #: The verdict last given to each waiting job, so that only a new one makes a row.
        self._verdicts: dict[str, Verdict] = {}

    # ---- what is heard

    def submitted(self, now: int, job: Job) -> None:
        self._row(now, "submit", job.id, job.instances, job.gpus)

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        job = record.job
        self._verdicts.pop(job.id, None)
        # A gang that has to wait for GPUs which are being vacated works later than it is placed.
        self._row(now, "start", job.id, job.instances, job.gpus, list(nodes), span=record.resumes - now)

    def refused(self, now: int, job: Job, reason: Reason) -> None:
        if self._verdicts.get(job.id) is not reason.verdict:
            self._verdicts[job.id] = reason.verdict
            self._row(now, "refuse", job.id, job.instances, job.gpus, cause=str(reason.verdict))

    def moved(self, now: int, moves: Sequence[Migration]) -> None:
        for move in moves:
            job_id, number = move.instance
            self._events.append(
                (now, "move", job_id, None, move.gpus, None, number, move.source, move.target, str(move.cause),
                 str(move.mode), None)
            )  # fmt: skip

    def paused(self, now: int, record: JobRecord, pause: int) -> None:
        self._row(now, "pause", record.job.id, record.job.instances, record.job.gpus, span=pause)

    def finished(self, now: int, record: JobRecord) -> None:
        job = record.job
        self._row(now, "finish", job.id, job.instances, job.gpus)
        self._jobs.append(
            (record.number, job.id, job.instances, job.gpus, job.priority, record.submitted, record.first_start, now,
             record.queueing, record.service, record.delay, record.redone, now - record.submitted, record.pauses,
             record.migrations, record.requeues)
        )  # fmt: skip

    def lost(self, now: int, record: JobRecord) -> None:
        self._row(now, "lost", record.job.id, record.job.instances, record.job.gpus)

    def node_changed(self, now: int, change: NodeChange, index: int) -> None:
        self._events.append((now, "node", None, None, None, [index], None, None, None, str(change.status), None, None))

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        state = self._state
        used = meter.nodes * state.capacity - state.free_gpus
        self._series.append(
            (now, used, busy, meter.installed, meter.nodes, meter.partial, meter.avoidable, state.empty_nodes, waiting,
             len(state.gangs), meter.margin, None if meter.blocked is None else str(meter.blocked))
        )  # fmt: skip

    def _row(
        self, now: int, event: str, job: str, instances: int, gpus: int, nodes: list[int] | None = None,
        cause: str | None = None, span: int | None = None,
    ) -> None:  # fmt: skip
        self._events.append((now, event, job, instances, gpus, nodes, None, None, None, cause, None, span))

    # ---- what is kept

    def jobs(self) -> "polars.DataFrame":
        """A row for each finished job, in the order of submission."""
        import polars as pl

        types = [pl.Int64, pl.String, *[pl.Int32] * 3, *[pl.Int64] * 8, *[pl.Int32] * 3]
        return _frame(sorted(self._jobs), JOB_COLUMNS, types)

    def events(self) -> "polars.DataFrame":
        """A row for each thing that happened, in order."""
        import polars as pl

        types = [
            pl.Int64, pl.String, pl.String, pl.Int32, pl.Int32, pl.List(pl.Int32), pl.Int32, pl.Int32, pl.Int32,
            pl.String, pl.String, pl.Int64,
        ]  # fmt: skip
        return _frame(self._events, EVENT_COLUMNS, types)

    def timeseries(self) -> "polars.DataFrame":
        """A row for each span of time in which nothing changed, with its beginning."""
        import polars as pl

        types = [pl.Int64, *[pl.Int32] * 10, pl.String]
        return _frame(self._series, SERIES_COLUMNS, types)


def _frame(rows: list[tuple[Any, ...]], columns: Sequence[str], types: Sequence[Any]) -> "polars.DataFrame":
    import polars as pl

    # Column by column: building from rows would copy them again into Python objects.
    data = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pl.DataFrame(
        [pl.Series(name, list(values), kind) for name, values, kind in zip(columns, data, types, strict=True)]
    )
