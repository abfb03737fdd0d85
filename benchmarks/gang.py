"""A gang of real training processes without an engine, its standby, and a stopwatch: what `bench_migration` moves."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from compass_abs.training import contract
from compass_abs.training.contract import Directive, DirectiveKind, ProcessState, Progress, Request, RequestKind
from compass_abs.training.standby import StandbyError, Successor, fork_successor

#: Seconds from the request to the end of each.
PHASES = ("agreed", "saved", "exited", "imported", "joined", "loaded", "first_step")
#: Steps between the background checkpoints of `snapshot`.
SNAPSHOT_EVERY = 20
#: Between two looks at the ranks' files: small against every phase.
_GLANCE = 0.001
#: A rank that has been told to stop and saves nothing more has ended by then.
_ENDING = 10.0

Process = subprocess.Popen[bytes] | Successor


class Way(StrEnum):
    """How a gang is moved."""

    COLD = "cold"
    """Stop, then start a new interpreter at the new place."""
    WARM = "warm"
    """Stop, then fork the successor from the standby of the node."""
    AHEAD = "ahead"
    """Fork the successor first, let it build everything, stop the old one only then."""
    REJOIN = "rejoin"
    """One instance moves (warm), the other stays and only re-forms the process group; needs two ranks."""
    SNAPSHOT = "snapshot"
    """Like ahead, with periodic checkpoints in the background, so that the last one writes only what changed."""


@dataclass
class Generation:
    """One start of the gang."""

    number: int
    control: Path
    port: int
    processes: list[Process] = field(default_factory=list)


class Gang:
    """The ranks of one job, moved again and again; `with` ends them all, whatever has happened."""

    def __init__(
        self, folder: Path, words: list[str], ranks: int, environment: Mapping[str, str], patience: float
    ) -> None:
        self.folder, self.words, self.ranks, self.patience = folder, words, ranks, patience
        self.extra = dict(environment)
        self.checkpoints = folder / "checkpoints"
        self.standby: subprocess.Popen[bytes] | None = None
        self.standby_ready = 0.0
        self._started: list[Process] = []
        self._number = 0
        self._current: Generation | None = None

    # ---- coming and going

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        alive = [process for process in self._started if not _ended(process)]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for process in alive:
            with contextlib.suppress(StandbyError, subprocess.TimeoutExpired):
                process.wait(_ENDING)
        if self.standby is not None:
            self.standby.terminate()
            self.standby.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self, modules: list[str], saving: bool = False) -> None:
        """Starts the standby and, beside it, the first generation; until both are ready."""
        begin = time.time()
        address = str(self.folder / "standby")
        self.standby = subprocess.Popen(
            [sys.executable, "-m", "compass_abs.training.standby", address, *modules], stdout=subprocess.PIPE
        )
        self._current = first = self._next()
        first.processes = [self._start(first, rank, saving=saving) for rank in range(self.ranks)]
        assert self.standby.stdout is not None
        if self.standby.stdout.readline() != b"ready\n":
            raise RuntimeError("the standby did not start")
        self.standby_ready = time.time() - begin
        self._wait_state(first, ProcessState.RUNNING)

    def _next(self) -> Generation:
        """The next generation, with a rendezvous of its own."""
        self._number += 1
        control = self.folder / f"control-{self._number}"
        control.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return Generation(self._number, control, probe.getsockname()[1])

    def _start(
        self, generation: Generation, rank: int, *, warm: bool = False, hold: bool = False, saving: bool = False
    ) -> Process:
        words = [*self.words, "--log", str(self.folder / "losses")]
        words += ["--saving", "background", "--save-every", str(SNAPSHOT_EVERY)] if saving else []
        environment = self._environment(generation, rank, hold)
        output = self.folder / f"out-{generation.number}-{rank}"
        process: Process
        if warm:
            process = fork_successor(self.folder / "standby", words, environment, output=output)
        else:
            with output.open("wb") as file:
                process = subprocess.Popen([sys.executable, *words], env=environment, stdout=file, stderr=file)
        self._started.append(process)
        return process

    def _environment(self, generation: Generation, rank: int, hold: bool) -> dict[str, str]:
        """What an engine would give this rank."""
        return {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_RANK": "0",
            "NODE_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(generation.port),
            "COMPASS_JOB_ID": "bench",
            "COMPASS_INSTANCE": str(rank),
            "COMPASS_GENERATION": str(generation.number),
            "COMPASS_CHECKPOINT_DIR": str(self.checkpoints),
            "COMPASS_CONTROL_DIR": str(generation.control),
            "COMPASS_HOLD": "1" if hold else "0",
            "GLOO_SOCKET_IFNAME": "lo",
            **self.extra,
        }

    # ---- moving

    def migrate(self, way: Way, *, saving_next: bool = False) -> dict[str, float]:
        """Moves the gang; seconds from the request to the end of each phase.

        `saving_next` lets the successor take snapshots, which `Way.SNAPSHOT` needs of the gang that it moves.
        """
        assert self._current is not None, "begin first"
        old, new = self._current, self._next()
        ahead = way in (Way.AHEAD, Way.SNAPSHOT)
        if ahead:
            new.processes = [
                self._start(new, rank, warm=True, hold=True, saving=saving_next) for rank in range(self.ranks)
            ]
            self._wait_state(new, ProcessState.WAITING)
        if way is Way.SNAPSHOT:
            snapshot = f"checkpoint-g{old.number:06d}-*.json"
            self._until(lambda: any(self.checkpoints.glob(snapshot)), old)
        begin = time.time()
        request = Request(f"{way}-{new.number}", RequestKind.HOLD if way is Way.REJOIN else RequestKind.STOP)
        saved = self._ask(old, request)
        if way is Way.REJOIN:
            self._rejoin(old, new, request, saving_next)
        else:
            self._wait_exit(old.processes)
        times = {name: max(answer.phases[name] for answer in saved) - begin for name in ("agreed", "saved")}
        times["exited"] = time.time() - begin
        if ahead:
            contract.post_go(new.control)
        elif way is not Way.REJOIN:
            warm = way is Way.WARM
            new.processes = [self._start(new, rank, warm=warm, saving=saving_next) for rank in range(self.ranks)]
        reports = self._wait_state(new, ProcessState.RUNNING)
        for name in PHASES[3:]:
            times[name] = max(report.phases.get(name, 0.0) for report in reports) - begin
        resumed = min(report.resumed_at for report in reports)
        if resumed != saved[0].step:
            raise RuntimeError(f"resumed at {resumed}, saved at {saved[0].step}")
        self._current = new
        return times

    def _ask(self, old: Generation, request: Request) -> list[contract.Acknowledgement]:
        contract.post_request(old.control, request)
        self._until(lambda: all(contract.read_acknowledgement(old.control, r) for r in range(self.ranks)), old)
        answers = [contract.read_acknowledgement(old.control, rank) for rank in range(self.ranks)]
        saved = [answer for answer in answers if answer is not None and answer.path]
        if len(saved) != self.ranks:
            raise RuntimeError(f"not saved: {answers}")
        return saved

    def _rejoin(self, old: Generation, new: Generation, request: Request, saving: bool) -> None:
        """Rank 0 stays, the others move."""
        stay = Directive(request.id, DirectiveKind.REJOIN, new.number, str(new.control), "127.0.0.1", new.port)
        contract.post_directive(old.control, 0, stay)
        for rank in range(1, self.ranks):
            contract.post_directive(old.control, rank, Directive(request.id, DirectiveKind.STOP))
        self._wait_exit(old.processes[1:])
        movers = [self._start(new, rank, warm=True, saving=saving) for rank in range(1, self.ranks)]
        new.processes = [old.processes[0], *movers]

    def step_seconds(self) -> float:
        """Seconds of a training step, from two heartbeats of rank 0 some seconds apart."""
        assert self._current is not None, "begin first"
        generation, seen = self._current, list[Progress]()

        def two_apart() -> bool:
            report = contract.read_progress(generation.control, 0)
            if report is not None and (not seen or report.step > seen[-1].step):
                seen.append(report)
            # The first step of all builds caches and compiles kernels, so the report of it is no beginning.
            return len(seen) > 2

        self._until(two_apart, generation)
        return (seen[-1].time - seen[1].time) / (seen[-1].step - seen[1].step)

    def checkpoint_bytes(self) -> dict[str, int]:
        """Of the whole and of the delta checkpoints that are there now; 0 where there is none."""
        sizes = {"whole": 0, "delta": 0}
        for path in self.checkpoints.glob("checkpoint-*.json"):
            manifest = json.loads(path.read_text(encoding="utf-8"))
            sizes["delta" if manifest["base"] else "whole"] = manifest["bytes"]
        return sizes

    # ---- waiting

    def _wait_state(self, generation: Generation, state: ProcessState) -> list[Progress]:
        """Every rank's report, once all are in this state."""
        found: list[Progress] = []

        def there() -> bool:
            reports = [contract.read_progress(generation.control, rank) for rank in range(self.ranks)]
            found[:] = [report for report in reports if report is not None]
            if any(report.state is ProcessState.FAILED for report in found):
                raise RuntimeError(self._outputs(generation))
            return len(found) == self.ranks and all(report.state is state for report in found)

        self._until(there, generation)
        return found

    def _until(self, condition: Callable[[], Any], generation: Generation) -> None:
        deadline = time.monotonic() + self.patience
        while not condition():
            ended = any(_ended(process) for process in generation.processes)
            # What it wrote before its end counts.
            if (ended and not condition()) or time.monotonic() > deadline:
                raise RuntimeError(self._outputs(generation))
            time.sleep(_GLANCE)

    def _wait_exit(self, processes: list[Process]) -> None:
        for process in processes:
            process.wait(self.patience)

    def _outputs(self, generation: Generation) -> str:
        """What the ranks printed, for an error."""
        files = sorted(self.folder.glob(f"out-{generation.number}-*"))
        printed = "\n".join(file.read_text(encoding="utf-8", errors="replace")[-2000:] for file in files)
        return f"generation {generation.number} is late or dead; it printed:\n{printed}"


def _ended(process: Process) -> bool:
    """True when it runs no more, whoever has learnt of it."""
    if isinstance(process, subprocess.Popen):
        return process.poll() is not None
    connection = process.connection
    return connection.fileno() < 0 or bool(select.select([connection], [], [], 0)[0])
