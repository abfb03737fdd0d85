"""Nodes and jobs as `squeue --json`, `sinfo --json` and `scontrol show node --json` print them, Slurm 21.08 and later.

Keys and types differ between releases: numbers are plain or objects with "set" and "number", states are text with flags
beside it or lists, generic resources are spelt with colons or equal signs. All are read; what none of them says is left
out and counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compass_abs.audit.observation import AuditError, Observation, PendingJob, RunningJob
from compass_abs.audit.slurm_jobs import MOVABLE, Reaches, pending_job, share_of_node
from compass_abs.audit.slurm_text import gpus_in, hosts, number, slices_in, words
from compass_abs.audit.tally import Tally
from compass_abs.audit.values import items, mapping, shown, text
from compass_abs.model import CAPACITIES, NodeStatus
from compass_abs.snapshots import InstanceRow, NodeRow

_NOT_UP = (
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FAILING",
    "ERROR",
    "FUTURE",
    "INVAL",
    "INVALID_REG",
    "MAINT",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "NO_RESPOND",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWER_DOWN",
    "REBOOT_ISSUED",
    "RESERVED",
    "UNKNOWN",
)
_HOLDS_GPUS = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING")


@dataclass(slots=True)
class Machine:
    """One node while it is being read."""

    name: str
    where: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gpu: str
    capacity: int
    used: int | None
    status: NodeStatus
    instances: list[InstanceRow] = field(default_factory=list)
    unknown: int = 0

    @property
    def held(self) -> int:
        """GPUs that are accounted for."""
        return sum(instance.gpus for instance in self.instances) + self.unknown


def observe_slurm(documents: Iterable[object], source: str = "slurm", time: float | None = None) -> Observation:
    """What these documents say together; at least one has nodes."""
    reader = _Reader(source)
    any_jobs = False
    for entry in documents:
        document = mapping(entry, source)
        any_jobs = any_jobs or "jobs" in document
        if errors := items(document.get("errors"), f"{source}: errors"):
            # Without an answer 22.05 ends well and prints an empty list: nobody would run or wait.
            raise AuditError(f"{source}: Slurm says in it that it failed: {shown(_said(errors[0]))}; ask it again")
        for k, node in enumerate(items(document.get("nodes"), f"{source}: nodes")):
            reader.node(mapping(node, f"{source}: nodes[{k}]"), f"{source}: nodes[{k}]")
        for k, group in enumerate(items(document.get("sinfo"), f"{source}: sinfo")):
            reader.group(mapping(group, f"{source}: sinfo[{k}]"), f"{source}: sinfo[{k}]")
        for k, job in enumerate(items(document.get("jobs"), f"{source}: jobs")):
            reader.jobs.append((mapping(job, f"{source}: jobs[{k}]"), f"{source}: jobs[{k}]"))
        time = time if time is not None else number(document.get("last_update"), f"{source}: last_update")
    if not reader.seen:
        raise AuditError(
            f"{source}: there are jobs, but no nodes; give `sinfo --json` or `scontrol show node --json` as well"
        )
    if not any_jobs:
        reader.left_out.add("jobs, of which there is no list in it: give `squeue --json` as well", 0)
    return reader.observation(time)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.machines: dict[str, Machine] = {}
        self.seen: dict[str, None] = {}
        self.jobs: list[tuple[Mapping[str, Any], str]] = []
        self.fixed = Tally()
        self.left_out = Tally()

    # ---- nodes

    def node(self, node: Mapping[str, Any], where: str) -> None:
        """One of `scontrol show node`, or of `sinfo` before 23.02."""
        name = text(node.get("name") or node.get("hostname"), f"{where}: name")
        if not name:
            raise AuditError(f"{where}: this node has no name")
        self._add(
            name,
            f"{self.source}: node {name}",
            tuple(sorted(_names(node.get("partitions"), f"{where}: partitions"))),
            tuple(_names(node.get("active_features") or node.get("features"), f"{where}: features")),
            text(node.get("gres"), f"{where}: gres"),
            text(node.get("gres_used"), f"{where}: gres_used"),
            [*words(node.get("state"), f"{where}: state"), *words(node.get("state_flags"), f"{where}: state_flags")],
        )

    def group(self, group: Mapping[str, Any], where: str) -> None:
        """Nodes that `sinfo` since 23.02 takes together because they are alike, once for each partition."""
        gres = mapping(group.get("gres"), f"{where}: gres")
        partition = text(mapping(group.get("partition"), f"{where}: partition").get("name"), f"{where}: partition")
        features = mapping(group.get("features"), f"{where}: features")
        state = mapping(group.get("node"), f"{where}: node").get("state")
        for name in items(mapping(group.get("nodes"), f"{where}: nodes").get("nodes"), f"{where}: nodes"):
            for host in hosts(text(name, f"{where}: nodes"), f"{where}: nodes"):
                known = self.machines.get(host)
                if known is not None:
                    known.partitions = tuple(sorted(dict.fromkeys((*known.partitions, partition))))
                elif host not in self.seen:
                    self._add(
                        host,
                        f"{self.source}: node {host}",
                        (partition,) if partition else (),
                        tuple(_names(features.get("active") or features.get("total"), f"{where}: features")),
                        text(gres.get("total"), f"{where}: gres"),
                        text(gres.get("used"), f"{where}: gres used"),
                        words(state, f"{where}: state"),
                    )

    def _add(
        self,
        name: str,
        where: str,
        partitions: tuple[str, ...],
        features: tuple[str, ...],
        gres: str,
        used: str,
        states: list[str],
    ) -> None:
        if name in self.machines:  # sinfo beside scontrol, say
            return
        self.seen[name] = None
        types = gpus_in(gres, f"{where}: gres")
        total = sum(types.values())
        if slices_in(gres):
            self.left_out.add("nodes whose GPUs are shared or sliced (shards, MPS, MIG)", 1, total)
        elif not total:
            return
        elif len(types) > 1:
            self.left_out.add("nodes with GPUs of several types", 1, total)
        elif total not in CAPACITIES:
            self.left_out.add(f"nodes of {total} GPUs; only 1, 2, 4, 8 and 16 are understood", 1, total)
        else:
            up = not any(state in _NOT_UP for state in states)
            in_use = sum(gpus_in(used, f"{where}: gres_used").values()) if used else None
            status = NodeStatus.UP if up else NodeStatus.CORDONED
            self.machines[name] = Machine(name, where, partitions, features, next(iter(types)), total, in_use, status)

    # ---- jobs

    def observation(self, time: float | None) -> Observation:
        running: dict[str, RunningJob] = {}
        pending: dict[str, PendingJob] = {}
        reaches = Reaches(self.machines)
        known_ids: dict[int, None] = {}
        for job, place in self.jobs:
            job_id = number(job.get("job_id"), f"{place}: job_id")
            if job_id is None:
                raise AuditError(f"{place}: job_id is {shown(job.get('job_id'))}, expected a number")
            if job_id in known_ids:
                raise AuditError(f"{place}: job {job_id} is there twice; give one list of jobs")
            known_ids[job_id] = None
            name = _job_name(job, job_id, place)
            where = f"{self.source}: job {name}"
            states = words(job.get("job_state"), f"{where}: job_state")
            if "PENDING" in states:
                found = pending_job(job, name, where, reaches, self.left_out)
                if found is not None:
                    known = pending.get(found.id)
                    pending[found.id] = found if known is None else _joined(known, found)
            elif any(state in _HOLDS_GPUS for state in states):
                self._place(job, name, where, states, running)
        for machine in self.machines.values():
            rest = min((machine.used or 0) - machine.held, machine.capacity - machine.held)
            if rest > 0:
                machine.unknown += rest
                self.fixed.add("nodes with GPUs in use that no job of the input accounts for", 1, rest)
        rows = tuple(self._row(machine) for machine in self.machines.values())
        fixed, left_out = self.fixed.remarks(), self.left_out.remarks()
        return Observation(self.source, rows, running, tuple(pending.values()), fixed, left_out, time)

    def _place(
        self, job: Mapping[str, Any], name: str, where: str, states: list[str], running: dict[str, RunningJob]
    ) -> None:
        nodes = hosts(text(job.get("nodes"), f"{where}: nodes"), f"{where}: nodes")
        shares = [share_of_node(job, nodes, k, where) for k in range(len(nodes))]
        fixed = ""
        if "COMPLETING" in states:
            fixed = "shares of jobs that are ending"
        elif any(state in ("SUSPENDED", "STOPPED", "RESIZING") for state in states):
            fixed = "shares of jobs that are suspended or change size"
        elif text(job.get("required_nodes"), f"{where}: required_nodes"):
            fixed = "shares of jobs that ask for certain nodes"
        elif any(self._is_confined(job, node, where) for node in nodes if node in self.machines):
            fixed = "shares of jobs that features or excluded nodes confine to a part of their pool"
        placed = False
        for node, gpus in zip(nodes, shares, strict=True):
            machine = self.machines.get(node)
            if machine is None:
                if gpus:
                    known = "nodes that are left out" if node in self.seen else "nodes that the input doesn't have"
                    self.left_out.add(f"shares of jobs on {known}", 1, gpus)
                continue
            if gpus is None:
                self.left_out.add("shares of jobs that don't say how many GPUs they hold on each node", 1)
                continue
            free = machine.capacity - machine.held
            if gpus > free:
                self.fixed.add("shares of jobs on nodes that have fewer GPUs than their jobs hold", 1, free)
                machine.unknown += free
            elif gpus:
                machine.instances.append(InstanceRow(gpus, name, pinned=bool(fixed)))
                placed = True
                if fixed:
                    self.fixed.add(fixed, 1, gpus)
        if placed:
            comments = " ".join(str(job.get(key) or "") for key in ("comment", "admin_comment", "extra"))
            running[name] = RunningJob(
                name,
                number(job.get("submit_time"), f"{where}: submit_time"),
                number(job.get("start_time"), f"{where}: start_time"),
                str(job.get("user_name") or job.get("account") or ""),
                not fixed and MOVABLE in comments.replace(" ", ""),
                fixed,
            )

    def _is_confined(self, job: Mapping[str, Any], node: str, where: str) -> bool:
        """Whether a job is barred from a node of the pool that it runs in; the pool's partitions are its own."""
        if text(job.get("features"), f"{where}: features"):
            return True
        excluded = text(job.get("excluded_nodes"), f"{where}: excluded_nodes")
        mine = self.machines[node]
        return any(
            (other := self.machines.get(name)) is not None
            and (other.partitions, other.gpu, other.capacity) == (mine.partitions, mine.gpu, mine.capacity)
            for name in hosts(excluded, f"{where}: excluded_nodes")
        )

    def _row(self, machine: Machine) -> NodeRow:
        return NodeRow(
            machine.name,
            machine.capacity,
            tuple(machine.instances),
            ",".join(machine.partitions),
            machine.gpu,
            machine.status,
            machine.unknown,
            machine.where,
        )


