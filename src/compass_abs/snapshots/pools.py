"""From rows to states: one pool for each set of interchangeable nodes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.snapshots.rows import InstanceRow, NodeRow, SnapshotError

#: The name of the pool of nodes that name none.
UNNAMED = "default"


@dataclass(slots=True)
class _Gang:
    first: InstanceRow
    nodes: list[int] = field(default_factory=list)
    pinned: bool = False
    priority: int = 0
    pause: float | None = None


def pools_of(rows: Iterable[NodeRow]) -> dict[str, ClusterState]:
    """A state for each pool, in the order of their first nodes.

    A pool is named after its `pool` and `gpu`, and its capacity where several share that name. Instances of one job
    are one gang as far as they have one size and one pool; a gang is pinned as a whole when one instance is.
    """
    grouped: dict[tuple[str, int], list[NodeRow]] = {}
    for row in rows:
        row.check()
        label = "/".join(part for part in (row.pool, row.gpu) if part) or UNNAMED
        grouped.setdefault((label, row.capacity), []).append(row)
    labels = [label for label, _ in grouped]
    pools: dict[str, ClusterState] = {}
    for (label, capacity), members in grouped.items():
        name = label if labels.count(label) == 1 else f"{label}/{capacity}"
        if name in pools:
            raise SnapshotError(f"{members[0].where}: two pools would be named {name!r}; rename one")
        pools[name] = _state_of(name, capacity, members)
    return pools


def _state_of(name: str, capacity: int, rows: list[NodeRow]) -> ClusterState:
    first: dict[str, NodeRow] = {}
    for row in rows:
        if row.name in first:
            raise SnapshotError(f"{row.where}: node {row.name!r} is at {first[row.name].where} already")
        first[row.name] = row
    state = ClusterState([row.name for row in rows], capacity, name)
    for job_id, gang in _gangs_of(rows):
        if job_id in state.gangs:
            where = rows[gang.nodes[0]].where
            raise SnapshotError(f"{where}: two gangs would be named {job_id!r}; rename one of the jobs")
        job = Job(
            job_id,
            len(gang.nodes),
            gang.first.gpus,
            pool=name,
            priority=gang.priority,
            movable=not gang.pinned,
            pause=gang.pause,
        )
        state.place(job, gang.nodes)
    for row in rows:
        if row.status is not NodeStatus.UP:
            state.set_status(row.name, row.status)
    return state


def _gangs_of(rows: list[NodeRow]) -> list[tuple[str, _Gang]]:
    """Gangs with names: the job's, with the size where a job has several; the node's where an instance has no job."""
    gangs: dict[tuple[object, ...], _Gang] = {}
    sizes: dict[str, int] = {}
    for index, row in enumerate(rows):
        for k, instance in enumerate((*row.instances, *_unknown(row))):
            key: tuple[object, ...] = (instance.job, instance.gpus) if instance.job else (index, k, row.name)
            gang = gangs.get(key)
            if gang is None:
                gang = gangs[key] = _Gang(instance, priority=instance.priority)
                if instance.job:
                    sizes[instance.job] = sizes.get(instance.job, 0) + 1
            gang.nodes.append(index)
            gang.pinned |= instance.pinned
            gang.priority = max(gang.priority, instance.priority)
            if instance.pause is not None:
                gang.pause = max(gang.pause or 0.0, instance.pause)
    named: list[tuple[str, _Gang]] = []
    for key, gang in gangs.items():
        job, row = gang.first.job, rows[gang.nodes[0]]
        if job:
            named.append((f"{job}/{gang.first.gpus}" if sizes[job] > 1 else job, gang))
        else:
            named.append((f"{row.name}#{'unknown' if key[1] == len(row.instances) else key[1]}", gang))
    return named


def _unknown(row: NodeRow) -> tuple[InstanceRow, ...]:
    return (InstanceRow(row.unknown_gpus, pinned=True),) if row.unknown_gpus else ()
