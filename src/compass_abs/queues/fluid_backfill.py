"""EASY backfilling where only counts matter: the queue of the bound when the others backfill."""

from compass_abs.fragmentation import minimum_used
from compass_abs.model import ClusterState, Job
from compass_abs.queues.backfill import DEPTH, Backfill, Reservation
from compass_abs.queues.base import Priorities
from compass_abs.schedulers.base import Situation


class FluidBackfill(Backfill):
    """The head is reserved the first time at which some packing of those still running and itself exists."""

    def __init__(self, state: ClusterState, depth: int = DEPTH, priorities: Priorities = Priorities.IGNORED) -> None:
        super().__init__(state, depth, priorities)
        #: What will run at the time of the latest reservation, its holder included.
        self._promised: list[int] = []

    def reserve(self, head: Job, situation: Situation) -> Reservation | None:
        """Counts what has ended until U* allows the head."""
        state = self._state
        gangs, now = state.gangs, situation.now
        demand = state.demand.copy()
        demand[head.gpus] += head.instances
        for end, job_id in sorted((max(end, now), job_id) for job_id, end in situation.ends.items()):
            job = gangs[job_id].job
            demand[job.gpus] -= job.instances
            if minimum_used(demand, state.capacity) <= len(state.nodes):
                self._promised = demand
                return Reservation(end, {}, 0)
        return None

    def _may_pass(self, job: Job, head: Job, reservation: Reservation, now: float) -> bool:
        if job.duration is not None and now + job.duration <= reservation.time:
            return True
        demand = self._promised.copy()
        demand[job.gpus] += job.instances
        return minimum_used(demand, self._state.capacity) <= len(self._state.nodes)
