"""A controller's memory, rebuilt from a Kubernetes cluster alone: for one whose state folder isn't the latest one.

The lease says whose folder that is. A controller that comes to lead with another (its own was lost, or another replica
without a shared one led meanwhile) puts aside what it has, and takes over the gangs of users' pods that run: their pods
carry which run of which job they are, the rest is in their specs and with their owners. What waits is taken in anew.

Pods of jobs that came by `compass submit` need the folder that they were started from: without it they run to their
end, as somebody else's. So does what is left of a gang that was caught between two places; if its owner makes its pods
anew, that rest is evicted, and the gang starts again.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from compass_abs.controller.job_spec import check_job
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.records import JOBS_BEFORE, Launched, Placed, Record, Setting, Submitted
from compass_abs.engines.kubernetes import names, pods
from compass_abs.engines.kubernetes.budgets import static_limit
from compass_abs.engines.kubernetes.client import Client, Object, pod_path
from compass_abs.engines.kubernetes.gangs import Gang, GangStore
from compass_abs.engines.kubernetes.job_files import checkpoint_mode, job_fields
from compass_abs.engines.kubernetes.lease import Leadership
from compass_abs.engines.kubernetes.manifest import PodSettings, template_of
from compass_abs.engines.kubernetes.nodes import read_node
from compass_abs.engines.kubernetes.owners import Owners, membership
from compass_abs.engines.kubernetes.runs import record_of
from compass_abs.engines.local.run_files import read_json, write_json
from compass_abs.engines.protocol import RunId
from compass_abs.engines.supervised_engine import owner_of
from compass_abs.model import CompassError

#: What a state folder is made of; moved aside together.
_JOURNAL, _ENGINE = "journal.sqlite", "kubernetes"
#: Left by a take-over that has not got to its end: where it takes over from.
_UNDER_WAY = "taking-over.json"


@dataclass(slots=True)
class TakenOver:
    """What came of it."""

    #: Where the folder that was not the latest one has been put.
    aside: Path | None = None
    jobs: list[str] = field(default_factory=list)
    #: Gangs that could not be taken over, and why.
    left: list[str] = field(default_factory=list)


def take_over(client: Client, leadership: Leadership, state: Path, settings: PodSettings) -> TakenOver | None:
    """Makes this folder the latest one; None when it is. Only for who leads, before anything reads the folder."""
    last = leadership.note()
    own = owner_of(state / _ENGINE)
    under_way = read_json(state / _ENGINE / _UNDER_WAY)
    if last in ("", own) and under_way is None:
        leadership.write_note(own)
        return None
    found = TakenOver()
    if under_way is not None:
        # It was ours to write, and incomplete.
        last = str(under_way["from"])
        _remove_journal(state)
    elif (state / _JOURNAL).exists():
        found.aside = _put_aside(state)
        own = owner_of(state / _ENGINE)
    write_json(state / _ENGINE / _UNDER_WAY, {"from": last})
    rebuilding = _Rebuilding(client, settings, state / _ENGINE, own, found)
    records = rebuilding.records((last, own))
    journal = SqliteJournal(state / _JOURNAL)
    try:
        journal.append(records)
    finally:
        journal.close()
    leadership.write_note(own)
    (state / _ENGINE / _UNDER_WAY).unlink()
    return found


def _put_aside(state: Path) -> Path:
    aside = state / time.strftime("superseded-%Y%m%dT%H%M%S")
    aside.mkdir(parents=True)
    for path in [*state.glob(f"{_JOURNAL}*"), state / _ENGINE]:
        shutil.move(path, aside / path.name)
    return aside


def _remove_journal(state: Path) -> None:
    for path in state.glob(f"{_JOURNAL}*"):
        path.unlink()


class _Rebuilding:
    """Reads the cluster, and writes down what it says."""

    def __init__(self, client: Client, settings: PodSettings, root: Path, own: str, found: TakenOver) -> None:
        self._client, self._settings, self._own, self._found = client, settings, own, found
        self._owners = Owners(client, settings.resource)
        self._gangs = GangStore(root / "gangs")
        nodes = (read_node(node, settings.resource) for node in client.list("/api/v1/nodes").items)
        self._pools = {node.name: node.pool for node in nodes if node is not None}

    def records(self, owners: tuple[str, ...]) -> list[Record]:
        """The journal of a controller that has started all that runs."""
        jobs: dict[str, dict[RunId, Object]] = {}
        highest = 0
        for pod in self._client.list("/api/v1/pods").items:
            run = next((run for owner in owners if (run := pods.run_of(pod, owner)) is not None), None)
            if run is None or pod["spec"].get("schedulerName") != self._settings.scheduler:
                continue
            tail = run.job_id.rpartition("-")[2]
            highest = max(highest, int(tail) if tail.isdigit() else 0)
            if record_of(pod).get("gang"):
                jobs.setdefault(run.job_id, {})[run] = pod
        found: list[Record] = []
        for job_id, runs in sorted(jobs.items(), key=lambda item: min(map(pods.created, item[1].values()))):
            try:
                found += self._job(job_id, runs)
            except CompassError as error:
                self._found.left.append(f"{job_id}: {error}")
        # No number is given out twice: old pods go on naming their jobs.
        return [*found, Setting(JOBS_BEFORE, time.time(), str(highest))]

    def _job(self, job_id: str, runs: Mapping[RunId, Object]) -> list[Record]:
        generation = max(run.generation for run in runs)
        members = {run.number: pod for run, pod in runs.items() if run.generation == generation}
        if all(pods.is_over(pod) for pod in runs.values()):
            return []
        first = next(iter(members.values()))
        alone = self._owners.is_alone(first)
        size = 1 if alone else self._owners.size(first)
        whole = sorted(members) == list(range(size)) and all(map(pods.node_of, members.values()))
        if not whole or not all(map(self._mark, members.values())):
            self._give_up(job_id, size, runs)
            return []
        ordered = [members[number] for number in range(size)]
        gang = self._gang(job_id, ordered, alone=alone)
        pool = self._pools.get(pods.node_of(ordered[0]), "")
        pinned = static_limit(self._client, ordered) if checkpoint_mode(ordered[0]) else ""
        spec = check_job(job_fields(gang, ordered, self._settings.resource, pool, pinned))
        self._gangs.save(gang)
        self._found.jobs.append(job_id)
        submitted, placed = _time(pods.created(ordered[0])), max(_start_of(pod) for pod in ordered)
        nodes = tuple(map(pods.node_of, ordered))
        return [
            Submitted(job_id, submitted, spec.to_record()),
            # Their meeting place is in their own environment.
            Placed(job_id, placed, generation, nodes, nodes[0], 0),
            Launched(job_id, placed, generation),
        ]

    def _gang(self, job_id: str, members: list[Object], *, alone: bool) -> Gang:
        first = membership(members[0])
        return Gang(
            key=str(record_of(members[0])["gang"]),
            namespace=first.namespace,
            name=first.name,
            membership=first.key,
            owner=first.owner,
            members=tuple(template_of(pod) for pod in members),
            uids=tuple(str(pods.metadata(pod)["uid"]) for pod in members),
            indices=tuple(membership(pod).marks for pod in members),
            control_dir=pods.mark(members[0], names.CONTROL_DIR),
            alone=alone,
            job=job_id,
        )

    def _mark(self, pod: Object) -> bool:
        """Writes into a pod whose it is now; False when it is gone meanwhile."""
        change = {"metadata": {"annotations": {names.OWNER: self._own}}}
        return self._client.patch_if_there(pod_path(*pods.key_of(pod)), change) is not None

    def _give_up(self, job_id: str, size: int, runs: Mapping[RunId, Object]) -> None:
        alive = [pod for pod in runs.values() if not pods.is_over(pod) and not pods.is_deleted(pod)]
        said = f"{job_id}: of a gang of {size} there are {len(alive)} pods"
        if alive and membership(alive[0]).owner[0]:
            for pod in alive:
                self._client.evict(*pods.key_of(pod), uid=str(pods.metadata(pod)["uid"]))
            said += "; they are evicted, for their owner to begin anew"
        self._found.left.append(said)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else time.time()


def _start_of(pod: Object) -> float:
    status: Mapping[str, Any] = pod.get("status") or {}
    return _time(str(status.get("startTime") or pods.created(pod)))


def report(found: TakenOver, say: Callable[[str], None]) -> None:
    """What came of it, in words."""
    say(f"this state folder is not the latest one: took {len(found.jobs)} running jobs over from the cluster")
    if found.aside is not None:
        say(f"what it knew is in {found.aside}")
    for line in found.left:
        say(f"not taken over: {line}")
