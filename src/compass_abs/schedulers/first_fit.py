"""First fit: a floor to compare with."""

from typing import ClassVar

from compass_abs.model import Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation


class FirstFit(Scheduler):
    """First fit: each instance goes to the lowest node that holds it."""

    name: ClassVar[str] = "first-fit"
    source: ClassVar[str] = "textbook"

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Fills node after node from the first that has room."""
        state, gpus = self.state, job.gpus
        state.check_job(job)
        if state.room(gpus) < job.instances:
            return self.blocked(job)
        cursors = [iter(bucket) for bucket in state.by_free[gpus:]]
        heads = [next(cursor, -1) for cursor in cursors]
        nodes: list[int] = []
        while len(nodes) < job.instances:
            # A node lies in one bucket, so the lowest head is the lowest node with room; it is filled before the next.
            k = min((k for k, head in enumerate(heads) if head >= 0), key=heads.__getitem__)
            fits = (gpus + k) // gpus
            nodes += [heads[k]] * min(fits, job.instances - len(nodes))
            heads[k] = next(cursors[k], -1)
        return self.start(job, nodes)
