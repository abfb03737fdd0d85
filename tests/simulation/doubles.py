"""Schedulers and observers for tests, and random workloads."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import strategies as st

from compass_abs.model import Cause, ClusterState, Decision, Instance, Job, Migration, Mode, NodeStatus, Verdict
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.simulation import Observer
from compass_abs.simulation.job_record import JobRecord


class Restless(BestFit):
    """Best fit that also moves running instances at random after every event; seeded."""

    name: ClassVar[str] = "restless"

    def __init__(self, state: ClusterState, seed: int, modes: Sequence[Mode] = (Mode.CHECKPOINT,)) -> None:
        super().__init__(state)
        self._random = random.Random(seed)
        self._modes = modes

    def admit(self, job: Job, situation: Situation) -> Decision:
        decision = super().admit(job, situation)
        if decision.admitted:
            decision.after = self._stir()
        return decision

    def finish(self, job_id: str, situation: Situation) -> Decision:
        decision = super().finish(job_id, situation)
        decision.after = self._stir()
        return decision

    def _stir(self) -> tuple[Migration, ...]:
        moves = []
        for _ in range(self._random.randrange(4)):
            gangs = list(self.state.gangs.values())
            if not gangs:
                break
            gang = self._random.choice(gangs)
            number = self._random.randrange(gang.job.instances)
            source = gang.nodes[number]
            targets = [
                node.index
                for node in self.state.nodes
                if node.index != source and node.status is NodeStatus.UP and node.free >= gang.job.gpus
            ]
            if targets:
                target = self._random.choice(targets)
                instance = Instance(gang.job.id, number)
                self.state.move(instance, target)
                moves.append(
                    Migration(instance, source, target, gang.job.gpus, Cause.TIDY, self._random.choice(self._modes))
                )
        return tuple(moves)


#: An instance and where it goes: (job, number, target node).
Script = dict[str, tuple[tuple[str, int, int], ...]]


class Scripted(BestFit):
    """Best fit that makes given moves when given jobs start (`c`) or end (`-c`)."""

    name: ClassVar[str] = "scripted"

    def __init__(
        self,
        state: ClusterState,
        before: Script | None = None,
        after: Script | None = None,
        restarts: Sequence[str] = (),
        nodes: dict[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(state)
        self._before, self._after, self._restarts, self._nodes = before or {}, after or {}, restarts, nodes or {}

    def admit(self, job: Job, situation: Situation) -> Decision:
        if self.state.free_gpus < job.total_gpus:
            return self.blocked(job)
        before = self._move(self._before, job.id)
        if job.id in self._nodes:
            decision = self.start(job, self._nodes[job.id])
        else:
            decision = super().admit(job, situation)
        decision.before, decision.after = before, self._move(self._after, job.id)
        return decision

    def finish(self, job_id: str, situation: Situation) -> Decision:
        decision = super().finish(job_id, situation)
        decision.after = self._move(self._after, f"-{job_id}")
        return decision

    def _move(self, script: Script, occasion: str) -> tuple[Migration, ...]:
        mode = Mode.RESTART if occasion in self._restarts else Mode.CHECKPOINT
        done = []
        for job_id, number, target in script.get(occasion, ()):
            gang = self.state.gangs[job_id]
            source = gang.nodes[number]
            self.state.move(Instance(job_id, number), target)
            done.append(Migration(Instance(job_id, number), source, target, gang.job.gpus, Cause.TIDY, mode))
        return tuple(done)


class Holding(BestFit):
    """Best fit that holds every job until some seconds after its submission."""

    name: ClassVar[str] = "holding"

    def __init__(self, state: ClusterState, hold: float) -> None:
        super().__init__(state)
        self._hold = hold

    def admit(self, job: Job, situation: Situation) -> Decision:
        until = job.submitted + self._hold
        if situation.now < until:
            return self.refuse(job, Verdict.POLICY, "held", until)
        return super().admit(job, situation)


class Periodic(BestFit):
    """Best fit that asks for a round every `period` seconds and remembers when it had them."""

    name: ClassVar[str] = "periodic"

    def __init__(self, state: ClusterState, period: float) -> None:
        super().__init__(state)
        self.period = period
        self.rounds: list[float] = []

    def next_round(self, now: float) -> float | None:
        return (now // self.period + 1) * self.period

    def round(self, situation: Situation) -> Decision:
        self.rounds.append(situation.now)
        return Decision()


@dataclass
class Ledger(Observer):
    """Keeps the record of each finished job, and the time it finished at."""

    finished_at: dict[str, int] = field(default_factory=dict)
    records: dict[str, JobRecord] = field(default_factory=dict)
    starts: list[tuple[int, str]] = field(default_factory=list)

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        self.starts.append((now, record.job.id))

    def finished(self, now: int, record: JobRecord) -> None:
        assert record.job.id not in self.finished_at, "a job finished twice"
        self.finished_at[record.job.id] = now
        self.records[record.job.id] = record


def scheduler_on(nodes: int) -> Scheduler:
    """Best fit on a new cluster."""
    return BestFit(ClusterState(nodes))


@st.composite
def workloads(draw: st.DrawFn, most: int = 25, nodes: int = 4) -> list[Job]:
    """Jobs that each fit the cluster, in the order of submission; times down to the microsecond."""
    count = draw(st.integers(1, most))
    jobs, now = [], 0
    for number in range(count):
        now += draw(st.integers(0, 3_000_000)) * draw(st.sampled_from((0, 1, 7)))
        gpus = draw(st.integers(1, 8))
        instances = draw(st.integers(1, min(3, nodes * (8 // gpus))))
        duration = draw(st.one_of(st.just(0), st.integers(1, 30_000_000)))
        pause = draw(st.one_of(st.none(), st.integers(0, 2_000_000)))
        jobs.append(
            Job(
                f"j{number}",
                instances,
                gpus,
                now / 1e6,
                duration / 1e6,
                priority=draw(st.integers(0, 1)),
                pause=None if pause is None else pause / 1e6,
            )
        )
    return jobs
