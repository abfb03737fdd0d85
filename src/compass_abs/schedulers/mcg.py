"""MCG-Sched on one cluster: FGD's gradient under history and pending demand, with reordering."""

from itertools import islice
from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.demand import WEEK, DemandHistory, PendingDemand, stranded_by_both
from compass_abs.schedulers.histogram import added, choose_by_growth, choose_empty
from compass_abs.schedulers.parameters import Within

# Weights of the mix are kept in whole units, so that F is a whole number and equal keys are exactly equal.
_UNIT = 1 << 20

# The first few instances are enough to rank a wide gang, and keep a pass short.
_RANKED_INSTANCES = 4


class McgSched(Scheduler):
    """MCG: FGD's descent under past and pending demand, a pull to loaded nodes, and priorities out of order.

    Interpretation (only the abstract is reachable): the mix is `pending_share` of the instances that wait and the
    rest of those submitted in the last seven days. Across clusters the original balances their loads, which with one
    cluster says nothing; within it `load_weight` favours nodes that are loaded already. Among the first `reach` jobs
    those that fit are ranked by the fragmentation they add per GPU less their wait in units of `guard`. When the
    first in line has waited for `guard` seconds the queue is plain FIFO until it starts; without the guard the rule
    is unrestricted backfill. Reordering needs a queue that lets a scheduler nominate; under plain FIFO this is only
    a placement.
    """

    name: ClassVar[str] = "mcg"
    source: ClassVar[str] = "Wu et al., MCG-Sched, IEEE TPDS 36(12), 2025, doi 10.1109/TPDS.2025.3626153"

    def __init__(
        self,
        state: ClusterState,
        *,
        pending_share: Annotated[float, Within("weight of the waiting jobs in the demand", least=0, most=1)] = 0.5,
        load_weight: Annotated[float, Within("pull to nodes that are loaded already", least=0)] = 0.05,
        window: Annotated[float, Within("seconds of submissions that it learns from", above=0)] = WEEK,
        reach: Annotated[int, Within("waiting jobs that it ranks", least=1)] = 16,
        guard: Annotated[
            float, Within("longest wait before the queue is FIFO, in seconds; also the unit of age", above=0)
        ] = 1800.0,
    ) -> None:
        super().__init__(state)
        self._share = round(pending_share * _UNIT)
        self._load = load_weight / state.capacity
        self._reach, self._guard = reach, guard
        self._history = DemandHistory(state.capacity, window)
        self._pending = PendingDemand(state.capacity)
        self._table: list[int] | None = None
        #: What counts as 1 in `_table`, and `load_weight` for each free GPU in that unit.
        self._unit, self._pull = 1, 0

    def submitted(self, job: Job, situation: Situation) -> None:
        """Learns the demand."""
        if job.gpus <= self.state.capacity:
            self._history.note(job)
            self._pending.joined(job)
            self._table = None

    def table(self, situation: Situation) -> list[int]:
        """F(f), in units of `self._unit`, under the mix of past and pending demand."""
        if self._pending.agree(situation) or self._table is None:
            past, pending = self._history.weights, self._pending.weights
            total, waiting = sum(past) or 1, sum(pending)
            new = self._share if waiting else 0
            waiting = waiting or 1
            self._table = stranded_by_both(past, (_UNIT - new) * waiting, pending, new * total)
            self._unit = _UNIT * total * waiting
            self._pull = round(self._load * self._unit)
        return self._table

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job where the rule puts it; or says why not."""
        state = self.state
        if job.gpus > state.capacity:
            state.check_job(job)
        if job.instances * job.gpus > state.free_gpus:
            return self.blocked(job)
        if job.gpus == state.capacity:
            nodes = choose_empty(state, job.instances)
        else:
            table = self.table(situation)
            nodes = choose_by_growth(state, job.gpus, job.instances, table, self._pull)
        if nodes is None:
            return self.blocked(job)
        state.place(job, nodes)
        self._pending.left(job)
        self._table = None
        return Decision(job, tuple(nodes))

    def nominate(self, situation: Situation) -> Job | None:
        """The job of the highest priority that fits; the first in line if none does, or if it waited long."""
        best: Job | None = None
        best_rank = 0.0
        first: Job | None = None
        for job in islice(situation.waiting, self._reach):
            waited = situation.now - job.submitted
            if first is None:
                first = job
                if waited > self._guard:
                    return job
            if job.gpus <= self.state.capacity and self.state.room(job.gpus) >= job.instances:
                rank = self._added_per_gpu(job, situation) - waited / self._guard
                if best is None or rank < best_rank:
                    best, best_rank = job, rank
        return first if best is None else best

    def _added_per_gpu(self, job: Job, situation: Situation) -> float:
        table = self.table(situation)
        count = min(job.instances, _RANKED_INSTANCES)
        nodes = choose_by_growth(self.state, job.gpus, count, table, self._pull) or []
        return added(self.state, job.gpus, nodes, table) / self._unit / job.total_gpus
