"""What a report shows of racks: jobs in whole panels, and racks that hold nothing."""

from collections.abc import Sequence

from compass_abs.model import Job
from compass_abs.reporting.comparison import ClusterEvent, Ended, JobView, Moved, Started, StepSeries
from compass_abs.topology import Topology


def view_of(job: Job, topology: Topology | None, submitted: float) -> JobView:
    """The job as nodes hold it: in whole panels, where its instances are larger than one."""
    if topology is None or job.gpus <= topology.panel_gpus:
        return JobView(job.id, job.instances, job.gpus, submitted)
    pieces = topology.pieces(job)
    return JobView(job.id, pieces.instances, pieces.gpus, submitted, topology.panels_of(job.gpus))


def rack_series(events: Sequence[ClusterEvent], nodes: int, topology: Topology | None) -> dict[str, StepSeries]:
    """The time series that only a cluster of racks has, from its events; none where there is no picture."""
    rack = 1 if topology is None else topology.levels[0].usable
    return {"empty_racks": empty_racks(events, nodes, rack)} if events and rack > 1 else {}


def empty_racks(events: Sequence[ClusterEvent], nodes: int, rack: int) -> StepSeries:
    """How many racks of `rack` nodes are up and hold nothing, by what happened on their nodes."""
    #: On each node its instances, and one more while it is away; of each rack the nodes that have any.
    held, used = [0] * nodes, [0] * -(-nodes // rack)
    where: dict[int, list[int]] = {}
    away: set[int] = set()
    empty = len(used)
    times, values = list[float](), list[float]()

    def change(node: int, more: int) -> None:
        nonlocal empty
        own = node // rack
        empty -= used[own] == 0
        used[own] -= held[node] > 0
        held[node] += more
        used[own] += held[node] > 0
        empty += used[own] == 0

    for event in events:
        if isinstance(event, Started):
            where[event.job] = list(event.nodes)
            for node in event.nodes:
                change(node, 1)
        elif isinstance(event, Ended):
            for node in where.pop(event.job):
                change(node, -1)
        elif isinstance(event, Moved):
            own = where[event.job]
            change(own[event.instance], -1)
            own[event.instance] = event.target
            change(event.target, 1)
        elif (event.node in away) == bool(event.up):
            away ^= {event.node}
            change(event.node, -1 if event.up else 1)
        times.append(event.time)
        values.append(empty)
    return StepSeries(times, values)
