"""KAI-Scheduler's consolidation: for a pending job, running ones are evicted if all of them can be placed again."""

from typing import Annotated, ClassVar

from compass_abs.model import Cause, ClusterState, Decision, Instance, Job, Migration, Mode
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.histogram import choose_nodes
from compass_abs.schedulers.move_order import in_order
from compass_abs.schedulers.parameters import Within


class KaiConsolidation(BestFit):
    """Bin packing; for a job that fragmentation blocks, up to 16 jobs are evicted that can all be placed again.

    After the `consolidation` action of KAI-Scheduler: candidates are the preemptible running jobs, lowest priority
    and youngest first; one more is added until the pending job and all evicted ones fit, or the limit is reached.
    Evicted jobs restart and lose the work since their last periodic checkpoint; those that get their own nodes back
    are not evicted. Interpretation: `movable` stands for preemptible, and a job's submission for its age.
    """

    name: ClassVar[str] = "kai"
    source: ClassVar[str] = "github.com/NVIDIA/KAI-Scheduler, pkg/scheduler/actions/consolidation"

    def __init__(
        self,
        state: ClusterState,
        *,
        victims: Annotated[int, Within("jobs that may be evicted for one", least=0)] = 16,
    ) -> None:
        super().__init__(state)
        self._victims = victims

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job, with evictions where only they make room."""
        decision = super().admit(job, situation)
        if decision.reason is None or self.state.free_gpus < job.total_gpus or not self._victims:
            return decision
        return self._consolidate(job) or decision

    def _consolidate(self, job: Job) -> Decision | None:
        state = self.state
        candidates = sorted(
            (gang.job for gang in state.gangs.values() if gang.job.movable and self._all_up(gang.nodes)),
            key=lambda other: (other.priority, -other.submitted, other.id),
        )
        evicted: list[tuple[Job, list[int]]] = []
        for victim in candidates[: self._victims]:
            evicted.append((victim, state.release(victim.id).nodes))
            if state.room(job.gpus) < job.instances:
                continue
            placed = self._place_all(job, evicted)
            if placed is not None:
                break
        else:
            placed = None
        for other, nodes in reversed(evicted):
            state.place(other, nodes)
        if placed is None:
            return None
        restarts = _restarts(evicted, placed)
        # In a circle all are evicted before any is placed again.
        before = in_order(state, restarts) or tuple(restarts)
        state.move_all(before)
        return self.start(job, placed[job.id], before)

    def _place_all(self, job: Job, evicted: list[tuple[Job, list[int]]]) -> dict[str, list[int]] | None:
        """Where the job and, the most important first, those evicted for it would go: back where they can."""
        state = self.state
        placed: list[str] = []
        for other, before in [(job, None), *reversed(evicted)]:
            nodes = before if before is not None and self._fits(other, before) else None
            nodes = nodes or choose_nodes(state, other.gpus, other.instances, self._orders[other.gpus])
            if nodes is None:
                break
            state.place(other, nodes)
            placed.append(other.id)
        found = {name: state.release(name).nodes for name in placed}
        return found if len(found) == len(evicted) + 1 else None

    def _fits(self, job: Job, nodes: list[int]) -> bool:
        needed = dict.fromkeys(nodes, 0)
        for node in nodes:
            needed[node] += job.gpus
        return all(self.state.nodes[node].free >= gpus for node, gpus in needed.items())

    def _all_up(self, nodes: list[int]) -> bool:
        # An instance on a cordoned node could leave it, but not go back if the plan fails.
        return all(node in self.state.by_free[self.state.nodes[node].free] for node in nodes)


def _restarts(evicted: list[tuple[Job, list[int]]], placed: dict[str, list[int]]) -> list[Migration]:
    return [
        Migration(Instance(victim.id, k), source, target, victim.gpus, Cause.ADMISSION, Mode.RESTART)
        for victim, sources in evicted
        for k, (source, target) in enumerate(zip(sources, placed[victim.id], strict=True))
        if source != target
    ]
