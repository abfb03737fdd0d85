"""One instance as a Slurm job: what is known of it, from Slurm and from its files."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compass_abs.engines import contract_files
from compass_abs.engines.local.run_files import RunFiles, read_json, write_json
from compass_abs.engines.protocol import (
    Acknowledgement,
    CheckpointMode,
    End,
    EndCause,
    Progress,
    RunId,
    RunPhase,
    RunReport,
)
from compass_abs.engines.slurm.reading import SlurmJob

#: A file written on a node is seen here within this time, whatever the shared file system keeps in its caches.
_FILE_PATIENCE = 3.0
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
class SlurmRun:
    """A run, as this engine knows it; everything that must outlive it is in its files or in Slurm."""

    run: RunId
    node: str
    gpu_count: int
    mode: CheckpointMode
    signal_name: str
    files: RunFiles
    #: Generation in which its process was started: an older one after it has rejoined.
    born: int
    #: Number of its Slurm job; 0 while nobody knows whether there is one.
    slurm_job: int = 0
    #: What Slurm last said of that job.
    slurm: SlurmJob | None = None
    #: When the job was submitted, by the monotonic clock: an older list of jobs can't have it.
    submitted: float = 0.0
    #: When this engine learned of it, by the monotonic clock.
    known_since: float = field(default_factory=time.monotonic)
    gpus: tuple[int, ...] = ()
    running: bool = False
    end: End | None = None
    acknowledgement: Acknowledgement | None = None
    progress: Progress | None = None
    #: Since when Slurm is through with it, while its own account is still missing.
    gone_since: float | None = None
    #: When Slurm has to end it because its supervisor hasn't.
    overdue_at: float | None = None
    #: Why we gave up on a job that can't start.
    given_up: End | None = None
    next_look: float = 0.0
    told: RunReport | None = None
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    # ---- files

    @property
    def first(self) -> RunId:
        """The run as which its process was started: its log and process files are under that name."""
        return self.run._replace(generation=self.born)

    @property
    def control(self) -> Path:
        """Its control directory."""
        return self.files.control(self.run)

    def path(self, kind: str, suffix: str = "json") -> Path:
        """One of the files of its process."""
        return self.files.file(self.first, kind, suffix)

    def save(self) -> None:
        """Writes down what was ordered."""
        value = {
            "node": self.node,
            "gpus": self.gpu_count,
            "mode": self.mode,
            "signal": self.signal_name,
            "born": self.born,
            "slurm_job": self.slurm_job,
        }
        write_json(self.files.file(self.run, "run"), value)

    @classmethod
    def load(cls, files: RunFiles, run: RunId) -> "SlurmRun | None":
        """The run that an earlier engine left; None when its file makes no sense."""
        value = read_json(files.file(run, "run"))
        if value is None:
            return None
        try:
            found = cls(
                run,
                str(value["node"]),
                int(value["gpus"]),
                CheckpointMode(value["mode"]),
                str(value["signal"]),
                files,
                int(value["born"]),
                int(value["slurm_job"]),
            )
        except (KeyError, TypeError, ValueError):
            return None
        found.refresh()
        return found

    # ---- what it says

    @property
    def alive(self) -> bool:
        """True while it holds its GPUs, as far as the controller is concerned."""
        return self.end is None

    def refresh(self) -> None:
        """Reads its files."""
        if not self.running:
            value = read_json(self.path("process"))
            if value is not None:
                self.running = True
                self.gpus = tuple(int(word) for word in str(value.get("gpus", "")).split(",") if word.isdigit())
        for kind, path in (
            ("ack", self.control / f"ack-{self.run.number}.json"),
            ("progress", self.control / f"progress-{self.run.number}.json"),
        ):
            try:
                status = path.stat()
            except OSError:
                continue
            version = (status.st_mtime_ns, status.st_ino)
            if self.seen.get(kind) == version:
                continue
            self.seen[kind] = version
            if kind == "ack":
                self.acknowledgement = contract_files.read_acknowledgement(self.control, self.run.number)
            else:
                self.progress = contract_files.read_progress(self.control, self.run.number)
        self.read_end()

    def read_end(self) -> None:
        """Learns how it ended, if it has."""
        if self.end is not None:
            return
        verdict = read_json(self.files.file(self.run, "verdict"))
        if verdict is not None:
            self.end = End(EndCause(verdict["cause"]), int(verdict.get("code", 0)), str(verdict.get("detail", "")))
            return
        value = read_json(self.path("end"))
        if value is not None:
            self.end = self._own_account(value)

    def _own_account(self, value: dict[str, Any]) -> End:
        code, outside = int(value["code"]), int(value.get("outside", 0))
        if outside and not contract_files.finished(self.control, self.run.number):
            # It may well have saved and left with 0: that doesn't make it a job that has done its work.
            state = self.slurm.state if self.slurm is not None else ""
            cause = _BY_STATE.get(state, EndCause.EVICTED)
            return End(cause, code, f"Slurm or an operator sent signal {outside}")
        return End(EndCause.SIGNALLED, -code) if code < 0 else End(EndCause.EXITED, code)

    def finish(self, end: End) -> None:
        """Writes down how it ended, unless that is known."""
        if self.end is None:
            self.end = end
            record = {"cause": end.cause, "code": end.code, "detail": end.detail, "time": time.time()}
            write_json(self.files.file(self.run, "verdict"), record)

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
        if self.running and now < self.gone_since + _FILE_PATIENCE and (job is None or job.state != "NODE_FAIL"):
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

    @property
    def expects_news(self) -> bool:
        """True while something is awaited of it that a migration or a start waits for."""
        if not self.running or self.overdue_at is not None:
            return True
        if self.mode is not CheckpointMode.SESSION:
            return False
        if self.progress is None or self.progress.step <= max(self.progress.resumed_at, 0):
            return True
        asked = contract_files.last_request(self.control)
        return bool(asked) and (self.acknowledgement is None or self.acknowledgement.request != asked)

    def report(self) -> RunReport:
        """All that is known of it."""
        if self.end is not None:
            phase = RunPhase.ENDED
        else:
            phase = RunPhase.RUNNING if self.running else RunPhase.PENDING
        handle = f"Slurm job {self.slurm_job}" if self.slurm_job else ""
        return RunReport(self.run, self.node, phase, self.gpus, self.end, self.acknowledgement, self.progress, handle)
