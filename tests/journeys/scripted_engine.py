"""An engine whose nodes, processes and mishaps are scripted, on a manual clock: what real ones do, without them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from compass_abs.engines.protocol import (
    Acknowledgement,
    AfterCheckpoint,
    Capability,
    CheckpointMode,
    CheckpointRequest,
    End,
    EndCause,
    EngineRefusalError,
    EngineUnavailableError,
    NodeHealth,
    NodeReport,
    Observation,
    Progress,
    Rendezvous,
    Report,
    RunId,
    RunPhase,
    RunReport,
    StaleGenerationError,
    StartOrder,
)


class ManualClock:
    """Two clocks that move when told to."""

    def __init__(self) -> None:
        self._monotonic = 1000.0
        self._wall = 1_800_000_000.0

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """People's clock is set; time itself is not."""
        self._wall += seconds


@dataclass
class Process:
    """One simulated instance."""

    order: StartOrder
    node: str
    started: float
    phase: RunPhase = RunPhase.PENDING
    step: int = 0
    resumed_at: int = 0
    end: End | None = None
    request: str = ""
    ack_at: float | None = None
    ack: Acknowledgement | None = None
    held: bool = False
    stop_at: float | None = None
    told_to_resume: str = ""
    #: Its node is lost, and it lives on out of sight.
    cut_off: bool = False
    #: It lived through a partition: until it is found and ended, a newer copy may run elsewhere.
    survivor: bool = False
    #: What it saved by itself, and the step of that.
    saved: str = ""
    saved_step: int = -1

    @property
    def alive(self) -> bool:
        return self.end is None


@dataclass
class Script:
    """Mishaps to come: each is used up by the event that it befalls."""

    refuse_start: int = 0
    unavailable: int = 0
    #: The call is made, but its answer is lost.
    answer_lost: int = 0
    disk_full: int = 0
    silent_checkpoint: int = 0
    stubborn: int = 0
    die_on_start: int = 0
    die_on_request: int = 0
    die_after_ack: int = 0
    #: Checkpoints that kill whoever starts from them.
    corrupt: set[str] = field(default_factory=set)


