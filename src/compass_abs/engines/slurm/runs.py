"""One instance as a Slurm job: what Slurm says of it, beside what its files do."""

import time
from dataclasses import dataclass
from typing import Any

from compass_abs.engines import contract_files
from compass_abs.engines.protocol import End, EndCause
from compass_abs.engines.slurm.reading import SlurmJob
from compass_abs.engines.supervised_run import FILE_PATIENCE, SupervisedRun

_BY_STATE = {
    "NODE_FAIL": EndCause.NODE_LOST,
    "BOOT_FAIL": EndCause.NODE_LOST,
    "OUT_OF_MEMORY": EndCause.LIMIT,
    "TIMEOUT": EndCause.LIMIT,
    "DEADLINE": EndCause.LIMIT,
    "CANCELLED": EndCause.EVICTED,
    "PREEMPTED": EndCause.EVICTED,
    "REVOKED": EndCause.EVICTED,
}


@dataclass(slots=True)
class SlurmRun(SupervisedRun):
    """A run, as this engine knows it; everything that must outlive it is in its files or in Slurm."""

    #: Number of its Slurm job; 0 while nobody knows whether there is one.
    slurm_job: int = 0
    #: What Slurm last said of that job.
    slurm: SlurmJob | None = None
    #: When the job was submitted, by the monotonic clock: an older list of jobs can't have it.
    submitted: float = 0.0
    #: Why we gave up on a job that can't start.
    given_up: End | None = None

    def more(self) -> dict[str, Any]:
        """Its Slurm job."""
        return {"slurm_job": self.slurm_job}

    def restore(self, value: dict[str, Any]) -> None:
        """Its Slurm job."""
        self.slurm_job = int(value["slurm_job"])

    @property
    def handle(self) -> str:
        """Its Slurm job."""
        return f"Slurm job {self.slurm_job}" if self.slurm_job else ""

    def outside_end(self, code: int, signal: int) -> End:
        """How it ended, after a signal from Slurm or an operator."""
        cause = _BY_STATE.get(self.slurm.state if self.slurm is not None else "", EndCause.EVICTED)
        return End(cause, code, f"Slurm or an operator sent signal {signal}")

    def slurm_says(self, job: SlurmJob | None) -> None:
        """Takes into account what Slurm says; None: it doesn't know the job any more."""
        self.slurm = job
        if not self.alive:
            return
        if job is not None and not job.ended and job.state != "NODE_FAIL":
            self.gone_since = None
            return
        self.refresh()
        if self.end is None:
            self._slurm_is_through(job)

    def _slurm_is_through(self, job: SlurmJob | None) -> None:
        now = time.monotonic()
        self.gone_since = self.gone_since if self.gone_since is not None else now
        if self.running and now < self.gone_since + FILE_PATIENCE and (job is None or job.state != "NODE_FAIL"):
            # Its own account may be on its way.
            return
        self.finish(self._verdict(job))

    def _verdict(self, job: SlurmJob | None) -> End:
        if contract_files.finished(self.control, self.run.number):
            return End(EndCause.EXITED, 0, "by its own account")
        if job is None:
            return End(EndCause.UNKNOWN, detail=f"Slurm has forgotten job {self.slurm_job}")
        detail = f"Slurm job {job.id}: {job.state} {job.reason}".strip()
        if self.given_up is not None:
            return self.given_up
        if job.state == "CANCELLED" and self.path("stop").exists():
            return End(EndCause.SIGNALLED, 9, detail)
        return End(_BY_STATE.get(job.state, EndCause.UNKNOWN), job.code, detail)

    @property
    def lingers(self) -> bool:
        """True when its process is gone and its allocation is kept for a successor, as far as is known."""
        return (
            self.end is not None
            and self.end.cause is not EndCause.REJOINED
            and self.slurm_job > 0
            and (self.slurm is None or not self.slurm.ended)
        )
