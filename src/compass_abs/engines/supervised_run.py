"""One instance under `instance.py` somewhere else: what is known of it from the files that it leaves."""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

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
    StartOrder,
)

#: A file written on a node is seen here within this time, whatever the shared file system keeps in its caches.
FILE_PATIENCE = 3.0
#: A process that isn't up after this long waits for something slow, an image or a queue: half a second more is nothing.
_STARTS_SOON = 30.0


@dataclass(slots=True)
class SupervisedRun:
    """A run, as this engine knows it; everything that must outlive it is in its files or on its platform."""

    run: RunId
    node: str
    gpu_count: int
    mode: CheckpointMode
    signal_name: str
    files: RunFiles
    #: Generation in which its process was started: an older one after it has rejoined.
    born: int
    #: When this engine learned of it, by the monotonic clock.
    known_since: float = field(default_factory=time.monotonic)
    gpus: tuple[int, ...] = ()
    running: bool = False
    end: End | None = None
    acknowledgement: Acknowledgement | None = None
    progress: Progress | None = None
    #: Since when the platform is through with it, while its own account is still missing.
    gone_since: float | None = None
    #: When the platform has to end it because its supervisor hasn't.
    overdue_at: float | None = None
    next_look: float = 0.0
    told: RunReport | None = None
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Paths that are looked at again and again.
    places: dict[str, Path] = field(default_factory=dict)

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

    def _place(self, kind: str) -> Path:
        """One of the files that it is known from."""
        found = self.places.get(kind)
        if found is None:
            if kind in ("ack", "progress"):
                found = self.control / f"{kind}-{self.run.number}.json"
            else:
                found = self.files.file(self.run, kind) if kind == "verdict" else self.path(kind)
            self.places[kind] = found
        return found

    def save(self) -> None:
        """Writes down what was ordered."""
        value = {
            "node": self.node,
            "gpus": self.gpu_count,
            "mode": self.mode,
            "signal": self.signal_name,
            "born": self.born,
            **self.more(),
        }
        write_json(self.files.file(self.run, "run"), value)

    def more(self) -> dict[str, Any]:
        """What an engine wants to remember beside that."""
        return {}

    def restore(self, value: dict[str, Any]) -> None:
        """Reads that back."""

    @property
    def handle(self) -> str:
        """What people call it on this platform."""
        return ""

    @classmethod
    def load(cls, files: RunFiles, run: RunId) -> "Self | None":
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
            )
            found.restore(value)
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
            value = read_json(self._place("process"))
            if value is not None:
                self.running = True
                self.gpus = tuple(int(word) for word in str(value.get("gpus", "")).split(",") if word.isdigit())
        for kind in ("ack", "progress"):
            try:
                status = os.stat(self._place(kind))  # noqa: PTH116 - pathlib's way costs as much again
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
        verdict = read_json(self._place("verdict"))
        if verdict is not None:
            self.end = End(EndCause(verdict["cause"]), int(verdict.get("code", 0)), str(verdict.get("detail", "")))
            return
        value = read_json(self._place("end"))
        if value is not None:
            self.end = self._own_account(value)

    def _own_account(self, value: dict[str, Any]) -> End:
        code, outside = int(value["code"]), int(value.get("outside", 0))
        if outside and not contract_files.finished(self.control, self.run.number):
            # It may well have saved and left with 0: that doesn't make it a job that has done its work.
            return self.outside_end(code, outside)
        return End(EndCause.SIGNALLED, -code) if code < 0 else End(EndCause.EXITED, code)

    def outside_end(self, code: int, signal: int) -> End:
        """How it ended, after a signal that wasn't ours."""
        return End(EndCause.EVICTED, code, f"somebody else sent it signal {signal}")

    def finish(self, end: End) -> None:
        """Writes down how it ended, unless that is known."""
        if self.end is None:
            self.end = end
            record = {"cause": end.cause, "code": end.code, "detail": end.detail, "time": time.time()}
            write_json(self.files.file(self.run, "verdict"), record)

    def call_off(self, end: End) -> None:
        """Ends what never started; should it start after all, late, its supervisor finds that it has been."""
        self.path("claim").touch(mode=0o600)
        self.finish(end)

    @property
    def expects_news(self) -> bool:
        """True while something is awaited of it that a migration or a start waits for."""
        if self.overdue_at is not None:
            return True
        if not self.running:
            return time.monotonic() < self.known_since + _STARTS_SOON
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
        return RunReport(
            self.run, self.node, phase, self.gpus, self.end, self.acknowledgement, self.progress, self.handle
        )


def instance_order(order: StartOrder, run: SupervisedRun, job_folder: Path) -> dict[str, Any]:
    """What `instance.py` reads; makes the folders that it names."""
    workload = order.workload
    checkpoints = Path(workload.checkpoint_dir) if workload.checkpoint_dir else job_folder / "checkpoints"
    workdir = Path(workload.workdir) if workload.workdir else job_folder / "work"
    checkpoints.mkdir(parents=True, exist_ok=True)
    if not workload.workdir:
        workdir.mkdir(exist_ok=True)
    environment = contract_files.instance_environment(
        order,
        control_dir=str(run.control),
        checkpoint_dir=str(checkpoints),
        inherited=os.environ,
        visible_devices=None,
    )
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    limits = workload.limits
    return {
        "command": list(workload.command),
        "environment": environment,
        "workdir": str(workdir),
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "open_files": limits.open_files,
            "processes": limits.processes,
            "file_bytes": limits.file_bytes,
        },
        "claim_file": str(run.path("claim")),
        "process_file": str(run.path("process")),
        "stop_file": str(run.path("stop")),
        "end_file": str(run.path("end")),
    }