class ScriptedEngine:
    """The hands of the journeys."""

    name = "scripted"

    def __init__(
        self,
        clock: ManualClock,
        nodes: int = 4,
        gpus: int = 8,
        rejoin: bool = True,
        steps: int = 20,
        seconds_per_step: float = 1.0,
    ) -> None:
        self.clock = clock
        self.capacity = {f"n{i}": gpus for i in range(nodes)}
        self.lost: set[str] = set()
        self.cordoned: set[str] = set()
        self.processes: dict[RunId, Process] = {}
        self.fence: dict[str, int] = {}
        self.script = Script()
        self.steps = steps
        self.seconds_per_step = seconds_per_step
        self.start_seconds, self.save_seconds, self.stop_seconds = 0.5, 0.5, 0.5
        #: Seconds for which a process that is up says and hears nothing: it imports its framework.
        self.import_seconds = 0.0
        #: Seconds that programs that can't be asked to save would repeat.
        self.cannot_save = 0.0
        self.capabilities = frozenset({Capability.REJOIN}) if rejoin else frozenset[Capability]()
        self.checkpoints: dict[str, int] = {}
        #: Steps after which a gang saves by itself; 0: only when asked.
        self.save_every = 0
        self.calls: list[str] = []
        self.trained: dict[str, list[int]] = {}
        #: Jobs of which an instance died by itself, however often.
        self.died: set[str] = set()
        #: Jobs of which a whole gang has done its last step.
        self.finished: set[str] = set()
        self._sink: Callable[[Report], None] = lambda report: None
        self._told: dict[RunId, RunReport] = {}
        self._told_nodes: dict[str, NodeReport] = {}
        self._carry: dict[str, float] = {}

    # ---- the protocol

    def watch(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink

    def observe(self) -> Observation:
        self._maybe_unavailable("observe", None)
        return Observation(
            tuple(self._node(name) for name in self.capacity),
            tuple(self._report(run) for run, process in self.processes.items() if not process.cut_off),
        )

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        return Rendezvous(nodes[0], 20_000 + generation)

    def start(self, order: StartOrder) -> None:
        self._maybe_unavailable("start", order.run)
        if order.run.generation < self.fence.get(order.run.job_id, 0):
            raise StaleGenerationError(f"{order.run} is older than {self.fence[order.run.job_id]}")
        if order.run in self.processes:
            return
        if self.script.refuse_start:
            self.script.refuse_start -= 1
            raise EngineRefusalError(f"{order.node} has no GPUs left")
        if order.node not in self.capacity or order.node in self.lost or order.node in self.cordoned:
            raise EngineRefusalError(f"{order.node} can't be used")
        if self.used(order.node) + order.gpus > self.capacity[order.node]:
            raise EngineRefusalError(f"{order.node} has no room for {order.run}")
        self.fence[order.run.job_id] = max(self.fence.get(order.run.job_id, 0), order.run.generation)
        self.processes[order.run] = Process(order, order.node, self.clock.monotonic())
        self._maybe_lose_answer()

    def rejoin(self, order: StartOrder, previous: RunId) -> None:
        self._maybe_unavailable("rejoin", order.run)
        if order.run in self.processes:
            return
        old = self.processes.get(previous)
        if old is None or not old.alive or not old.held or old.cut_off:
            raise EngineRefusalError(f"{previous} does not hold")
        self.fence[order.run.job_id] = max(self.fence.get(order.run.job_id, 0), order.run.generation)
        self.processes[order.run] = Process(order, old.node, self.clock.monotonic())
        old.end = End(EndCause.REJOINED)
        self._maybe_lose_answer()

    def request_checkpoint(self, run: RunId, request: CheckpointRequest) -> None:
        self._maybe_unavailable("request", run)
        process = self._find(run)
        if process.request == request.id:
            return
        if self.script.die_on_request:
            self.script.die_on_request -= 1
            self._die(process, End(EndCause.SIGNALLED, 9))
            return
        process.request = request.id
        assert request.then is AfterCheckpoint.HOLD
        if self.script.silent_checkpoint:
            self.script.silent_checkpoint -= 1
        else:
            process.ack_at = self.clock.monotonic() + self.save_seconds
        self._maybe_lose_answer()

    def resume(self, run: RunId) -> None:
        self._maybe_unavailable("resume", run)
        process = self.processes.get(run)
        if process is not None and process.alive:
            process.held, process.told_to_resume = False, process.request

    def stop(self, run: RunId, grace: float) -> None:
        self._maybe_unavailable("stop", run)
        process = self.processes.get(run)
        if process is None or not process.alive or process.cut_off:
            return
        if self.script.stubborn:
            self.script.stubborn -= 1
            process.stop_at = self.clock.monotonic() + grace
        else:
            process.stop_at = self.clock.monotonic() + min(grace, self.stop_seconds)
        self._maybe_lose_answer()

    def kill(self, run: RunId) -> None:
        self._maybe_unavailable("kill", run)
        process = self.processes.get(run)
        if process is not None and process.alive and not process.cut_off:
            self._end(process, End(EndCause.SIGNALLED, 9))

    def forget(self, run: RunId) -> None:
        self._maybe_unavailable("forget", run)
        process = self.processes.get(run)
        if process is not None and not process.alive:
            del self.processes[run]
            self._told.pop(run, None)

    def read_log(self, run: RunId, offset: int, limit: int) -> bytes:
        raise EngineRefusalError("nothing is printed here")

    def close(self) -> None:
        pass

    # ---- mishaps

    def _maybe_unavailable(self, method: str, run: RunId | None) -> None:
        self.calls.append(f"{method} {run}")
        if self.script.unavailable:
            self.script.unavailable -= 1
            raise EngineUnavailableError("no answer")

    def _maybe_lose_answer(self) -> None:
        if self.script.answer_lost:
            self.script.answer_lost -= 1
            raise EngineUnavailableError("the answer was lost")

    def lose(self, node: str) -> None:
        """A node is cut off: its processes may live on, unseen, and are killed when it comes back."""
        self.lost.add(node)
        for process in self.processes.values():
            if process.node == node:
                process.cut_off = True
        self.report()

    def bring_back(self, node: str, rebooted: bool = True) -> None:
        """A node is back, with its processes gone or still there."""
        self.lost.discard(node)
        for process in self.processes.values():
            if process.node == node and process.cut_off:
                process.cut_off = False
                if rebooted and process.alive:
                    self._end(process, End(EndCause.NODE_LOST))
                process.survivor = True
        self.report()

    def crash(self, run: RunId, code: int = 1) -> None:
        """A process dies of itself."""
        process = self.processes.get(run)
        if process is not None and process.alive:
            self._die(process, End(EndCause.EXITED, code))

    # ---- the world

    def advance(self, seconds: float) -> None:
        """Processes do what they do in this time. Call after the clock has moved."""
        now = self.clock.monotonic()
        for process in list(self.processes.values()):
            if process.alive and not process.cut_off:
                self._live(process, now)
        for job_id in dict.fromkeys(run.job_id for run in self.processes):
            self._train(job_id, seconds)
        self.report()

    def _live(self, process: Process, now: float) -> None:
        if process.stop_at is not None and now >= process.stop_at:
            mode = process.order.workload.mode
            if mode is CheckpointMode.SIGNAL:
                self._save(process)
            self._end(
                process, End(EndCause.EXITED, 0) if mode is CheckpointMode.SIGNAL else End(EndCause.SIGNALLED, 15)
            )
        elif process.phase is RunPhase.PENDING and now >= process.started + self.start_seconds:
            if process.order.resume_from in self.script.corrupt:
                self._end(process, End(EndCause.EXITED, 1, "checkpoint can't be read"))
                return
            if self.script.die_on_start:
                self.script.die_on_start -= 1
                self._die(process, End(EndCause.EXITED, 1, "out of memory"))
                return
            process.phase = RunPhase.RUNNING
            resume = process.order.resume_from
            known = [step for path, step in self.checkpoints.items() if path.startswith(process.order.run.job_id + ":")]
            latest = max(known, default=0) if process.order.workload.mode is not CheckpointMode.SESSION else 0
            process.step = process.resumed_at = self.checkpoints.get(resume, latest)
        elif not self._listens(process):
            return
        elif process.ack_at is not None and now >= process.ack_at and process.told_to_resume != process.request:
            process.ack_at = None
            if self.script.disk_full:
                self.script.disk_full -= 1
                process.ack = Acknowledgement(process.request, -1, "", "no space left on device")
                return
            path, lost = self._save(process), self.cannot_save
            process.ack = Acknowledgement(process.request, process.step, path, lost_seconds=lost)
            process.held = True
            if self.script.die_after_ack:
                self.script.die_after_ack -= 1
                self._die(process, End(EndCause.EXITED, 1))

    def _listens(self, process: Process) -> bool:
        up_since = process.started + self.start_seconds
        return process.phase is not RunPhase.PENDING and self.clock.monotonic() >= up_since + self.import_seconds

    def _save(self, process: Process) -> str:
        path = f"{process.order.run.job_id}:{process.step}"
        self.checkpoints[path] = process.step
        return path

    def _train(self, job_id: str, seconds: float) -> None:
        """A gang trains when all its ranks of one generation are up, none holds and none was asked to save."""
        for generation in dict.fromkeys(run.generation for run in self.processes if run.job_id == job_id):
            gang = [p for run, p in self.processes.items() if run.job_id == job_id and run.generation == generation]
            up = [p for p in gang if p.alive and self._listens(p) and not p.cut_off]
            if not gang or len(up) < len(gang[0].order.nodes):
                continue
            saving = [p for p in up if p.held or (p.request and p.request != p.told_to_resume)]
            if saving:
                continue
            self._carry[job_id] = self._carry.get(job_id, 0.0) + seconds
            done = int(self._carry[job_id] / self.seconds_per_step)
            self._carry[job_id] -= done * self.seconds_per_step
            for process in up:
                process.step = min(process.step + done, self.steps)
                if process.step >= self.steps:
                    process.end = End(EndCause.EXITED, 0)
                    process.phase = RunPhase.ENDED
            if done:
                self.trained.setdefault(job_id, []).append(up[0].step)
                self._save_now_and_then(up)
            if up[0].step >= self.steps:
                self.finished.add(job_id)

    def _save_now_and_then(self, gang: list[Process]) -> None:
        step = gang[0].step
        if self.save_every and step - max(gang[0].saved_step, gang[0].resumed_at) >= self.save_every:
            path = self._save(gang[0])
            for process in gang:
                process.saved, process.saved_step = path, step

    def _die(self, process: Process, end: End) -> None:
        """Nobody else's doing."""
        self.died.add(process.order.run.job_id)
        self._end(process, end)

    def _end(self, process: Process, end: End) -> None:
        process.end, process.phase = end, RunPhase.ENDED

    # ---- what is seen

    def used(self, node: str) -> int:
        """GPUs of a node that living processes hold."""
        return sum(p.order.gpus for p in self.processes.values() if p.node == node and p.alive)

    def _find(self, run: RunId) -> Process:
        process = self.processes.get(run)
        if process is None or not process.alive or process.cut_off:
            raise EngineRefusalError(f"{run} is not running")
        return process

    def _node(self, name: str) -> NodeReport:
        if name in self.lost:
            health = NodeHealth.LOST
        else:
            health = NodeHealth.CORDONED if name in self.cordoned else NodeHealth.READY
        return NodeReport(name, self.capacity[name], health=health)

    def _report(self, run: RunId) -> RunReport:
        process = self.processes[run]
        phase = RunPhase.ENDED if process.end is not None else process.phase
        progress = None
        if self._listens(process) and process.order.workload.mode is CheckpointMode.SESSION:
            wall, saved = self.clock.wall(), (process.saved, process.saved_step)
            progress = Progress(process.step, wall, process.resumed_at, *saved, total=self.steps)
        return RunReport(run, process.node, phase, (), process.end, process.ack, progress, str(run))

    def report(self) -> None:
        """Tells the watcher whatever changed."""
        for name in self.capacity:
            report = self._node(name)
            if self._told_nodes.get(name) != report:
                self._told_nodes[name] = report
                self._sink(report)
        for run, process in list(self.processes.items()):
            if process.cut_off:
                continue
            seen = self._report(run)
            told = self._told.get(run)
            same = told is not None and _timeless(told) == _timeless(seen)
            if not same:
                self._told[run] = seen
                self._sink(seen)


def _timeless(report: RunReport) -> RunReport:
    return replace(report, progress=report.progress and report.progress._replace(time=0.0))
