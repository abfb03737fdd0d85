"""One instance on a virtual node: what is known of it, and what can be done to it."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compass_abs.engines import contract_files
from compass_abs.engines.local import processes
from compass_abs.engines.local.processes import ProcessId
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

#: A shim writes down what it has started within this time, or has failed to.
_SHIM_PATIENCE = 20.0


@dataclass(slots=True)
class LocalRun:
    """A run, as this engine knows it; everything that must outlive it is in its files."""

    run: RunId
    node: str
    gpus: tuple[int, ...]
    mode: CheckpointMode
    signal_name: str
    files: RunFiles
    #: Generation in which its process was started: an older one after it has rejoined.
    born: int
    ordered: float
    supervisor: ProcessId | None = None
    process: ProcessId | None = None
    end: End | None = None
    acknowledgement: Acknowledgement | None = None
    progress: Progress | None = None
    #: Descriptor that tells of its death; None when nobody watches.
    watch: int | None = None
    kill_at: float | None = None
    #: Given up before it was known which process it is: that is still to be ended.
    doomed: bool = False
    next_look: float = 0.0
    told: RunReport | None = None
    #: Versions of the files that were read last.
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    # ---- files

    @property
    def first(self) -> RunId:
        """The run as which its process was started: its log and process files are under that name."""
        return self.run._replace(generation=self.born)

    def save(self, order: dict[str, Any]) -> None:
        """Writes down what was ordered."""
        write_json(
            self.files.file(self.run, "run"),
            {
                "node": self.node,
                "gpus": list(self.gpus),
                "mode": self.mode,
                "signal": self.signal_name,
                "born": self.born,
                "ordered": self.ordered,
                "boot": processes.boot_id(),
                **order,
            },
        )

    @classmethod
    def load(cls, files: RunFiles, run: RunId) -> "LocalRun | None":
        """The run that an earlier engine left; None when its file makes no sense."""
        value = read_json(files.file(run, "run"))
        if value is None:
            return None
        found = cls(
            run,
            str(value["node"]),
            tuple(value["gpus"]),
            CheckpointMode(value["mode"]),
            str(value["signal"]),
            files,
            int(value["born"]),
            float(value["ordered"]),
        )
        found.adopt(str(value.get("boot", "")))
        return found

    def adopt(self, boot: str) -> None:
        """Finds its process again, by number, start time and the generation in its environment."""
        self.read_end()
        self.read_process()
        if self.end is not None:
            # The engine that gave it up may have ended before it knew whom to kill.
            self.doomed = self.end.cause is EndCause.NODE_LOST and boot == processes.boot_id()
            return
        if boot != processes.boot_id():
            self.finish(End(EndCause.NODE_LOST, detail="the machine was restarted"))
        elif self.process is not None and not processes.carries(self.process, "COMPASS_GENERATION", str(self.born)):
            # Its process is gone; the shim may be about to write how.
            self.process = None
        if self.supervisor is not None and self.end is None:
            self.watch = processes.open_watch(self.supervisor)
        if self.watch is None and self.end is None:
            self.supervisor_gone()

    def _is_ours(self, process: ProcessId) -> bool:
        """True while this very process runs; one that was not forked also shows its generation to the world."""
        if process == self.supervisor:
            return processes.is_alive(process)
        return processes.carries(process, "COMPASS_GENERATION", str(self.born))

    def forked(self, pid: int) -> None:
        """It runs as a fork of a standby, without a shim."""
        started = processes.start_time(pid) or 0
        self.process = self.supervisor = ProcessId(pid, started)
        record = {"shim": pid, "shim_started": started, "pid": pid, "started": started}
        write_json(self.files.file(self.run, "process"), record)
        self.watch = processes.open_watch(self.supervisor)

    def read_process(self) -> bool:
        """Learns which process it is; False while that isn't known."""
        value = read_json(self.files.file(self.first, "process"))
        if value is None:
            return False
        self.supervisor = ProcessId(int(value["shim"]), int(value["shim_started"]))
        self.process = ProcessId(int(value["pid"]), int(value["started"]))
        return True

    def read_end(self) -> None:
        """Learns how it ended, if it has."""
        if self.end is not None:
            return
        # Our own verdict (its node was killed, it rejoined) stands above what its shim saw.
        value = read_json(self.files.file(self.run, "verdict")) or read_json(self.files.file(self.first, "end"))
        if value is None:
            return
        code = int(value.get("code", 0))
        cause = value.get("cause")
        if cause is not None:
            self.end = End(EndCause(cause), code, str(value.get("detail", "")))
        elif code < 0:
            self.end = End(EndCause.SIGNALLED, -code, signal.Signals(-code).name)
        else:
            self.end = End(EndCause.EXITED, code)

    def finish(self, end: End) -> None:
        """Writes down how it ended, unless that is known."""
        if self.end is None:
            self.end = end
            record = {"cause": end.cause, "code": end.code, "detail": end.detail, "time": time.time()}
            write_json(self.files.file(self.run, "verdict"), record)

    # ---- what it does

    @property
    def alive(self) -> bool:
        """True while it holds its GPUs."""
        return self.end is None

    @property
    def process_lives(self) -> bool:
        """True while its process is there, or may yet be, whatever has become of the run."""
        return self.doomed or (self.process is not None and processes.is_alive(self.process))

    @property
    def control(self) -> Path:
        """Its control directory."""
        return self.files.control(self.run)

    def supervisor_gone(self) -> None:
        """Its shim has ended, or was started by an earlier engine and hasn't been seen: how is the instance?"""
        self.read_end()
        if self.end is None and not self.read_process() and time.time() < self.ordered + _SHIM_PATIENCE:
            return
        if self.end is None and self.watch is None and self.supervisor is not None:
            self.watch = processes.open_watch(self.supervisor)
        if self.end is None and self.watch is None:
            # Should it start after all, late, it finds no order.
            self.files.file(self.run, "order").unlink(missing_ok=True)
            if self.process is not None:
                processes.kill_group(self.process)
            if contract_files.finished(self.control, self.run.number):
                self.finish(End(EndCause.EXITED, 0, "by its own account"))
            else:
                self.finish(End(EndCause.UNKNOWN, detail="its supervisor was killed"))

    def refresh(self) -> None:
        """Reads what it says."""
        if self.process is None and self.end is None:
            self.read_process()
        for name, path in (
            ("ack", self.control / f"ack-{self.run.number}.json"),
            ("progress", self.control / f"progress-{self.run.number}.json"),
        ):
            try:
                status = path.stat()
            except OSError:
                continue
            version = (status.st_mtime_ns, status.st_ino)
            if self.seen.get(name) == version:
                continue
            self.seen[name] = version
            if name == "ack":
                self.acknowledgement = contract_files.read_acknowledgement(self.control, self.run.number)
            else:
                self.progress = contract_files.read_progress(self.control, self.run.number)

    @property
    def expects_news(self) -> bool:
        """True while something is awaited of it that a migration or a start waits for."""
        if self.process is None:
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
            phase = RunPhase.RUNNING if self.process is not None else RunPhase.PENDING
        handle = f"process {self.process.pid}" if self.process is not None else ""
        return RunReport(self.run, self.node, phase, self.gpus, self.end, self.acknowledgement, self.progress, handle)

    # ---- what is done to it

    def ask_to_end(self, grace: float) -> None:
        """Asks it to end; it is killed after `grace` seconds."""
        deadline = time.monotonic() + grace
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        request = contract_files.held_by(self.control, self.run.number)
        if request:
            contract_files.post_stop(self.control, self.run.number, request)
        elif self.process is not None:
            name = self.signal_name if self.mode is CheckpointMode.SIGNAL else "TERM"
            processes.signal_group(self.process, getattr(signal, f"SIG{name}"))

    def kill(self) -> None:
        """Ends it at once; its shim tells when everything is gone."""
        if self.process is None:
            self.read_process()
        if self.process is not None:
            processes.kill_group(self.process)
            self.doomed = False

    def kill_for_good(self) -> None:
        """The same for one that has been given up: whatever it turns out to be, it is ended as soon as it is known."""
        self.doomed = True
        # A shim that hasn't read it yet starts nothing.
        self.files.file(self.run, "order").unlink(missing_ok=True)
        self.kill()
        if self.doomed and time.time() > self.ordered + _SHIM_PATIENCE:
            self.doomed = False

    def close_watch(self) -> None:
        """Stops watching."""
        if self.watch is not None:
            with contextlib.suppress(OSError):
                os.close(self.watch)
            self.watch = None
