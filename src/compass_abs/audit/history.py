"""What was seen of a cluster over time: from observations to lines that say what is new, and back from lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from compass_abs.audit.observation import AuditError, Observation
from compass_abs.fragmentation import avoidable_partial_nodes
from compass_abs.model import ClusterState, NodeStatus

VERSION = 1
Line = dict[str, Any]


@dataclass(slots=True)
class JobHistory:
    """One gang in one pool, from its first sight to its last."""

    id: str
    instances: int
    gpus: int
    submitted: float | None
    #: Since when it could have started: not before whatever held it let go. None while it is held.
    free_since: float | None
    pools: tuple[str, ...] = ()
    pool: str = ""
    started: float | None = None
    ended: float | None = None
    #: It stopped waiting without having run.
    gone: float | None = None
    nodes: tuple[str, ...] = ()
    movable: bool = False
    fixed: bool = False
    pause: float | None = None
    priority: int = 0
    #: It ran already when the watch began.
    initial: bool = False
    #: Instances that came later to one that ran already: jobs of their own, which end with it.
    joined: list["JobHistory"] = field(default_factory=list)

    @property
    def seen_instances(self) -> int:
        """As many as it ever had."""
        return self.instances + sum(part.instances for part in self.joined)


@dataclass(slots=True)
class PoolHistory:
    """One pool's nodes and what was measured of it."""

    name: str
    capacity: int
    #: Every node with its statuses over time; `gone` is LOST.
    nodes: dict[str, list[tuple[float, NodeStatus]]] = field(default_factory=dict)
    #: Time, partial nodes, avoidable ones, free GPUs.
    measures: list[tuple[float, int, int, int]] = field(default_factory=list)


