"""The control plane: submissions through the API, decisions among many jobs and nodes, a restart.

Engines are scripted (tests/journeys), everything else is real: HTTP over loopback, SQLite with a full sync a commit.
Processor time is printed beside the clock's: on a machine that others use, only that says what the program costs.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from tests.controller.running import LivingEngine
from tests.journeys.scripted_engine import ManualClock, ScriptedEngine

from compass_abs.controller import reconcile
from compass_abs.controller.client import Client
from compass_abs.controller.effects import Effect, EffectResult, carry_out
from compass_abs.controller.job_spec import JobSpec, check_job
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.reconcile import Config, Controller
from compass_abs.controller.server import Settings, configure_logging, in_background
from compass_abs.engines.protocol import RunPhase
from compass_abs.schedulers.registry import parse_choice

NODES, JOBS, SUBMISSIONS, EVENTS = 1000, 10_000, 1000, 2000
#: Shares of demands in the Venus trace (Table 1 of the paper): 1, friendly, unfriendly, whole nodes.
SIZES = ((1, 38), (2, 5), (4, 4), (3, 1), (8, 52))


def _spec(draw: random.Random) -> JobSpec:
    gpus = draw.choices([size for size, _ in SIZES], [share for _, share in SIZES])[0]
    return check_job({"name": "job", "command": ["train"], "gpus_per_instance": gpus})


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def submissions() -> tuple[float, float]:
    """Seconds for SUBMISSIONS jobs through the API, by the clock and of the processor (both ends and the engine)."""
    with tempfile.TemporaryDirectory() as folder:
        engine = LivingEngine(nodes=4, steps=1_000_000)
        with in_background(Settings(Path(folder), port=0), engine) as url, Client(url) as client:
            fields = {"name": "job", "command": ["train"], "gpus_per_instance": 2}
            began, used = time.perf_counter(), time.process_time()
            for _ in range(SUBMISSIONS):
                client.submit_fields(fields)
            return time.perf_counter() - began, time.process_time() - used


class TwoClocks:
    """Stands in for the clock that the controller takes decisions by, and looks at the processor's as well."""

    def __init__(self) -> None:
        self._looks: list[float] = []

    def __call__(self) -> float:
        self._looks.append(time.thread_time())
        return time.perf_counter()

    def forget(self) -> None:
        """What came so far does not count."""
        self._looks.clear()

    @property
    def decisions(self) -> list[float]:
        """Processor seconds of each decision: the controller looks before and after it."""
        return [after - before for before, after in zip(self._looks[::2], self._looks[1::2], strict=True)]


class Rig:
    """A controller with many nodes and jobs, on a manual clock."""

    def __init__(self, folder: Path, scheduler: str) -> None:
        self.clock = ManualClock()
        self.engine = ScriptedEngine(self.clock, nodes=NODES, steps=1 << 40)
        self.results: list[EffectResult] = []
        self.reports: list[object] = []
        self.path = folder / "journal.sqlite"
        name, parameters = parse_choice(scheduler)
        self.config = Config(scheduler=name, parameters=parameters)
        self.engine.watch(self.reports.append)
        self.open()

    def open(self) -> tuple[float, float]:
        """Seconds, by the clock and of the processor, that a controller needs to be ready."""
        began, used = time.perf_counter(), time.process_time()
        self.journal = SqliteJournal(self.path)
        self.controller = Controller(self.journal, self.engine, self._carry_out, self.clock, self.config)
        self.controller.on_observation(self.engine.observe(), 0)
        self.controller.step()
        return time.perf_counter() - began, time.process_time() - used

    def _carry_out(self, effect: Effect) -> None:
        self.results.append(carry_out(self.engine, effect))

    def settle(self) -> None:
        """Lets what was begun come to its end."""
        for _ in range(8):
            self.clock.advance(1.0)
            self.engine.advance(1.0)
            self._deliver()
            self.controller.step()

    def _deliver(self) -> None:
        reports, results = list(self.reports), list(self.results)
        self.reports.clear()
        self.results.clear()
        for report in reports:
            self.controller.on_report(report)  # type: ignore[arg-type]
        for result in results:
            self.controller.on_effect(result)


def decisions(scheduler: str) -> tuple[list[float], list[float], list[float], tuple[float, float]]:
    """Seconds of each decision by the clock and on the processor, of each whole step there, and of a restart."""
    draw = random.Random(1)
    clocks = TwoClocks()
    with mock.patch.object(reconcile, "perf_counter", clocks), tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), scheduler)
        for _ in range(JOBS):
            rig.controller.submit(_spec(draw))
        rig.controller.step()
        rig.settle()
        rig.controller.decision_seconds.clear()
        clocks.forget()
        steps = []
        for _ in range(EVENTS):
            began = time.thread_time()
            if draw.random() < 0.5:
                rig.controller.submit(_spec(draw))
            else:
                alive = [run for run, p in rig.engine.processes.items() if p.phase is RunPhase.RUNNING]
                rig.engine.crash(draw.choice(alive), 0)
                rig.engine.report()
                began = time.thread_time()
                rig._deliver()
            rig.controller.step()
            steps.append(time.thread_time() - began)
            rig.clock.advance(0.1)
            rig._deliver()
        rig.journal.close()
        decided, used = list(rig.controller.decision_seconds), clocks.decisions
        return decided, used, steps, rig.open()


def main() -> None:
    """Prints what the README claims."""
    configure_logging(as_json=False, level="error")
    seconds, used = submissions()
    print(f"{SUBMISSIONS} submissions through the API: {seconds:.2f} s (target < 10 s), processor {used:.2f} s")
    for scheduler in ("compass-abs", "compass-jit", "compass-jit:effort=fast", "best-fit"):
        decided, used_by_each, steps, (restart, restart_used) = decisions(scheduler)
        p50, p99 = 1000 * statistics.median(decided), 1000 * _percentile(decided, 0.99)
        print(
            f"{scheduler}, {NODES} nodes, {JOBS} jobs: decision p50 {p50:.3f} ms, p99 {p99:.3f} ms (target < 5 ms), "
            f"processor p50 {1000 * statistics.median(used_by_each):.3f} ms, "
            f"p99 {1000 * _percentile(used_by_each, 0.99):.3f} ms; "
            f"whole step with its commit, processor p99 {1000 * _percentile(steps, 0.99):.2f} ms; "
            f"restart {restart:.2f} s (target < 3 s), processor {restart_used:.2f} s"
        )


if __name__ == "__main__":
    main()
