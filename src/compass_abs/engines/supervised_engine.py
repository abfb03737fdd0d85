"""What engines share whose instances run under `instance.py` and whose nodes see one file system."""

import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from compass_abs.engines import contract_files
from compass_abs.engines.local.run_files import RunFiles, read_json, write_json
from compass_abs.engines.protocol import (
    CheckpointMode,
    CheckpointRequest,
    End,
    EndCause,
    EngineRefusalError,
    Rendezvous,
    Report,
    RunId,
    StaleGenerationError,
    StartOrder,
)
from compass_abs.engines.run_book import RunBook
from compass_abs.engines.supervised_run import SupervisedRun

RunT = TypeVar("RunT", bound=SupervisedRun)

#: Ports for rendezvous: below those that the system gives to outgoing connections.
_PORTS = range(20_000, 32_000)
#: How often a run's files are looked at: while something is awaited of it, and otherwise.
_SOON, _LATER = 0.03, 0.5
#: The platform is asked to end what a supervisor should have ended this long ago.
SUPERVISOR_PATIENCE = 3.0
_PROGRAM = Path(__file__).with_name("instance.py")


class SupervisedEngine(Generic[RunT]):
    """Runs and their files. `root` is a folder that this machine and all nodes see under the same path."""

    def __init__(self, root: Path, run_class: type[RunT]) -> None:
        self._run_class = run_class
        self._files = RunFiles(root.absolute())
        self.owner = owner_of(self._files.root)
        self.program = self._files.root / "instance.py"
        shutil.copyfile(_PROGRAM, self.program)
        self._lock = threading.RLock()
        self._runs = RunBook[RunT]()
        self._sink: Callable[[Report], None] = lambda report: None
        self._next_port = secrets.randbelow(len(_PORTS))
        self._closing = threading.Event()
        self._wake = threading.Event()
        for run in self._files.runs():
            found = run_class.load(self._files, run)
            if found is not None:
                self._runs[run] = found

    # ---- for the engine of a platform

    def hand_over(self, old: RunT, new: RunT) -> None:
        """The process of `old` is `new` from now on: so is what the platform has of it."""

    def renamed(self, run: RunT) -> None:
        """A process has become another run: the platform may want to know."""

    def watch(self, sink: Callable[[Report], None]) -> None:
        """Calls back with every change."""
        with self._lock:
            self._sink = sink

    def _meeting(self, address: str) -> Rendezvous:
        """This address, and a port that isn't given out again soon."""
        with self._lock:
            for _ in _PORTS:
                port = _PORTS[self._next_port]
                self._next_port = (self._next_port + 1) % len(_PORTS)
                if address != "127.0.0.1" or _is_free(port):
                    return Rendezvous(address, port)
        raise EngineRefusalError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")

    def _check_fence(self, run: RunId) -> None:
        fence = self._files.fence(run.job_id)
        if run.generation < fence:
            raise StaleGenerationError(f"{run} is older than generation {fence}, which has been started")

    def _prepare(self, order: StartOrder, born: int) -> RunT:
        self._files.control(order.run).mkdir(parents=True, exist_ok=True, mode=0o700)
        workload = order.workload
        run = self._run_class(order.run, order.node, order.gpus, workload.mode, workload.signal, self._files, born)
        run.save()
        return run

    def rejoin(self, order: StartOrder, previous: RunId) -> None:
        """A held process goes on as a run of the next generation, in place."""
        with self._lock:
            old, new = self._runs.get(previous), self._runs.get(order.run)
            if new is None:
                if old is None or not old.alive or not old.running:
                    raise EngineRefusalError(f"{previous} is gone")
                old.refresh()
                request = contract_files.held_by(old.control, previous.number)
                if not request or old.acknowledgement is None or not old.acknowledgement.rejoins:
                    raise EngineRefusalError(f"{previous} does not hold for a new generation")
                self._check_fence(order.run)
                new = self._prepare(order, old.born)
                new.running, new.gpus = True, old.gpus
                self.hand_over(old, new)
                new.save()
                contract_files.post_rejoin(old.control, request, order.run, new.control, order.rendezvous)
                self._runs[order.run] = new
                old.finish(End(EndCause.REJOINED))
                self._tell(old)
                self._tell(new)
        self.renamed(new)
        self._wake.set()

    def request_checkpoint(self, run: RunId, request: CheckpointRequest) -> None:
        """Writes the request: processes look at every step. A signal would have to pass through the platform."""
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.alive:
                raise EngineRefusalError(f"{run} is not running")
            contract_files.post_request(found.control, request)
        self._wake.set()

    def resume(self, run: RunId) -> None:
        """Lets a held run train on."""
        with self._lock:
            found = self._runs.get(run)
            if found is not None and found.alive:
                contract_files.post_resume(found.control, run)

    def ask_to_end(self, run: RunId, grace: float) -> RunT | None:
        """Writes down that it is to end, for its supervisor; None when there is nothing to end."""
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.alive:
                return None
            held = contract_files.held_by(found.control, run.number)
            if held:
                contract_files.post_stop(found.control, run.number, held)
            name = found.signal_name if found.mode is CheckpointMode.SIGNAL else "TERM"
            request = {"signal": "" if held else name, "grace": grace, "handover": bool(held)}
            write_json(found.path("stop"), request)
            found.overdue_at = time.monotonic() + grace + SUPERVISOR_PATIENCE
            return found

    def tell_to_die(self, run: RunId) -> RunT | None:
        """Writes down that it is to be killed at once; None when there is nothing to kill."""
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.alive:
                return None
            write_json(found.path("stop"), {"signal": "", "grace": 0.0, "handover": False})
            found.overdue_at = time.monotonic() + SUPERVISOR_PATIENCE
            return found

    def forget(self, run: RunId) -> None:
        """Drops the run; its log and the job's checkpoints stay."""
        with self._lock:
            found = self._runs.get(run)
            if found is None or found.alive:
                return
            del self._runs[run]
            self._files.file(run, "run").rename(self._files.file(run, "past"))
            self._files.file(run, "order").unlink(missing_ok=True)

    def read_log(self, run: RunId, offset: int, limit: int) -> bytes:
        """What the run printed; a process that rejoined goes on in its old log."""
        contract_files.checked_job_id(run.job_id)
        record = read_json(self._files.file(run, "run")) or read_json(self._files.file(run, "past")) or {}
        path = self._files.file(run._replace(generation=int(record.get("born", run.generation))), "log", "txt")
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(offset if offset >= 0 else max(0, size + offset))
                return file.read(max(0, limit))
        except FileNotFoundError:
            raise EngineRefusalError(f"{run} has no log") from None

    def _tell(self, run: RunT) -> None:
        report = run.report()
        if report != run.told:
            run.told = report
            self._sink(report)

    def _look_at_files(self) -> tuple[list[RunT], float]:
        """Reads the files that are due: runs that overstay, and the time until the next look."""
        now, soonest, overdue = time.monotonic(), _LATER, []
        with self._lock:
            for run in list(self._runs.values()):
                if not run.alive:
                    if run.told is None or run.told.end is None:
                        self._tell(run)
                    continue
                if now >= run.next_look:
                    run.refresh()
                    self._tell(run)
                    run.next_look = now + (_SOON if run.expects_news else _LATER)
                if run.overdue_at is not None and now >= run.overdue_at:
                    run.overdue_at = now + SUPERVISOR_PATIENCE
                    overdue.append(run)
                soonest = min(soonest, max(0.0, run.next_look - now))
        return overdue, soonest


def owner_of(root: Path) -> str:
    """What tells our jobs from those of another controller: made once for each root."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = root / "owner.json"
    known = read_json(path)
    if known is None:
        known = {"owner": secrets.token_hex(4)}
        write_json(path, known)
    return str(known["owner"])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
