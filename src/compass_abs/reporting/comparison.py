"""What a report is made of, as plain values: one workload, and what each scheduler did with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from compass_abs.model import CompassError
from compass_abs.reporting.palette import name_of
from compass_abs.topology import Topology

if TYPE_CHECKING:
    from compass_abs.simulation import LevelSummary


class ReportError(CompassError):
    """A report was asked for that its data can't fill."""


class JobView(NamedTuple):
    """A job as it is drawn: a gang of `instances` of `gpus` GPUs each, on a node each."""

    id: str
    instances: int
    gpus: int
    submitted: float
    #: How many of these make one instance of the job: the whole panels of one larger than a panel.
    panels: int = 1


class Started(NamedTuple):
    """A gang starts; instance k on `nodes[k]`. Jobs are positions in `Comparison.jobs`."""

    time: float
    job: int
    nodes: Sequence[int]


class Ended(NamedTuple):
    """A gang is gone: finished, cancelled, or back in the queue."""

    time: float
    job: int


class Moved(NamedTuple):
    """One instance of a running gang is on another node now."""

    time: float
    job: int
    instance: int
    target: int


class NodeChanged(NamedTuple):
    """A node stops or starts being available."""

    time: float
    node: int
    up: int


ClusterEvent = Started | Ended | Moved | NodeChanged


def with_absences(events: Sequence[ClusterEvent], nodes: int) -> Sequence[ClusterEvent]:
    """The events, preceded by that whatever joins the first `nodes` nodes isn't there from the start."""
    joined = dict.fromkeys(event.node for event in events if isinstance(event, NodeChanged) and event.node >= nodes)
    return [*(NodeChanged(events[0].time, node, 0) for node in joined), *events]


class StepSeries(NamedTuple):
    """A quantity that keeps `values[i]` from `times[i]` until `times[i + 1]`."""

    times: Sequence[float]
    values: Sequence[float]


#: The time series that a report draws, with their titles and what they mean.
SERIES: dict[str, tuple[str, str]] = {
    "n_sif": ("Avoidable partial nodes (N·SIF)", "Partly filled nodes beyond the fewest any packing could have."),
    "utilisation": ("GPUs in use", "Share of the cluster's GPUs that run something."),
    "empty_nodes": ("Empty nodes", "Nodes on which nothing runs: room for whole-node gangs."),
    "queue": ("Jobs waiting", "Jobs that have been submitted and haven't started."),
    "empty_racks": ("Empty racks", "Racks of which every panel is up and empty: room for instances of a whole rack."),
}


@dataclass(frozen=True, slots=True)
class RunView:
    """What one scheduler did: its metrics, how things went over time, and every placement in order."""

    scheduler: str
    summary: Mapping[str, float]
    series: Mapping[str, StepSeries] = field(default_factory=dict)
    #: In the order in which they happened; empty for a bound that places nothing.
    events: Sequence[ClusterEvent] = ()
    #: What is particular to this run, its parameters say.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: What to call it; the scheduler's usual name when empty.
    label: str = ""
    #: What each level of a topology looked like, panels first; empty where that wasn't measured.
    levels: "tuple[LevelSummary, ...]" = ()

    @property
    def title(self) -> str:
        """The name to show."""
        return self.label or name_of(self.scheduler)


class Dropped(NamedTuple):
    """Rows of a trace that took no part, and why."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several schedulers on the same jobs and the same cluster."""

    title: str
    jobs: Sequence[JobView]
    nodes: int
    runs: Sequence[RunView]
    capacity: int = 8
    #: How the nodes, which are panels then, make racks; None for a flat cluster.
    topology: Topology | None = None
    subtitle: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    dropped: Sequence[Dropped] = ()
    #: What readers must know before they believe a number: synthetic data, durations that were cut, and so on.
    notes: Sequence[str] = ()
    #: Seconds since 1970 (UTC) at time 0, when the trace says.
    epoch: float | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise ReportError(f"report {self.title!r}: there is no run in it; give at least one")
        names = [run.title for run in self.runs]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                raise ReportError(f"report {self.title!r}: two runs are called {name!r}; give one another label")

    @property
    def cluster(self) -> str:
        """The cluster in words."""
        if self.topology is None:
            return f"{self.nodes:,} nodes of {self.capacity} GPUs"
        return self.topology.described(self.nodes)

    @property
    def span(self) -> tuple[float, float]:
        """First and last instant of anything in it."""
        times = [job.submitted for job in self.jobs]
        for run in self.runs:
            if run.events:
                times += (run.events[0].time, run.events[-1].time)
            for series in run.series.values():
                if series.times:
                    times += (series.times[0], series.times[-1])
        return (min(times), max(times)) if times else (0.0, 0.0)


def node_count(nodes: int, runs: Sequence[RunView]) -> int:
    """The nodes that are drawn: those of the start, and those that join later."""
    changes = (event for run in runs for event in run.events if isinstance(event, NodeChanged))
    return max(nodes, *(change.node + 1 for change in changes), 0)
