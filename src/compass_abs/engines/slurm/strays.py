"""Slurm jobs of ours that no live run needs."""

from collections.abc import Iterable

from compass_abs.engines.slurm import submission
from compass_abs.engines.slurm.runs import SlurmRun
from compass_abs.engines.slurm.snapshot import Snapshot

#: An allocation is kept for a successor for a second, and Slurm takes its time to clean up.
_PATIENCE = 4.0


class Strays:
    """Since when each has been one."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def of(self, snapshot: Snapshot, owner: str, runs: Iterable[SlurmRun], now: float) -> list[int]:
        """Those that have been one for long enough: nothing of ours runs there, or ever should."""
        alive = [run for run in runs if run.alive]
        needed = {run.slurm_job for run in alive}
        awaited = {submission.comment(owner, run.run) for run in alive if not run.slurm_job}
        ours = (job for job in snapshot.jobs if job.comment.startswith(submission.comment_prefix(owner)))
        found = [job.id for job in ours if not job.ended and job.id not in needed and job.comment not in awaited]
        self._since = {job: self._since.get(job, now) for job in found}
        return [job for job, since in self._since.items() if now - since > _PATIENCE]
