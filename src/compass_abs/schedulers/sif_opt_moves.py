"""SIFOpt as far as it can be had: an optimal packing after every event, with every move paid for."""

from typing import ClassVar

from compass_abs.model import Cause, Decision, Job, Migration, Verdict
from compass_abs.planner import Impossible, Obstacle
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.histogram import choose_nodes
from compass_abs.schedulers.repacking import making_room, tidying

_VERDICTS = {
    Obstacle.CAPACITY: Verdict.CAPACITY,
    Obstacle.PACKING: Verdict.CAPACITY,
    Obstacle.PINNED: Verdict.POLICY,
}


class RealisableOracle(Scheduler):
    """SIFOpt with moves: after every event the packing is optimal, and every move on the way is paid for.

    A job is admitted exactly when some packing of it and the running jobs exists around those that may not move:
    at once where it fits, else after the fewest moves that make room. Then the fewest moves follow that leave Φ*
    partial and U* used nodes. Each of the two steps is exact; together they may move more than one step would. In a
    cluster so full that instances can only change places all at once, they do.

    Deviation: the paper's own residual program (greedy, then best-fit decreasing, then a program for the rest) isn't
    exact and isn't used.
    """

    name: ClassVar[str] = "sif-opt-moves"
    source: ClassVar[str] = "the paper, appendix B, made realisable by compass_abs.planner"

    def repacks(self) -> bool:
        """True: it admits whatever can be packed."""
        return True

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job if any packing holds it, and tidies up."""
        state, gpus = self.state, job.gpus
        state.check_job(job)
        if state.free_gpus < job.total_gpus:
            return self.blocked(job)
        before: tuple[Migration, ...] = ()
        nodes = choose_nodes(state, gpus, job.instances, range(gpus, state.capacity + 1))
        if nodes is None:
            found = making_room(state, situation, job.instances, gpus)
            if isinstance(found, Impossible):
                return self.refuse(job, _VERDICTS.get(found.obstacle, Verdict.FRAGMENTATION), str(found))
            before, nodes = found[0], list(found[1])
            state.move_all(before)
        state.place(job, nodes)
        after = tidying(state, situation, Cause.TIDY)
        if not after:
            return Decision(job, tuple(nodes), before=before)
        # Nobody pays for moving a job that hasn't started: the others move first, and it starts where it belongs.
        # Without it every step has at least as much room as it had with it.
        state.move_all(after)
        nodes = list(state.release(job.id).nodes)
        state.place(job, nodes)
        others = tuple(move for move in after if move.instance.job_id != job.id)
        return Decision(job, tuple(nodes), before=before + others)

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Frees the job's GPUs and packs what is left."""
        gang = self.state.release(job_id)
        after = tidying(self.state, situation, Cause.TIDY)
        self.state.move_all(after)
        return Decision(gang.job, tuple(gang.nodes), departed=True, after=after)
