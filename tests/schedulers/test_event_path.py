"""What an event costs the placement rules, counted in calls of functions: clocks depend on the neighbours."""

import sys
from random import Random
from types import FrameType

import pytest

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.registry import make_scheduler

EVENTS = 2000


def calls_an_event(scheduler: Scheduler) -> float:
    """Python functions called for each arrival or departure on a cluster in which somebody always waits."""
    draw, situation, count = Random(1), Situation(), 0
    running: list[str] = []
    jobs = (
        Job(f"j{k}", draw.choice((1, 1, 1, 2)), draw.choice((1, 1, 1, 2, 4, 8)), 10.0 * k, 10 ** draw.uniform(1, 5))
        for k in range(10**9)
    )

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and "compass_abs" in frame.f_code.co_filename

    def handle(events: int) -> None:
        handled = 0
        while handled < events:
            job = next(jobs)
            situation.now, situation.waiting = job.submitted, (job,)
            scheduler.submitted(job, situation)
            handled += 1
            while (reason := scheduler.admit(job, situation).reason) is not None:
                if reason.until is not None:
                    situation.now = reason.until
                else:
                    scheduler.finish(running.pop(draw.randrange(len(running))), situation)
                    handled += 1
            running.append(job.id)

    # Full, and past the first submissions, before CAFGD and FGD have learned anything.
    handle(1000 + 8 * scheduler.state.available_nodes)
    sys.setprofile(called)
    try:
        handle(EVENTS)
    finally:
        sys.setprofile(None)
    return count / EVENTS


@pytest.mark.parametrize(("name", "most"), [("gfs", 14), ("fgd", 15), ("cafgd", 18), ("mcg", 18), ("spread", 14)])
def test_placement_rule_does_no_more_for_an_event_on_a_cluster_forty_times_as_large(name: str, most: float) -> None:
    small, large = (calls_an_event(make_scheduler(name, ClusterState(nodes))) for nodes in (30, 1200))
    assert large < 1.1 * small
    assert large < most
