"""Our own snapshot format (docs/snapshots.md), with the jobs that wait beside the nodes."""

import json
from collections.abc import Mapping
from typing import Any

from compass_abs.audit.observation import AuditError, Observation, PendingJob, Remark, RunningJob, Shape
from compass_abs.audit.values import items, mapping, shown, text, whole
from compass_abs.snapshots import NodeRow, snapshot_rows

_KEYS = ("job", "gpus", "instances", "pool", "submitted", "priority", "owner", "policy", "copies")


def observe_own(document: Mapping[str, Any] | list[Any], source: str, time: float | None = None) -> Observation:
    """What a snapshot says: everything in it may move that isn't pinned."""
    waiting: list[Any] = []
    if isinstance(document, dict):
        document = dict(document)
        waiting = items(document.pop("pending", None), f"{source}: pending")
        if "time" in document:
            time = _seconds(document.pop("time"), f"{source}: time")
    return observe_rows(snapshot_rows(json.dumps(document), source), source, waiting, time)


def observe_rows(
    rows: list[NodeRow], source: str, waiting: list[Any] | None = None, time: float | None = None
) -> Observation:
    """The same of rows that are read already."""
    running: dict[str, RunningJob] = {}
    pinned = gpus = unknown = 0
    for row in rows:
        unknown += row.unknown_gpus
        for instance in row.instances:
            if instance.pinned:
                pinned, gpus = pinned + 1, gpus + instance.gpus
            if instance.job is not None:
                before = running.get(instance.job)
                movable = not instance.pinned and (before is None or before.movable)
                running[instance.job] = RunningJob(instance.job, movable=movable, fixed="" if movable else "pinned")
    fixed = [Remark("instances that are pinned", pinned, gpus)] if pinned else []
    if unknown:
        fixed.append(
            Remark("nodes with GPUs in use by something unknown", sum(r.unknown_gpus > 0 for r in rows), unknown)
        )
    pending = tuple(_pending(job, f"{source}: pending[{k}]", rows) for k, job in enumerate(waiting or ()))
    for k, job in enumerate(pending):
        if job.id in running or any(other.id == job.id for other in pending[:k]):
            raise AuditError(f"{source}: pending[{k}]: job {job.id!r} is in the snapshot already; rename one")
    return Observation(source, tuple(rows), running, pending, tuple(fixed), (), time)


def _pending(entry: object, where: str, rows: list[NodeRow]) -> PendingJob:
    job = mapping(entry, where)
    for key in job:
        if key not in _KEYS:
            raise AuditError(f"{where}: unknown key {key!r}, expected one of {', '.join(_KEYS)}")
    name, gpus = text(job.get("job"), f"{where}: job"), whole(job.get("gpus"), f"{where}: gpus")
    instances, copies = (
        whole(job.get("instances", 1), f"{where}: instances"),
        whole(job.get("copies", 1), f"{where}: copies"),
    )
    if not name or not gpus or not instances or not copies:
        raise AuditError(f"{where}: is {shown(entry)}, expected a job with a name, gpus ≥ 1 and instances ≥ 1")
    pool = text(job.get("pool"), f"{where}: pool")
    reach = frozenset(r.name for r in rows if pool in (r.pool, f"{r.pool}/{r.gpu}", r.gpu)) if pool else None
    priority = job.get("priority", 0)
    if type(priority) is not int:
        raise AuditError(f"{where}: priority is {shown(priority)}, expected a whole number")
    submitted = None if job.get("submitted") is None else _seconds(job["submitted"], f"{where}: submitted")
    return PendingJob(
        name,
        (Shape(instances, gpus),),
        submitted,
        priority,
        text(job.get("owner"), f"{where}: owner"),
        text(job.get("policy"), f"{where}: policy"),
        reach=reach,
        rules=f"pool {pool}",
        copies=copies,
    )


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise AuditError(f"{where} is {shown(value)}, expected seconds since 1970")
    return float(value)
