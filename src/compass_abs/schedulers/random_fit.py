"""Random fit: a floor to compare with."""

from random import Random
from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.parameters import Within


class RandomFit(Scheduler):
    """Random fit: each instance goes to any node that holds it, all equally likely.

    The draw depends on the seed and the job's id alone, so that a restored scheduler draws as the one before.
    """

    name: ClassVar[str] = "random"
    source: ClassVar[str] = "textbook"

    def __init__(self, state: ClusterState, *, seed: Annotated[int, Within("seed of the draws", least=0)] = 0) -> None:
        super().__init__(state)
        self._seed = seed

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Draws a node for each instance among those that still hold it."""
        state, gpus = self.state, job.gpus
        state.check_job(job)
        if state.room(gpus) < job.instances:
            return self.blocked(job)
        draw = Random(f"{self._seed}:{job.id}")
        free = {node: f for f in range(gpus, state.capacity + 1) for node in state.by_free[f]}
        candidates = sorted(free)
        nodes: list[int] = []
        while len(nodes) < job.instances:
            k = draw.randrange(len(candidates))
            node = candidates[k]
            nodes.append(node)
            free[node] -= gpus
            if free[node] < gpus:
                del candidates[k]
        return self.start(job, nodes)
