"""SIFOpt, the oracle: what the same queue would give on a cluster that fragmentation cannot hurt."""

from collections.abc import Sequence
from typing import ClassVar

from compass_abs.fragmentation import inherent, minimum_used
from compass_abs.model import (
    ClusterState,
    Decision,
    Gang,
    InvariantError,
    Job,
    NodeStatus,
    UnknownJobError,
)
from compass_abs.schedulers.base import Scheduler, Situation


class FluidState(ClusterState):
    """A cluster whose running instances are always packed as well as any packing could be: only counts matter.

    Nobody is on any node in particular. A lost node takes its GPUs along and no gang, so that more may run for a while
    than the others hold; a node that is cordoned or drained stays. Both flatter the oracle: it remains a bound.
    """

    __slots__ = ()

    @property
    def partial_nodes(self) -> int:
        """Φ* of what runs."""
        return inherent(self.demand, self.capacity)

    @property
    def used_nodes(self) -> int:
        """U* of what runs."""
        return minimum_used(self.demand, self.capacity)

    @property
    def empty_nodes(self) -> int:
        """Nodes that the tightest packing leaves empty."""
        return max(0, self.available_nodes - self.used_nodes)

    def holds(self, job: Job) -> bool:
        """Whether some packing of what runs and this job fits the nodes."""
        demand = self.demand.copy()
        demand[job.gpus] += job.instances
        return minimum_used(demand, self.capacity) <= self.available_nodes

    def place(self, job: Job, nodes: Sequence[int]) -> None:
        """Starts a gang, nowhere in particular."""
        self.check_job(job)
        self.demand[job.gpus] += job.instances
        self.free_gpus -= job.total_gpus
        self.gangs[job.id] = Gang(job, [])

    def release(self, job_id: str) -> Gang:
        """Ends a gang."""
        gang = self.gangs.pop(job_id, None)
        if gang is None:
            raise UnknownJobError(f"job {job_id!r} is not running")
        self.demand[gang.job.gpus] -= gang.job.instances
        self.free_gpus += gang.job.total_gpus
        return gang

    def set_status(self, name: str, status: NodeStatus) -> tuple[Job, ...]:
        """Loses a node's GPUs, or gets them back; says that no gang went with them."""
        node = self.node(name)
        was_there, is_there = node.status is not NodeStatus.LOST, status is not NodeStatus.LOST
        node.status = status
        if was_there and not is_there:
            self.free_gpus -= self.capacity
            self.by_free[self.capacity].remove(node.index)
        elif is_there and not was_there:
            self.free_gpus += self.capacity
            self.by_free[self.capacity].add(node.index)
        return ()


class FluidOracle(Scheduler):
    """SIFOpt: admits whenever some packing of the running jobs and this one exists; moves are free and instant."""

    name: ClassVar[str] = "sif-opt"
    source: ClassVar[str] = "the paper, appendix B, with the exact U* in place of its heuristic"

    state: FluidState

    def __init__(self, state: ClusterState) -> None:
        fluid = FluidState([node.name for node in state.nodes], state.capacity, state.pool)
        super().__init__(fluid)

    def repacks(self) -> bool:
        """True: it admits whatever can be packed."""
        return True

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job if U* of it and all that runs is at most N."""
        state = self.state
        state.check_job(job)
        if state.free_gpus < job.total_gpus or not state.holds(job):
            return self.blocked(job)
        state.place(job, ())
        return Decision(job)

    def check_invariants(self) -> None:
        """Raises unless a packing exists and GPUs are conserved."""
        state = self.state
        used = sum(gpus * count for gpus, count in enumerate(state.demand))
        # Nodes that have been lost since count where a packing is meant.
        if state.used_nodes > len(state.nodes) or used + state.free_gpus != state.available_nodes * state.capacity:
            raise InvariantError(f"{state.demand} with {state.free_gpus} free on {state.available_nodes} nodes")
