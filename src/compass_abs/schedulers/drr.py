"""DRR: a learned placement, and nodes of low utilisation drained every hour."""

from pathlib import Path
from typing import Annotated, ClassVar

from compass_abs.model import Cause, ClusterState, CompassError, Decision, Job, Migration
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.demand import DemandHistory, PendingDemand
from compass_abs.schedulers.drr_policy import (
    CAPACITY,
    SEEDS,
    BestFitPolicy,
    NetworkPolicy,
    Policy,
    View,
    load,
    shipped_policy,
)
from compass_abs.schedulers.histogram import Hypothetical
from compass_abs.schedulers.parameters import Within
from compass_abs.schedulers.threshold import next_multiple

_HOUR = 3600.0


class DefragmentingRescheduler(Scheduler):
    """DRR: a policy network, trained by imitation and then by reinforcement, places; each hour low nodes are drained.

    Every `period` seconds the non-empty nodes with less than `low` of their GPUs in use are tried in the order of
    their utilisation: if all instances of a node fit onto the fullest other non-empty nodes, largest first, they
    move there. At most `nodes` are emptied in a cycle. The period, the limit of 50 % and the five nodes are those of
    the official run line.

    Interpretation: the official policy chooses one of 64 nodes from 56 features each. Nodes with equally many free
    GPUs are interchangeable here, so this one chooses among the free counts, for a cluster of any size, from 39
    features; docs/baselines.md lists them. It was trained on synthetic days (`compass train-drr` does so again), and
    what reinforcement made of it ships only if it is better on days kept apart for that: with all three seeds it
    wasn't, and the imitation of best fit ships. `policy=best-fit` leaves the network out.
    """

    name: ClassVar[str] = "drr"
    source: ClassVar[str] = "Wu et al., SoCC'25, doi 10.1145/3772052.3772242; github.com/IntelligentDDS/Defrag"

    def __init__(
        self,
        state: ClusterState,
        *,
        policy: Annotated[str, "learned, best-fit, or a file that `compass train-drr` wrote"] = "learned",
        seed: Annotated[int, Within("seed of the shipped policy", least=SEEDS[0], most=SEEDS[-1])] = SEEDS[0],
        period: Annotated[float, Within("seconds between rescheduling cycles", above=0)] = _HOUR,
        low: Annotated[float, Within("share of GPUs in use below which a node is drained", least=0, most=1)] = 0.5,
        nodes: Annotated[int, Within("nodes drained in a cycle", least=0)] = 5,
    ) -> None:
        super().__init__(state)
        self.policy: Policy
        if policy == "best-fit":
            self.policy = BestFitPolicy()
        elif state.capacity != CAPACITY:
            raise CompassError(
                f"scheduler 'drr': nodes of pool {state.pool!r} have {state.capacity} GPUs, but the policy was "
                f"trained for {CAPACITY}; use policy=best-fit"
            )
        elif policy == "learned":
            self.policy = shipped_policy(seed)
        else:
            self.policy = NetworkPolicy(load(Path(policy)))
        self._period, self._low, self._nodes = period, low, nodes
        self._pending = PendingDemand(state.capacity)
        self._recent = DemandHistory(state.capacity, _HOUR)

    def submitted(self, job: Job, situation: Situation) -> None:
        """Learns the demand."""
        if job.gpus <= self.state.capacity:
            self._pending.joined(job)
            self._recent.note(job)

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job where the policy puts its instances, one after the other."""
        state, gpus = self.state, job.gpus
        state.check_job(job)
        if state.room(gpus) < job.instances:
            return self.blocked(job)
        self._pending.agree(situation)
        after = Hypothetical(state)
        view = View(
            state,
            after.histogram,
            job,
            situation.now,
            len(situation.waiting),
            self._pending.weights,
            self._recent.weights,
        )
        nodes = []
        for _ in range(job.instances):
            nodes.append(after.take(self.policy.choose(view), gpus))
            view.placed()
        self._pending.left(job)
        return self.start(job, nodes)

    def next_round(self, now: float) -> float | None:
        """The next multiple of the period."""
        return next_multiple(now, self._period)

    def round(self, situation: Situation) -> Decision:
        """Drains nodes of low utilisation, the emptiest first, each wholly or not at all."""
        state, capacity = self.state, self.state.capacity
        made: list[Migration] = []
        drained = 0
        candidates = [
            node
            for free in range(capacity - 1, 0, -1)
            if capacity - free < self._low * capacity
            for node in list(state.by_free[free])
        ]
        for source in candidates:
            if drained == self._nodes:
                break
            moves = self._drain(source)
            if moves:
                made += moves
                drained += 1
        return Decision(after=tuple(made))

    def _drain(self, source: int) -> list[Migration]:
        """Empties a node onto the fullest non-empty ones; moves nothing and returns nothing where that can't be."""
        state = self.state
        node = state.nodes[source]
        moves: list[Migration] = []
        if node.pinned:
            return moves
        for instance, gpus in sorted(node.contents.items(), key=lambda entry: (-entry[1], entry[0])):
            target = self._fullest(gpus, source)
            if target < 0:
                for move in reversed(moves):
                    state.move(move.instance, source)
                return []
            state.move(instance, target)
            moves.append(Migration(instance, source, target, gpus, Cause.ROUND))
        return moves

    def _fullest(self, gpus: int, source: int) -> int:
        """The fullest other non-empty node that holds an instance of this size; -1 if there is none."""
        for bucket in self.state.by_free[gpus : self.state.capacity]:
            for node in bucket:
                if node != source:
                    return node
        return -1
