"""What the tests of engines share: orders made and reports awaited in a line, and hooks for what engines differ in."""

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import pytest

from compass_abs.engines.protocol import (
    Engine,
    EngineRefusalError,
    NodeHealth,
    NodeReport,
    RunId,
    RunPhase,
    RunReport,
    StartOrder,
    Workload,
)

COOPERATIVE = Path(__file__).with_name("cooperative.py")


class Shorthands:
    """What tests of engines say in a word."""

    #: Seconds within which this engine does what it was asked.
    patience: ClassVar[float] = 20.0
    #: Seconds within which a death is seen.
    notices_within: ClassVar[float] = 2.0

    def reopen(self, engine: Engine) -> Engine:
        """A second engine on what the first one left, which is closed; the one used from then on."""
        pytest.skip("this engine can't be reopened in a test")

    def occupy(self, engine: Engine, node: str, gpus: int) -> AbstractContextManager[None]:
        """Somebody else, of whom the engine isn't told, uses GPUs of a node; until the block is left."""
        pytest.skip("nobody else can use the nodes of this engine")

    # ---- shorthands

    @pytest.fixture
    def job(self, request: pytest.FixtureRequest) -> str:
        return f"t-{uuid.uuid4().hex[:10]}"

    def nodes(self, engine: Engine) -> list[str]:
        return [node.name for node in engine.observe().nodes if node.health is NodeHealth.READY]

    def orders(
        self,
        engine: Engine,
        job: str,
        nodes: Sequence[str],
        command: Sequence[str],
        gpus: int = 1,
        generation: int = 1,
        resume_from: Sequence[str] = (),
        **workload: object,
    ) -> list[StartOrder]:
        meeting = engine.rendezvous(job, generation, nodes)
        return [
            StartOrder(
                run=RunId(job, number, generation),
                workload=Workload(tuple(command), **workload),  # type: ignore[arg-type]
                nodes=tuple(nodes),
                gpus=gpus,
                rendezvous=meeting,
                resume_from=resume_from[number] if resume_from else "",
            )
            for number in range(len(nodes))
        ]

    def python(self, program: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", program, *arguments]

    def seen(self, engine: Engine, run: RunId) -> RunReport | None:
        return next((report for report in engine.observe().runs if report.run == run), None)

    def until(
        self, engine: Engine, run: RunId, what: Callable[[RunReport], object], seconds: float | None = None
    ) -> RunReport:
        deadline = time.monotonic() + (seconds or self.patience)
        report = self.seen(engine, run)
        while time.monotonic() < deadline:
            if report is not None and what(report):
                return report
            time.sleep(0.02)
            report = self.seen(engine, run)
        raise AssertionError(f"{run} is {report} after {seconds or self.patience} s; log: {self.log(engine, run)!r}")

    def until_node(self, engine: Engine, name: str, what: Callable[[NodeReport], object]) -> NodeReport:
        deadline = time.monotonic() + self.patience
        while not what(report := next(node for node in engine.observe().nodes if node.name == name)):
            assert time.monotonic() < deadline, report
            time.sleep(0.1)
        return report

    def ended(self, engine: Engine, run: RunId) -> RunReport:
        return self.until(engine, run, lambda report: report.phase is RunPhase.ENDED)

    def running(self, engine: Engine, run: RunId, steps: int = 1) -> RunReport:
        return self.until(engine, run, lambda report: report.progress and report.progress.step >= steps)

    def log(self, engine: Engine, run: RunId) -> str:
        try:
            return engine.read_log(run, 0, 1 << 20).decode()
        except EngineRefusalError:
            return "no log"

    def cooperative(self, steps: int, pause: float = 0.02) -> list[str]:
        return [sys.executable, str(COOPERATIVE), str(steps), str(pause)]


def end_all(engine: Engine, seconds: float = 20.0) -> None:
    """Leaves nothing for the next test."""
    for report in engine.observe().runs:
        engine.kill(report.run)
    deadline = time.monotonic() + seconds
    while any(r.phase is not RunPhase.ENDED for r in engine.observe().runs) and time.monotonic() < deadline:
        time.sleep(0.05)
    engine.close()
