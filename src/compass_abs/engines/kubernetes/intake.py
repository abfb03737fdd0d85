"""Takes gangs of users' own pods in: pods under our `schedulerName` become jobs of the controller once all are there.

What became of a gang is said on its pods. What can't be run is left alone and looked at again later: a node may come,
an owner may be mended. A gang that somebody takes back (its pods deleted, its owner gone) is cancelled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from compass_abs.engines.kubernetes import gangs, names, owners, pods
from compass_abs.engines.kubernetes.budgets import static_limit
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.engine import KubernetesEngine
from compass_abs.engines.kubernetes.gangs import Gang
from compass_abs.engines.kubernetes.job_files import PoolChoice, checkpoint_mode, job_fields, job_name
from compass_abs.engines.kubernetes.manifest import template_of
from compass_abs.engines.kubernetes.owners import Owners, membership
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError
from compass_abs.engines.submitting import Jobs, JobsAwayError
from compass_abs.model import CompassError

Say = Callable[[Object, str, str], object]

#: Reason of what is said again at every look: why a gang that was taken in waits.
WAITING = "Waiting"
#: A gang that could not be taken in is tried again after this long.
_TRY_AGAIN = 15.0
_MOST_SHAPES = 100_000

#: Namespace, name and owner's uid of a gang.
Key = tuple[str, str, str]


class _Shape(NamedTuple):
    """What a pod's owner makes of it."""

    key: Key
    size: int
    alone: bool
    until: float


