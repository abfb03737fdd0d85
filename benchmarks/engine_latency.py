"""How quickly an engine does what was decided: from order to process, and a whole move, phase by phase.

For `bench_*.py` of real clusters; the engine is given, and left without runs.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.engines.gangs import Story

from compass_abs.controller.records import MigrationEnded, MigrationOutcome
from compass_abs.engines.protocol import Engine, NodeHealth, RunId, RunPhase, StartOrder, Workload
from compass_abs.model import NodeStatus

#: Longest that anything here may take.
PATIENCE = 120.0
#: Phases of a migration as its record names them.
PHASES = ("checkpoint", "stop", "wait", "start", "first_step")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them don't exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def order_to_process(engine: Engine, folder: Path, rounds: int) -> list[float]:
    """Seconds between an order to start and the first thing that its process does, one after another."""
    found = []
    for number in range(rounds):
        stamp = folder / f"stamp-{number}"
        node = next(node.name for node in engine.observe().nodes if node.health is NodeHealth.READY)
        run = RunId(f"latency-{number}", 0, 1)
        command = ("/bin/sh", "-c", f"date +%s.%N > {stamp}.new; mv {stamp}.new {stamp}")
        order = StartOrder(run, Workload(command), (node,), 1, engine.rendezvous(run.job_id, 1, [node]))
        began = time.time()
        engine.start(order)
        _wait(stamp.exists, f"{run} did not start")
        found.append(float(stamp.read_text()) - began)
        _leave_nothing(engine, run)
    return found


def whole_move(engine: Engine) -> dict[str, float]:
    """Seconds of each phase of a cold move of one instance of a two-node DDP job; raises unless it was made."""
    with tempfile.TemporaryDirectory(prefix="move-") as name:
        story = Story(Path(name), engine)
        try:
            gpus = next(node.gpus for node in engine.observe().nodes if node.health is NodeHealth.READY)
            job = story.submit_pair(gpus, Path(name))
            story.until(job, lambda entry: story.steps_done(Path(name)) >= 5)
            leaving = story.entry(job).nodes[1]
            story.service.ask(lambda controller: controller.set_node(leaving, NodeStatus.DRAINING))
            story.until(job, lambda entry: story.migrations())
            (ended,) = story.migrations()
            if ended.outcome is not MigrationOutcome.DONE:
                raise RuntimeError(f"the move was not made: {ended.why}\n{story.logs(job)}")
            story.until(job, lambda entry: entry.over)
            return _phases(ended)
        finally:
            story.close()


def _phases(ended: MigrationEnded) -> dict[str, float]:
    return {phase: ended.seconds.get(phase, 0.0) for phase in PHASES}


def print_latencies(name: str, seconds: Sequence[float]) -> None:
    """One line."""
    milliseconds = [1000 * each for each in seconds]
    p50, p90 = statistics.median(milliseconds), percentile(milliseconds, 0.9)
    print(f"{name}: median {p50:.0f} ms, p90 {p90:.0f} ms of {len(seconds)}", flush=True)


def print_moves(name: str, moves: Sequence[dict[str, float]]) -> None:
    """One line: the median of each phase, and of the whole."""
    parts = ", ".join(f"{phase} {statistics.median(move[phase] for move in moves):.2f}" for phase in PHASES)
    whole = statistics.median(sum(move.values()) for move in moves)
    print(f"{name}: {whole:.2f} s ({parts}), median of {len(moves)}", flush=True)


def _leave_nothing(engine: Engine, run: RunId) -> None:
    _wait(lambda: _is_over(engine, run), f"{run} did not end")
    engine.forget(run)


def _is_over(engine: Engine, run: RunId) -> bool:
    return all(report.phase is RunPhase.ENDED for report in engine.observe().runs if report.run == run)


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} within {PATIENCE:.0f} s")
        time.sleep(0.002)