def _joined(first: PendingJob, second: PendingJob) -> PendingJob:
    """The components of a heterogeneous job, which start together."""
    policy = first.policy or second.policy
    reach = first.reach if second.reach is None else second.reach if first.reach is None else first.reach | second.reach
    caveat = first.caveat or second.caveat
    if first.reach != second.reach:
        caveat = caveat or "its components ask for different nodes; any of those will do here"
    return replace(first, shapes=first.shapes + second.shapes, policy=policy, reach=reach, caveat=caveat)


def _job_name(job: Mapping[str, Any], job_id: int, where: str) -> str:
    """As squeue writes it: 17, 17_3 of an array; the components of a heterogeneous job are one gang."""
    array, task = number(job.get("array_job_id"), where), number(job.get("array_task_id"), where)
    if array and task is not None:
        return f"{array}_{task}"
    return str(number(job.get("het_job_id"), where) or array or job_id)


def _names(value: object, where: str) -> list[str]:
    """Names, whether as a list or with commas between them."""
    if isinstance(value, list):
        return [str(name) for name in value if name]
    return [name.strip() for name in text(value, where).split(",") if name.strip()]


def _said(error: object) -> str:
    """What an entry of `errors` says in words."""
    if not isinstance(error, Mapping):
        return str(error)
    return ": ".join(str(error[key]) for key in ("description", "error") if error.get(key)) or str(error)


def is_slurm(document: Mapping[str, Any]) -> bool:
    """Whether this is what Slurm's commands print."""
    if "jobs" in document or "sinfo" in document or "slurm" in mapping(document.get("meta"), "meta"):
        return True
    nodes = document.get("nodes")
    return isinstance(nodes, list) and bool(nodes) and isinstance(nodes[0], dict) and "gres" in nodes[0]