class History:
    """What the lines of a file say together."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolHistory] = {}
        self.jobs: list[JobHistory] = []
        self.times: list[float] = []
        self.watches: list[float] = []
        #: Jobs that run, by pool and name, and jobs that wait, by name, as of the last observation.
        self.running: dict[tuple[str, str], JobHistory] = {}
        self.waiting: dict[str, JobHistory] = {}

    # ---- from an observation to lines

    def lines_for(self, observation: Observation, time: float) -> list[Line]:
        """What is new in it, ending with its `seen` line."""
        if self.times and time <= self.times[-1]:
            raise AuditError(
                f"{observation.source}: this observation is of {time:g}, but the one before it of {self.times[-1]:g}; "
                "give them in the order of their times"
            )
        pools = observation.declared_pools()
        lines = [line for name, state in pools.items() for line in self._node_lines(name, state, time)]
        lines += self._lost_pools(pools, time)
        present: dict[tuple[str, str], None] = {}
        for name, state in pools.items():
            for job_id in state.gangs:
                present[name, job_id] = None
                lines += self._start_line(observation, name, state, job_id, time)
        lines += [
            {"kind": "end", "time": time, "pool": pool, "job": job}
            for pool, job in self.running
            if (pool, job) not in present
        ]
        lines += self._waiting_lines(observation, pools, present, time)
        measures = {
            name: [state.partial_nodes, avoidable_partial_nodes(state), state.free_gpus]
            for name, state in pools.items()
        }
        return [*lines, {"kind": "seen", "time": time, "pools": measures}]

    def _node_lines(self, name: str, state: ClusterState, time: float) -> Iterator[Line]:
        known = self.pools.get(name)
        for node in state.nodes:
            before = known.nodes.get(node.name) if known is not None else None
            if before is None or before[-1][1] is not node.status:
                yield _node_line(time, name, state.capacity, node.name, node.status)
        if known is not None:
            for host, statuses in known.nodes.items():
                if host not in state.index_of and statuses[-1][1] is not NodeStatus.LOST:
                    yield _node_line(time, name, state.capacity, host, NodeStatus.LOST)

    def _lost_pools(self, pools: Mapping[str, ClusterState], time: float) -> list[Line]:
        return [
            _node_line(time, name, pool.capacity, host, NodeStatus.LOST)
            for name, pool in self.pools.items()
            if name not in pools
            for host, statuses in pool.nodes.items()
            if statuses[-1][1] is not NodeStatus.LOST
        ]

    def _start_line(
        self, observation: Observation, pool: str, state: ClusterState, job_id: str, time: float
    ) -> list[Line]:
        gang, known = state.gangs[job_id], self.running.get((pool, job_id))
        # A gang whose pods come one by one has started with all that it ever had.
        if known is not None and known.seen_instances >= gang.job.instances:
            return []
        about = observation.running.get(job_id) or observation.running.get(job_id.rpartition("/")[0])
        started = about.started if about is not None and about.started is not None else time
        return [
            {
                "kind": "start",
                "time": time,
                "pool": pool,
                "job": job_id,
                "gpus": gang.job.gpus,
                "nodes": [state.nodes[index].name for index in gang.nodes],
                "started": min(started, time),
                "submitted": None if about is None else about.submitted,
                "movable": gang.job.movable,
                "fixed": about is None or bool(about.fixed),
                "pause": gang.job.pause,
            }
        ]

    def _waiting_lines(
        self,
        observation: Observation,
        pools: Mapping[str, ClusterState],
        present: Mapping[tuple[str, str], None],
        time: float,
    ) -> list[Line]:
        lines: list[Line] = []
        here: dict[str, None] = {}
        runs = {job: None for _, job in present}
        for job in observation.pending:
            if job.copies > 1:
                continue  # nobody can tell its tasks apart before they run
            for instances, gpus in job.shapes:
                name = job.id if len(job.shapes) == 1 else f"{job.id}/{gpus}"
                if name in runs:
                    continue
                here[name] = None
                known = self.waiting.get(name)
                held = bool(job.policy)
                now = (instances, gpus, held, job.priority)
                if known is None or now != (known.instances, known.gpus, known.free_since is None, known.priority):
                    open_to = [n for n, s in pools.items() if s.capacity >= gpus and _reaches(s, job.reach)]
                    lines.append(
                        {
                            "kind": "wait",
                            "time": time,
                            "job": name,
                            "instances": instances,
                            "gpus": gpus,
                            "submitted": job.submitted,
                            "held": held,
                            "priority": job.priority,
                            "pools": open_to,
                        }
                    )
        lines += [{"kind": "gone", "time": time, "job": n} for n in self.waiting if n not in here and n not in runs]
        return lines

    # ---- from lines to what they say

    def add(self, line: Line) -> None:
        """Takes in one line."""
        kind, time = line["kind"], float(line["time"])
        if kind == "watch":
            self.watches.append(time)
        elif kind == "seen":
            self.times.append(time)
            for name, (partial, avoidable, free) in line["pools"].items():
                self.pools[name].measures.append((time, partial, avoidable, free))
        elif kind == "node":
            pool = self.pools.setdefault(line["pool"], PoolHistory(line["pool"], line["capacity"]))
            pool.nodes.setdefault(line["node"], []).append((time, NodeStatus(line["status"])))
        elif kind == "start":
            self._add_start(line, time)
        elif kind == "end":
            job = self.running.pop((line["pool"], line["job"]))
            for each in (job, *job.joined):
                each.ended = time
        elif kind == "wait":
            self._add_wait(line, time)
        elif kind == "gone":
            self.waiting.pop(line["job"]).gone = time
        else:
            raise KeyError(kind)

    def _add_start(self, line: Line, time: float) -> None:
        key = (line["pool"], line["job"])
        job = self.running.get(key) or self.waiting.pop(line["job"], None)
        submitted = line["submitted"]
        if job is not None and job.initial:
            self._join(job, line)
            return
        if job is None:
            # Not seen waiting although it was submitted before the last look: nobody knows what held it.
            unseen = submitted is None or (bool(self.times) and submitted < self.times[-1])
            free_since = line["started"] if unseen else submitted
            job = JobHistory(line["job"], 0, line["gpus"], submitted, free_since)
            self.jobs.append(job)
        elif job.free_since is None:
            job.free_since = line["started"]  # it was held up to then, as far as anybody saw
        if job.started is None:
            job.started = max(float(line["started"]), job.free_since or 0.0)
            job.initial = not self.times
        job.pool, job.instances, job.gpus = line["pool"], len(line["nodes"]), line["gpus"]
        job.nodes, job.movable, job.fixed = tuple(line["nodes"]), line["movable"], line["fixed"]
        job.pause = line["pause"]
        job.submitted = job.submitted if job.submitted is not None else submitted
        self.running[key] = job

    def _join(self, job: JobHistory, line: Line) -> None:
        """Instances that came to a gang that ran when the watch began: it begins the other telling without them."""
        nodes = list(line["nodes"])
        for node in (node for part in (job, *job.joined) for node in part.nodes):
            if node in nodes:
                nodes.remove(node)
        number = len(line["nodes"]) - job.seen_instances
        part = JobHistory(
            line["job"], number, line["gpus"], line["submitted"], line["started"], started=line["started"]
        )
        part.pool, part.nodes = line["pool"], tuple(nodes[:number])
        part.movable, part.fixed, part.pause = line["movable"], line["fixed"], line["pause"]
        job.joined.append(part)
        self.jobs.append(part)

    def _add_wait(self, line: Line, time: float) -> None:
        submitted = line["submitted"]
        job = self.waiting.get(line["job"])
        if job is None:
            since = time if submitted is None else submitted
            free_since = None if line["held"] else since
            job = JobHistory(line["job"], line["instances"], line["gpus"], since, free_since)
            self.waiting[job.id] = job
            self.jobs.append(job)
        else:
            job.instances, job.gpus = line["instances"], line["gpus"]
            job.free_since = None if line["held"] else time if job.free_since is None else job.free_since
        job.pools, job.priority = tuple(line["pools"]), line.get("priority", 0)


def _node_line(time: float, pool: str, capacity: int, node: str, status: NodeStatus) -> Line:
    return {"kind": "node", "time": time, "pool": pool, "capacity": capacity, "node": node, "status": str(status)}


def _reaches(state: ClusterState, reach: frozenset[str] | None) -> bool:
    return reach is None or any(node.name in reach for node in state.nodes)