class Intake:
    """Looks at the pods that wait for us, one `look` at a time. `say(pod, reason, message)` tells people."""

    def __init__(self, engine: KubernetesEngine, say: Say = lambda pod, reason, message: None) -> None:
        self._engine = engine
        self._owners = Owners(engine.client, engine.settings.resource)
        self._say = say
        self._pools = PoolChoice(engine.pools, engine.node_changes)
        #: Gangs that could not be taken in, and until when they are left alone.
        self._refused: dict[str, float] = {}
        self._shapes: dict[str, _Shape] = {}

    def look(self, jobs: Jobs) -> None:
        """Takes what is new and complete, and settles what is over or was taken back."""
        known = [found for gang in list(self._engine.gangs) if (found := self._with_job(gang, jobs)) is not None]
        taken_uids = {uid for gang in known for uid in gang.uids}
        # An owner's new pods of a gang that runs are for the engine; a plain gang's are one too many.
        running = {gang.membership for gang in known if not gang.over}
        for key, members in self._gather().items():
            fresh = [pod for pod in members if _uid(pod) not in taken_uids]
            if fresh and key not in running:
                self._try(key, fresh, jobs)
        still_open = jobs.open()
        for gang in known:
            if gang.job not in still_open:
                self._close(gang)
            elif self._was_taken_back(gang):
                jobs.cancel(gang.job)
            else:
                self._say_why(gang, still_open[gang.job])

    def _with_job(self, gang: Gang, jobs: Jobs) -> Gang | None:
        """A gang with its job: where none was written down, an intake that died may have submitted it."""
        if gang.job:
            return gang
        job = jobs.find(job_name(gang))
        if job is None:
            self._engine.gangs.drop(gang.key)
            return None
        found = replace(gang, job=job)
        self._engine.gangs.save(found)
        return found

    def waiting_pods(self) -> dict[str, list[Object]]:
        """Pods without a node of gangs that were taken in, by their jobs. From any thread."""
        waiting = {_uid(pod): pod for pod in self._engine.ledger.waiting()}
        found = {
            gang.job: [waiting[uid] for uid in gang.uids if uid in waiting] for gang in self._engine.gangs if gang.job
        }
        return {job: members for job, members in found.items() if members}

    def _gather(self) -> dict[Key, list[Object]]:
        """Waiting pods by gang, each in the order of its ranks; the gang that was complete first comes first."""
        found: dict[Key, list[Object]] = {}
        for pod in self._engine.ledger.waiting():
            if pods.mark(pod, names.OWNER):
                continue
            found.setdefault(self._shape(pod).key, []).append(pod)
        # All at once after a time in which nobody looked: whoever came first is first still.
        ordered = sorted(found.items(), key=lambda item: (max(map(pods.order_of_creation, item[1])), item[0]))
        return {key: sorted(members, key=owners.order_of) for key, members in ordered}

    def _shape(self, pod: Object) -> _Shape:
        """What its owner says, asked again now and then: it may be scaled."""
        known = self._shapes.get(_uid(pod))
        if known is None or time.monotonic() > known.until:
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.clear()
            key = membership(pod).key
            try:
                alone = self._owners.is_alone(pod)
                size = 1 if alone else self._owners.size(pod)
            except EngineUnavailableError:
                raise
            except (CompassError, AttributeError, TypeError, ValueError):
                # An owner that makes no sense is its own gang's trouble, nobody else's.
                alone, size = False, 0
            key = (key[0], pods.key_of(pod)[1], _uid(pod)) if alone else key
            known = self._shapes[_uid(pod)] = _Shape(key, size, alone, time.monotonic() + _TRY_AGAIN)
        return known

    # ---- taking in

    def _try(self, key: Key, members: Sequence[Object], jobs: Jobs) -> None:
        first = members[0]
        if time.monotonic() < self._refused.get(_uid(first), 0.0):
            return
        size = self._shape(first).size
        try:
            if not size:
                raise EngineRefusalError(f"nobody says how many pods its gang has; annotate them with {names.SIZE}")
            gates = [gate for pod in members if (gate := pods.waits_for_a_gate(pod))]
            if len(members) < size or gates:
                said = f"gate {gates[0]}" if gates else f"{len(members)} of {size} pods are there"
                self._tell(members, "WaitingForGang", f"The gang starts when it is complete: {said}")
                return
            self._take(key, members[:size], jobs)
        except (EngineUnavailableError, JobsAwayError):
            raise
        except CompassError as error:
            self._refused[_uid(first)] = time.monotonic() + _TRY_AGAIN
            self._tell(members, "CanNotRun", f"COMPASS can not run it: {error}")

    def _tell(self, members: Sequence[Object], reason: str, message: str) -> None:
        for pod in members:
            self._say(pod, reason, message)

    def _take(self, key: Key, members: Sequence[Object], jobs: Jobs) -> None:
        first = members[0]
        gang = Gang(
            key=gangs.key_of(key, _uid(first)),
            namespace=key[0],
            name=key[1],
            membership=key,
            owner=membership(first).owner,
            members=tuple(template_of(pod) for pod in members),
            uids=tuple(_uid(pod) for pod in members),
            indices=tuple(membership(pod).marks for pod in members),
            control_dir=pods.mark(first, names.CONTROL_DIR),
            alone=self._shape(first).alone,
        )
        pinned = self._pinned(members)
        pool = self._pools.of(members)
        fields = job_fields(gang, members, self._engine.settings.resource, pool, pinned)
        self._engine.gangs.save(gang)
        # Whatever goes wrong from here on, the next look asks whether there is a job of this name.
        job = jobs.submit(fields)
        self._engine.gangs.save(replace(gang, job=job))
        self._tell(members, "TakenIn", f"Its gang of {len(members)} is COMPASS job {job}")

    def _pinned(self, members: Sequence[Object]) -> str:
        """Why budgets never let it be moved, which its pods are told; empty when they do, or it never said it can."""
        limited = static_limit(self._engine.client, members) if checkpoint_mode(members[0]) else ""
        if limited:
            self._tell(members, "Pinned", f"It is not moved: {limited}")
        return limited

    # ---- settling

    def _close(self, gang: Gang) -> None:
        """Its job is over."""
        members = self._unbound(gang)
        if not members:
            self._engine.gangs.drop(gang.key)
            return
        # They were never bound. Taking them again would undo the cancellation.
        said = f"COMPASS job {gang.job} is over; delete the pods and make them anew to repeat it"
        self._tell(members, "JobOver", said)
        if not gang.over:
            self._engine.gangs.save(replace(gang, over=True))

    def _unbound(self, gang: Gang) -> list[Object]:
        return [pod for pod in self._engine.ledger.waiting() if _uid(pod) in gang.uids]

    def _was_taken_back(self, gang: Gang) -> bool:
        """True when somebody wants no more of it."""
        gone = [template for template, uid in zip(gang.members, gang.uids, strict=True) if self._is_gone(template, uid)]
        if gang.alone:
            return bool(gone)
        if self._engine.ever_ran(gang.job):
            # Its first pods may be gone because we ended them.
            gone = list(gang.members[:1]) if self._engine.withdrawn(gang.job) else []
        return bool(gone) and self._owners.is_gone(gone[0])

    def _is_gone(self, template: Object, uid: str) -> bool:
        pod = self._engine.pods.get(*pods.key_of(template))
        return pod is None or _uid(pod) != uid or pods.is_deleted(pod)

    def _say_why(self, gang: Gang, reason: str) -> None:
        if reason:
            self._tell(self._unbound(gang), WAITING, f"COMPASS job {gang.job} waits: {reason}")


def _uid(pod: Object) -> str:
    return str(pods.metadata(pod).get("uid", ""))
