"""EASY backfilling where only counts matter: for schedulers that find every packing, and for the bound."""

from compass_abs.fragmentation import minimum_used
from compass_abs.model import ClusterState, Gang, Job, NodeStatus
from compass_abs.queues.backfill import DEPTH, Backfill, Reservation
from compass_abs.queues.base import Priorities
from compass_abs.schedulers.base import Situation


class FluidBackfill(Backfill):
    """The head is reserved the first time at which some packing of those still running and itself exists.

    A scheduler that moves jobs wherever it likes starts the head then, if all that runs may move. What nodes are free
    now says nothing under it: the moves that let one job pass could take the very nodes that the head was to get.
    """

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
        if self._fits(demand):
            # Refused although it fits (its scheduler holds it): keep its room as it is.
            self._promised = demand
            return Reservation(now, {}, 0)
        for end, job_id in sorted((max(end, now), job_id) for job_id, end in situation.ends.items()):
            gang = gangs.get(job_id)
            if gang is None:
                continue
            demand[gang.job.gpus] -= self._counted(gang)
            if self._fits(demand):
                self._promised = demand
                return Reservation(end, {}, 0)
        return None

    def _fits(self, demand: list[int]) -> bool:
        return minimum_used(demand, self._state.capacity) <= self._state.available_nodes

    def _counted(self, gang: Gang) -> int:
        """Instances that are part of `ClusterState.demand`: those on nodes that are up."""
        nodes = self._state.nodes
        # The oracle's gangs are on no node in particular.
        return sum(nodes[i].status is NodeStatus.UP for i in gang.nodes) if gang.nodes else gang.job.instances

    def _may_pass(self, job: Job, head: Job, reservation: Reservation, now: float) -> bool:
        if job.duration is not None and now + job.duration <= reservation.time:
            return True
        demand = self._promised.copy()
        demand[job.gpus] += job.instances
        return self._fits(demand)
