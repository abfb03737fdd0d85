"""EASY backfilling: others may pass a blocked head as long as they don't delay it."""

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, NamedTuple

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.queues.arrival_order import ArrivalOrder
from compass_abs.queues.base import Attempts, Priorities, QueueError
from compass_abs.schedulers.base import Situation

#: Jobs behind the head that are looked at in a pass; Slurm's `bf_max_job_test` defaults to 500, its sites use fewer.
DEPTH = 100


class Reservation(NamedTuple):
    """When the head can start at the latest, if running jobs end when expected and nothing else takes their GPUs."""

    time: float
    #: Free GPUs of each node that is up, at that time.
    free: dict[int, int]
    #: Instances of the head that fit then beyond those it has.
    spare: int


class Backfill(ArrivalOrder):
    """FIFO with a reservation for the head, on the actual nodes; behind it, jobs that leave the reservation intact.

    A job may pass when it ends before the reservation begins, or when the head would still fit at that time whichever
    of the nodes that are free for it now the scheduler gives it. Expected ends come from `Situation.ends`: a running
    job whose end nobody knows is taken to stay, and a waiting one whose duration nobody knows to never end.

    The reservation holds as long as running jobs stay where they are and end when expected. Where a scheduler moves
    them, others may sit on the nodes that were to come free, and it is a plan that is made anew at every event;
    schedulers that find every packing get `FluidBackfill`, which counts on that instead.
    """

    name: ClassVar[str] = "backfill"

    def __init__(self, state: ClusterState, depth: int = DEPTH, priorities: Priorities = Priorities.IGNORED) -> None:
        if depth < 1:
            raise QueueError(f"queue backfill: depth is {depth}, expected a whole number ≥ 1")
        super().__init__(priorities)
        self._state = state
        self.depth = depth

    def attempts(self, situation: Situation) -> Attempts:
        """Heads until one is refused, then those behind it that don't delay it."""
        while (head := self.head()) is not None:
            if not (yield head):
                break
            self.remove(head.id)
        if head is None or len(self) == 1:
            return
        reservation = self.reserve(head, situation)
        if reservation is None:
            return
        for job in list(islice(self, 1, self.depth + 1)):
            if not self._may_pass(job, head, reservation, situation.now) or not (yield job):
                continue
            self.remove(job.id)
            # It holds GPUs now that the reservation counted as free, on nodes that only the scheduler knew.
            reservation = self.reserve(head, situation)
            if reservation is None:
                return

    def reserve(self, head: Job, situation: Situation) -> Reservation | None:
        """The first time at which the head fits without any migration; None when running jobs' ends don't get there."""
        state, gpus = self._state, head.gpus
        free = {node.index: node.free for node in state.nodes if node.status is NodeStatus.UP}
        fitting = sum(left // gpus for left in free.values())
        if fitting >= head.instances:
            # Refused although it fits (its scheduler holds it, or has rules of its own): keep its room as it is.
            return Reservation(situation.now, free, fitting - head.instances)
        for end, nodes, size in self._departures(situation):
            for node in nodes:
                if node in free:
                    left = free[node]
                    fitting += (left + size) // gpus - left // gpus
                    free[node] = left + size
            if fitting >= head.instances:
                return Reservation(end, free, fitting - head.instances)
        return None

    def _departures(self, situation: Situation) -> Iterator[tuple[float, list[int], int]]:
        gangs, now = self._state.gangs, situation.now
        for end, job_id in sorted((max(end, now), job_id) for job_id, end in situation.ends.items()):
            gang = gangs.get(job_id)
            if gang is not None:
                yield end, gang.nodes, gang.job.gpus

    def _may_pass(self, job: Job, head: Job, reservation: Reservation, now: float) -> bool:
        if job.duration is not None and now + job.duration <= reservation.time:
            return True
        return self._worst_loss(job, head, reservation) <= reservation.spare

    def _worst_loss(self, job: Job, head: Job, reservation: Reservation) -> int:
        """How many instances of the head would at worst not fit at the reserved time because this job holds GPUs."""
        size, gpus, nodes = job.gpus, head.gpus, self._state.nodes
        # One instance can't cost more than this, wherever it goes.
        each = -(-size // gpus)
        worst_one = together = 0
        for node, left in reservation.free.items():
            fits = nodes[node].free // size
            if not fits:
                continue
            taken = min(fits, job.instances)
            together += left // gpus - (left - taken * size) // gpus
            worst_one = max(worst_one, left // gpus - (left - size) // gpus)
        return worst_one if job.instances == 1 else min(together, each * job.instances)
