"""The embedded engine: virtual nodes of GPU slots on this machine, real processes on them."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compass_abs.engines import contract_files
from compass_abs.engines.local import processes, shim_path
from compass_abs.engines.local.nodes import LocalNodes
from compass_abs.engines.local.run_files import RunFiles, write_json
from compass_abs.engines.local.runs import LocalRun
from compass_abs.engines.local.warm import Standbys, Warmth
from compass_abs.engines.protocol import (
    Capability,
    CheckpointRequest,
    End,
    EndCause,
    EngineRefusalError,
    NodeHealth,
    Observation,
    Rendezvous,
    Report,
    RunId,
    StaleGenerationError,
    StartOrder,
)
from compass_abs.training.standby import StandbyError, Successor

#: Ports for rendezvous: below those that the system gives to outgoing connections.
_PORTS = range(20_000, 32_000)
#: How often a run's files are looked at: while something is awaited of it, and otherwise.
_SOON, _LATER = 0.02, 0.5


class LocalEngine:
    """n virtual nodes under one folder. One engine at a time uses a folder; the controller's journal sees to that."""

    name = "local"

    def __init__(
        self,
        root: Path,
        nodes: int = 4,
        gpus: int = 8,
        pool: str = "",
        real_gpus: Sequence[int] | None = None,
        warmth: Warmth = Warmth.COLD,
    ) -> None:
        self._files = RunFiles(root.absolute())
        self.capabilities = frozenset({Capability.REJOIN})
        self._standbys: Standbys | None = None
        if warmth is Warmth.STANDBY:
            self._standbys = Standbys(self._files.root, [f"n{number}" for number in range(nodes)])
            self.capabilities |= {Capability.WARM_START}
        self._successors: dict[RunId, Successor] = {}
        self._nodes = LocalNodes(self._files, nodes, gpus, pool)
        self._real_gpus = tuple(real_gpus if real_gpus is not None else _real_gpus())
        self._lock = threading.RLock()
        self._runs: dict[RunId, LocalRun] = {}
        self._doomed: list[LocalRun] = []
        self._sink: Callable[[Report], None] = lambda report: None
        self._poller = select.epoll()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._poller.register(self._wake_read, select.EPOLLIN)
        self._watched: dict[int, RunId] = {}
        self._next_port = os.getpid() % len(_PORTS)
        self._closing = False
        for run in self._files.runs():
            found = LocalRun.load(self._files, run)
            if found is not None:
                self._runs[run] = found
                self._doomed += [found] if found.doomed else []
                self._register(found)
        self._thread = threading.Thread(target=self._watch_over, name="local-engine", daemon=True)
        self._thread.start()

    def wait_until_warm(self, seconds: float = 60.0) -> bool:
        """Waits until every standby has imported what it forks; False when that takes longer. At once without any."""
        return self._standbys is None or self._standbys.wait(seconds)

    # ---- what there is

    def observe(self) -> Observation:
        """Everything."""
        with self._lock:
            for run in self._runs.values():
                run.refresh()
            return Observation(
                tuple(node.report() for node in self._nodes), tuple(run.report() for run in self._runs.values())
            )

    def watch(self, sink: Callable[[Report], None]) -> None:
        """Calls back with every change."""
        with self._lock:
            self._sink = sink

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        """A free port of this machine, not given out again soon."""
        with self._lock:
            for _ in _PORTS:
                port = _PORTS[self._next_port]
                self._next_port = (self._next_port + 1) % len(_PORTS)
                with socket.socket() as probe:
                    try:
                        probe.bind(("127.0.0.1", port))
                    except OSError:
                        continue
                return Rendezvous("127.0.0.1", port)
        raise EngineRefusalError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")

    # ---- starting

    def start(self, order: StartOrder) -> None:
        """Starts one instance under a shim of its own."""
        with self._lock:
            if order.run in self._runs:
                return
            self._check_fence(order.run)
            node = self._nodes.usable(order.node)
            taken = {gpu for run in self._runs.values() if run.node == node.name and run.alive for gpu in run.gpus}
            free = [gpu for gpu in range(node.gpus) if gpu not in taken]
            if len(free) < order.gpus:
                raise EngineRefusalError(
                    f"node {node.name!r} has {len(free)} free GPUs, {order.run} needs {order.gpus}"
                )
            run = self._prepare(order, tuple(free[: order.gpus]), order.run.generation)
            try:
                self._launch(order, run)
            except OSError as error:
                run.finish(End(EndCause.EXITED, 127, str(error)))
            self._runs[order.run] = run
            self._register(run)
            self._tell(run)
        self._wake()

    def _check_fence(self, run: RunId) -> None:
        contract_files.checked_job_id(run.job_id)
        fence = self._files.fence(run.job_id)
        if run.generation < fence:
            raise StaleGenerationError(f"{run} is older than generation {fence}, which has been started")

    def _prepare(self, order: StartOrder, gpus: tuple[int, ...], born: int) -> LocalRun:
        self._files.control(order.run).mkdir(parents=True, exist_ok=True, mode=0o700)
        workload = order.workload
        run = LocalRun(order.run, order.node, gpus, workload.mode, workload.signal, self._files, born, time.time())
        run.save({"name": order.display_name})
        return run

    def _launch(self, order: StartOrder, run: LocalRun) -> None:
        workload = order.workload
        job = self._files.job(order.run.job_id)
        checkpoints = Path(workload.checkpoint_dir) if workload.checkpoint_dir else job / "checkpoints"
        workdir = Path(workload.workdir) if workload.workdir else job / "work"
        checkpoints.mkdir(parents=True, exist_ok=True)
        if not workload.workdir:
            workdir.mkdir(exist_ok=True)
        environment = contract_files.instance_environment(
            order,
            control_dir=str(run.control),
            checkpoint_dir=str(checkpoints),
            inherited=os.environ,
            visible_devices=",".join(str(gpu) for gpu in self._visible(run.gpus)),
        )
        environment["COMPASS_SLOTS"] = ",".join(map(str, run.gpus))
        if 0 < len(self._real_gpus) < sum(node.gpus for node in self._nodes):
            environment["COMPASS_SHARED_GPUS"] = "1"
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
        log = self._files.file(order.run, "log", "txt")
        successor = None
        if self._standbys is not None:
            successor = self._standbys.fork(order.node, workload, environment, workdir, log)
        if successor is None:
            self._run_shim(run, self._shim_order(order, run, workdir, environment))
        else:
            self._successors[order.run] = successor
            run.forked(successor.pid)

    def _shim_order(
        self, order: StartOrder, run: LocalRun, workdir: Path, environment: dict[str, str]
    ) -> dict[str, Any]:
        limits = order.workload.limits
        return {
            "command": list(order.workload.command),
            "environment": environment,
            "workdir": str(workdir),
            "limits": {
                "memory_bytes": limits.memory_bytes,
                "open_files": limits.open_files,
                "processes": limits.processes,
                "file_bytes": limits.file_bytes,
                "cores": None if limits.cpus is None else processes.cores(limits.cpus, run.gpus[0]),
            },
            "process_file": str(self._files.file(order.run, "process")),
            "end_file": str(self._files.file(order.run, "end")),
        }

    def _run_shim(self, run: LocalRun, shim_order: dict[str, Any]) -> None:
        path = self._files.file(run.run, "order")
        write_json(path, shim_order)
        path.chmod(0o600)
        with self._files.file(run.run, "log", "txt").open("ab") as log:
            shim = subprocess.Popen(
                [sys.executable, "-I", "-S", str(shim_path.SHIM), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath},
            )
        # Collected by `_reap` when the poller says so, not by this object.
        shim.returncode = 0
        started = processes.start_time(shim.pid)
        if started is not None:
            run.supervisor = processes.ProcessId(shim.pid, started)
            run.watch = processes.open_watch(run.supervisor)

    def _visible(self, gpus: Sequence[int]) -> list[int]:
        """Real GPUs behind these slots: shared when there are fewer, none where there are none."""
        real = self._real_gpus
        return list(dict.fromkeys(real[gpu % len(real)] for gpu in gpus)) if real else []

    def rejoin(self, order: StartOrder, previous: RunId) -> None:
        """A held process goes on as a run of the next generation."""
        with self._lock:
            old = self._runs.get(previous)
            new = self._runs.get(order.run)
            if new is None:
                if old is None or not old.alive or old.process is None:
                    raise EngineRefusalError(f"{previous} is gone")
                old.refresh()
                request = contract_files.held_by(old.control, previous.number)
                if not request or old.acknowledgement is None or not old.acknowledgement.rejoins:
                    raise EngineRefusalError(f"{previous} does not hold for a new generation")
                self._check_fence(order.run)
                new = self._prepare(order, old.gpus, old.born)
                contract_files.post_rejoin(old.control, request, order.run, new.control, order.rendezvous)
                new.supervisor, new.process = old.supervisor, old.process
                old.close_watch()
                new.watch = processes.open_watch(new.supervisor) if new.supervisor is not None else None
                self._runs[order.run] = new
                self._register(new)
                old.finish(End(EndCause.REJOINED))
                self._tell(old)
                self._tell(new)
        self._wake()

    # ---- asking and ending

    def request_checkpoint(self, run: RunId, request: CheckpointRequest) -> None:
        """Writes the request: processes look at every step. A signal would end one that doesn't listen yet."""
        with self._lock:
            found = self._alive(run)
            contract_files.post_request(found.control, request)
        self._wake()

    def resume(self, run: RunId) -> None:
        """Lets a held process train on."""
        with self._lock:
            found = self._runs.get(run)
            if found is not None and found.alive:
                contract_files.post_resume(found.control, run)

    def stop(self, run: RunId, grace: float) -> None:
        """Asks it to end, kills it after `grace` seconds."""
        with self._lock:
            found = self._runs.get(run)
            if found is not None and found.alive:
                found.refresh()
                found.ask_to_end(grace)
        self._wake()

    def kill(self, run: RunId) -> None:
        """Ends it now."""
        with self._lock:
            found = self._runs.get(run)
            if found is not None and found.alive:
                found.kill_at = time.monotonic()
                found.kill()
        self._wake()

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
        with self._lock:
            contract_files.checked_job_id(run.job_id)
            path = self._files.file(run, "log", "txt")
            found = self._runs.get(run)
            if found is not None:
                path = self._files.file(found.first, "log", "txt")
            else:
                past = LocalRun.load(self._files, run) if not path.exists() else None
                path = self._files.file(past.first, "log", "txt") if past is not None else path
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(offset if offset >= 0 else max(0, size + offset))
                return file.read(max(0, limit))
        except FileNotFoundError:
            raise EngineRefusalError(f"{run} has no log") from None

    def _alive(self, run: RunId) -> LocalRun:
        found = self._runs.get(run)
        if found is None or not found.alive:
            raise EngineRefusalError(f"{run} is not running")
        return found

    # ---- nodes, for tests and demonstrations

    def kill_node(self, name: str) -> None:
        """A node fails: everything on it dies at once."""
        with self._lock:
            node = self._nodes.set_health(name, NodeHealth.LOST, "killed")
            for run in self._runs.values():
                if run.node == name and run.alive:
                    run.finish(End(EndCause.NODE_LOST, detail=f"node {name} was killed"))
                    run.kill_for_good()
                    # Kept apart: the controller may well have it forgotten before it is gone.
                    self._doomed.append(run)
                    self._tell(run)
            self._sink(node.report())
        self._wake()

    def abandon(self, seconds: float = 5.0) -> None:
        """Kills every node that still runs something: for a system that is thrown away, with the folder of it."""
        for name in dict.fromkeys(run.node for run in list(self._runs.values()) if run.alive):
            self.kill_node(name)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(run.process_lives for run in (*self._runs.values(), *self._doomed)):
            time.sleep(_SOON)

    def restore_node(self, name: str) -> None:
        """A node is back, empty."""
        with self._lock:
            self._sink(self._nodes.set_health(name, NodeHealth.READY).report())

    def cordon_node(self, name: str) -> None:
        """A node is closed by other means than the controller's."""
        with self._lock:
            self._sink(self._nodes.set_health(name, NodeHealth.CORDONED).report())

    # ---- watching

    def _register(self, run: LocalRun) -> None:
        if run.watch is not None:
            self._poller.register(run.watch, select.EPOLLIN)
            self._watched[run.watch] = run.run

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _tell(self, run: LocalRun) -> None:
        report = run.report()
        if report != run.told:
            run.told = report
            self._sink(report)

    def _watch_over(self) -> None:
        """Until the engine is closed: notices deaths at once, reads what processes say, kills the overdue."""
        timeout = 0.0
        while True:
            events = self._poller.poll(timeout)
            with self._lock:
                if self._closing:
                    return
                for descriptor, _ in events:
                    self._on_event(descriptor)
                timeout = self._look_around()

    def _on_event(self, descriptor: int) -> None:
        if descriptor == self._wake_read:
            os.read(self._wake_read, 4096)
            return
        self._poller.unregister(descriptor)
        run = self._runs.get(self._watched.pop(descriptor))
        if run is not None and run.watch == descriptor:
            run.close_watch()
            run.refresh()
            self._hear_of_end(run)
            run.supervisor_gone()
            _reap(run.supervisor)
            self._tell(run)

    def _hear_of_end(self, run: LocalRun) -> None:
        """What the standby that forked it says of its end; nothing when that is gone."""
        successor = self._successors.pop(run.first, None)
        if successor is not None:
            with contextlib.suppress(StandbyError, OSError, ValueError):
                code = successor.wait(2.0)
                if code is not None:
                    write_json(self._files.file(run.first, "end"), {"code": code, "time": time.time()})

    def _look_around(self) -> float:
        now, soonest = time.monotonic(), _SOON if self._doomed else _LATER
        for run in self._doomed:
            run.kill_for_good()
        self._doomed = [run for run in self._doomed if run.doomed]
        for run in self._runs.values():
            if not run.alive:
                self._tell(run)
                continue
            if run.watch is None:
                # Its shim had ended before it could be watched, or hadn't said yet which process it is.
                run.supervisor_gone()
                self._register(run)
            if run.kill_at is not None and now >= run.kill_at:
                run.kill()
                run.kill_at = now + 1.0
            if now >= run.next_look:
                run.refresh()
                self._tell(run)
                run.next_look = now + (_SOON if run.expects_news else _LATER)
            soonest = min(soonest, run.next_look - now, (run.kill_at or now + 1.0) - now)
        return max(soonest, 0.0)

    def close(self) -> None:
        """Stops watching; the processes run on."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake()
        self._thread.join(10.0)
        if self._standbys is not None:
            self._standbys.close()
        for run in self._runs.values():
            run.close_watch()
        self._poller.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _reap(process: processes.ProcessId | None) -> None:
    """Collects a shim that was a child of ours; one that an earlier engine started is not."""
    if process is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, 0)


def _real_gpus() -> list[int]:
    """Indices of the NVIDIA GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [int(word) for word in visible.split(",") if word.strip().isdigit()]
    return sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())
