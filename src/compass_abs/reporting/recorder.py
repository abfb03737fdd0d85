"""Watches a simulation and keeps what a report draws."""

from collections.abc import Mapping, Sequence

from compass_abs.model import ClusterState, Job, Migration, NodeStatus
from compass_abs.reporting.comparison import (
    ClusterEvent,
    Ended,
    JobView,
    Moved,
    NodeChanged,
    RunView,
    Started,
    StepSeries,
    with_absences,
)
from compass_abs.reporting.racks import rack_series, view_of
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.node_changes import NodeChange
from compass_abs.simulation.observer import Observer
from compass_abs.simulation.summary import Summary
from compass_abs.topology import DomainState


class ReportRecorder(Observer):
    """Give it to a `Simulation` as its observer, and ask for the `run_view` afterwards."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes = len(state.nodes)
        self._number: dict[str, int] = {}
        self._events: list[ClusterEvent] = []
        self._times: list[float] = []
        self._steps: dict[str, list[float]] = {key: [] for key in ("n_sif", "utilisation", "empty_nodes", "queue")}
        self._placed = True
        self._topology = state.topology if isinstance(state, DomainState) else None
        #: The jobs in the order in which they were submitted.
        self.jobs: list[JobView] = []

    def submitted(self, now: int, job: Job) -> None:
        self._number[job.id] = len(self.jobs)
        self.jobs.append(view_of(job, self._topology, now / SECOND))

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        if len(nodes) == self.jobs[self._number[record.job.id]].instances:
            self._events.append(Started(now / SECOND, self._number[record.job.id], tuple(nodes)))
        else:
            # An oracle places nothing anywhere: it has series, but no picture.
            self._placed = False

    def moved(self, now: int, moves: Sequence[Migration]) -> None:
        for move in moves:
            job = self._number[move.instance.job_id]
            self._events.append(Moved(now / SECOND, job, move.instance.number, move.target))

    def finished(self, now: int, record: JobRecord) -> None:
        self._events.append(Ended(now / SECOND, self._number[record.job.id]))

    def lost(self, now: int, record: JobRecord) -> None:
        self._events.append(Ended(now / SECOND, self._number[record.job.id]))

    def node_changed(self, now: int, change: NodeChange, index: int) -> None:
        self._events.append(NodeChanged(now / SECOND, index, int(change.status is NodeStatus.UP)))

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        self._times.append(now / SECOND)
        gpus = meter.installed
        steps = self._steps
        steps["n_sif"].append(meter.avoidable)
        steps["utilisation"].append(min(1.0, busy / gpus) if gpus else 0.0)
        steps["empty_nodes"].append(self._state.empty_nodes)
        steps["queue"].append(waiting)

    def run_view(
        self, scheduler: str, summary: Summary, settings: Mapping[str, str] | None = None, label: str = ""
    ) -> RunView:
        """What was seen, with the metrics that came out."""
        series = {key: StepSeries(self._times, values) for key, values in self._steps.items()}
        events = with_absences(self._events, self._nodes) if self._placed else []
        series |= rack_series(events, len(self._state.nodes), self._topology)
        return RunView(scheduler, summary.measured(), series, events, settings or {}, label)
