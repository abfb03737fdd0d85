"""A controller, a scripted engine and a clock, with the invariants checked after every tick."""

from collections import Counter

from compass_abs.controller.book import JobPhase
from compass_abs.controller.effects import Effect, EffectResult, carry_out
from compass_abs.controller.invariants import check_controller
from compass_abs.controller.job_spec import JobSpec, check_job
from compass_abs.controller.journal import MemoryJournal
from compass_abs.controller.reconcile import Config, Controller
from compass_abs.controller.records import Record
from compass_abs.engines.protocol import EngineUnavailableError, Report, RunId
from tests.journeys.scripted_engine import ManualClock, ScriptedEngine


class Crash(BaseException):
    """The controller is killed here."""


class Fuse:
    """Counts the places where a controller can be killed, and kills it at one of them."""

    def __init__(self) -> None:
        self.passed = 0
        self.blow_at: int | None = None

    def pass_by(self) -> None:
        self.passed += 1
        if self.blow_at is not None and self.passed == self.blow_at:
            raise Crash


class FusedJournal(MemoryJournal):
    """A journal around whose commits the controller may be killed."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self._fuse = fuse

    def append(self, records: list[Record]) -> None:  # type: ignore[override]
        self._fuse.pass_by()
        super().append(records)
        self._fuse.pass_by()


class World:
    """Everything that a journey needs."""

    def __init__(self, config: Config | None = None, **engine: object) -> None:
        self.clock = ManualClock()
        self.engine = ScriptedEngine(self.clock, **engine)  # type: ignore[arg-type]
        self.fuse = Fuse()
        self.journal = FusedJournal(self.fuse)
        self.config = config or Config(scheduler="best-fit")
        self.restarts = 0
        self._reports: list[Report] = []
        self._results: list[EffectResult] = []
        self._since_observation = 0.0
        self.start_controller()
        self.tick(0.0)

    def start_controller(self) -> None:
        """A controller on the journal, as after a crash."""
        self._reports.clear()
        self._results.clear()
        self.engine.watch(self._reports.append)
        self.controller = Controller(self.journal, self.engine, self._carry_out, self.clock, self.config)

    def _carry_out(self, effect: Effect) -> None:
        calls = effect.calls
        for number in range(len(calls)):
            self.fuse.pass_by()
            single = Effect(effect.id, effect.job_id, effect.kind, calls[number : number + 1])
            result = carry_out(self.engine, single)
            self.fuse.pass_by()
            if not result.succeeded:
                self._results.append(EffectResult(effect, number, result.refused, result.unavailable))
                return
        self._results.append(EffectResult(effect, len(calls)))

    # ---- time

    def tick(self, seconds: float = 0.25) -> None:
        """Time passes, things are seen, the controller steps; when it is killed, another one takes over."""
        self.clock.advance(seconds)
        self.engine.advance(seconds)
        self._since_observation += seconds
        try:
            self._tell()
        except Crash:
            self.restarts += 1
            self.start_controller()
        self.check()

    def _tell(self) -> None:
        controller = self.controller
        if controller.wants_observation or self._since_observation > 15:
            ticket = controller.ticket
            try:
                observation = self.engine.observe()
            except EngineUnavailableError:
                observation = None
            if observation is not None:
                controller.wants_observation = False
                self._since_observation = 0.0
                controller.on_observation(observation, ticket)
        reports, results = list(self._reports), list(self._results)
        self._reports.clear()
        self._results.clear()
        for report in reports:
            controller.on_report(report)
        for result in results:
            controller.on_effect(result)
        controller.step()

    def run(self, seconds: float, tick: float = 0.25) -> None:
        """Lets time pass."""
        for _ in range(int(seconds / tick)):
            self.tick(tick)

    def run_until(self, what: object, seconds: float = 120.0) -> None:
        """Lets time pass until something is so."""
        assert callable(what)
        for _ in range(int(seconds / 0.25)):
            if what():
                return
            self.tick()
        raise AssertionError(f"not within {seconds} s: {self.story()}")

    def finish(self, seconds: float = 2000.0) -> None:
        """Lets time pass until every job is over."""
        self.run_until(lambda: all(entry.over for entry in self.controller.book.jobs.values()), seconds)

    # ---- people

    def submit(self, instances: int = 1, gpus: int = 1, **fields: object) -> str:
        """A job, submitted as often as it takes until it is accepted."""
        while True:
            while not self.controller.ready:
                self.tick()
            job_id = self.controller.submit(spec(instances, gpus, **fields))
            if self._step() or job_id in self.controller.book.jobs:
                return job_id

    def command(self, name: str, *arguments: object) -> None:
        """An operator's command, repeated when the controller was killed by it."""
        while True:
            getattr(self.controller, name)(*arguments)
            if self._step():
                return

    def _step(self) -> bool:
        """False when the controller was killed, and another one has taken over."""
        try:
            self.controller.step()
        except Crash:
            self.restarts += 1
            self.start_controller()
            return False
        return True

    # ---- what must hold

    def check(self) -> None:
        """Nothing doubled, nothing lost, nothing overcommitted."""
        check_controller(self.controller)
        engine = self.engine
        for node, capacity in engine.capacity.items():
            assert engine.used(node) <= capacity, f"{node} is overcommitted: {self.story()}"
        living = [run for run, process in engine.processes.items() if process.alive and not process.cut_off]
        known = [run for run in living if not engine.processes[run].survivor]
        twice = [key for key, count in Counter((run.job_id, run.number) for run in known).items() if count > 1]
        assert not twice, f"{twice} run twice: {self.story()}"
        for run in living:
            assert run.job_id in self.controller.book.jobs, f"{run} is nobody's"

    def story(self) -> str:
        """What happened, for a failing test."""
        rows = "\n".join(f"{kind} {job} {body}" for kind, job, body in self.journal.rows[-40:])
        return f"{rows}\ncalls: {self.engine.calls[-20:]}"

    def phase(self, job_id: str) -> JobPhase:
        return self.controller.book.jobs[job_id].phase

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return self.controller.book.jobs[job_id].nodes

    def runs(self, job_id: str) -> list[RunId]:
        """Living processes of a job, those that are cut off left out."""
        return [
            run
            for run, process in self.engine.processes.items()
            if run.job_id == job_id and process.alive and not process.cut_off
        ]


def spec(instances: int = 1, gpus: int = 1, **fields: object) -> JobSpec:
    """A job spec with little in it."""
    values = {"name": "job", "command": ["train"], "instances": instances, "gpus_per_instance": gpus}
    return check_job({**values, **fields})
