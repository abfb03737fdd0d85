"""The oracle on NVLink domains: what the same queue would give on domains that fragmentation cannot hurt."""

from collections.abc import Sequence
from typing import ClassVar

from compass_abs.fragmentation import inherent, minimum_used
from compass_abs.fragmentation.levels import fits_repacked
from compass_abs.model import ClusterState, CompassError, Decision, Gang, Job, NodeStatus, UnknownJobError
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.topology import DomainState


class FluidDomainState(DomainState):
    """Domains whose running instances are always packed as well as any packing could be: only counts matter."""

    __slots__ = ()

    @property
    def partial_nodes(self) -> int:
        """Φ* of what runs on panels."""
        return inherent(self.demand, self.capacity)

    @property
    def used_nodes(self) -> int:
        """U* of what runs on panels."""
        return minimum_used(self.demand, self.capacity)

    @property
    def empty_nodes(self) -> int:
        """Panels that the tightest packing leaves empty."""
        return self.available_nodes - self.used_nodes

    def place(self, job: Job, nodes: Sequence[int]) -> None:
        """Starts a gang, nowhere in particular."""
        self.check_job(job)
        pieces = self.pieces(job)
        self.demand[pieces.gpus] += pieces.instances
        self.free_gpus -= pieces.total_gpus
        self.gangs[job.id] = Gang(pieces, [])
        if job.gpus > self.capacity:
            self.whole[job.id] = job

    def release(self, job_id: str) -> Gang:
        """Ends a gang."""
        gang = self.gangs.pop(job_id, None)
        if gang is None:
            raise UnknownJobError(f"job {job_id!r} is not running")
        self.demand[gang.job.gpus] -= gang.job.instances
        self.free_gpus += gang.job.total_gpus
        return Gang(self.whole.pop(job_id, gang.job), [])

    def set_status(self, name: str, status: NodeStatus) -> tuple[Job, ...]:
        """Refused: nobody is on any panel in particular, so losing one has no meaning."""
        raise CompassError(f"node {name!r} can't become {status}: the oracle places nothing; leave node events out")


class DomainOracle(Scheduler):
    """SIFOpt on domains: admits whenever some packing of all levels exists; moves are free and instant."""

    name: ClassVar[str] = "hierarchical-opt"
    source: ClassVar[str] = "the paper, appendices B and D, with exact packings at every level"
    knows_domains: ClassVar[bool] = True

    def __init__(self, state: ClusterState) -> None:
        if not isinstance(state, DomainState):
            raise CompassError("hierarchical-opt needs a topology (--topology); without one use sif-opt")
        super().__init__(FluidDomainState([node.name for node in state.nodes], state.topology, state.pool))

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job if a packing of it and all that runs fits the domains."""
        state = self.state
        state.check_job(job)
        if state.free_gpus < job.total_gpus or not fits_repacked(state, job):
            return self.blocked(job)
        state.place(job, ())
        return Decision(job)

    def check_invariants(self) -> None:
        """Nothing is placed that could contradict itself."""
