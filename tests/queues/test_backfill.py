"""EASY backfilling: what passes the head never delays it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.queues import make_queue
from compass_abs.queues.backfill import Backfill
from compass_abs.queues.fluid_backfill import FluidBackfill
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.registry import make_scheduler
from compass_abs.schedulers.spread import LeastAllocated
from compass_abs.simulation import PaperCost, Simulation
from tests.simulation.doubles import Ledger, workloads

US = 1_000_000


def run(jobs: list[Job], scheduler: Scheduler, queue: str = "backfill") -> Ledger:
    ledger = Ledger()
    Simulation(jobs, scheduler, make_queue(queue, scheduler), observer=ledger).run()
    return ledger


def starts(jobs: list[Job], nodes: int = 2) -> dict[str, float]:
    ledger = run(jobs, BestFit(ClusterState(nodes)))
    return {name: record.first_start / US for name, record in ledger.records.items()}


#: Holds node 0 until 100, and an 8 × 2 that waits for it.
LONG, HEAD = Job("long", 1, 8, 0, 100), Job("head", 2, 8, 1, 10)


def test_a_job_that_ends_before_the_reservation_passes() -> None:
    assert starts([LONG, HEAD, Job("short", 1, 8, 2, 98)])["short"] == 2


def test_a_job_that_would_delay_the_head_does_not_pass() -> None:
    found = starts([LONG, HEAD, Job("late", 1, 1, 2, 98.000001)])
    assert (found["head"], found["late"]) == (100, 110)


def test_a_long_job_passes_where_the_head_needs_no_gpus() -> None:
    # At 50 four nodes are free and the head takes three: one job may stay on, a second may not.
    two, head = Job("two", 2, 8, 0, 50), Job("head", 3, 8, 1, 10)
    found = starts([two, head, Job("x", 1, 8, 2, 500), Job("y", 1, 8, 3, 500)], 4)
    assert found == {"two": 0, "head": 50, "x": 2, "y": 60}


def test_what_passed_counts_for_those_that_are_tried_after_it() -> None:
    # At 10 two nodes come free at once: x takes the one that the head spares at 50, and y must not take the other.
    two, brief, head = Job("two", 2, 8, 0, 50), Job("brief", 2, 8, 0, 10), Job("head", 3, 8, 1, 10)
    found = starts([two, brief, head, Job("x", 1, 8, 2, 500), Job("y", 1, 8, 3, 500)], 4)
    assert found == {"two": 0, "brief": 0, "head": 50, "x": 10, "y": 60}


def test_jobs_behind_an_admitted_head_are_tried_in_the_same_pass() -> None:
    found = starts([LONG, Job("block", 1, 8, 0.5, 20), HEAD, Job("short", 1, 1, 2, 5)])
    assert found == {"long": 0, "block": 0.5, "head": 100, "short": 20.5}


def test_a_job_of_unknown_end_never_passes_unless_it_cannot_hurt() -> None:
    state = ClusterState(2)
    queue, situation = Backfill(state), Situation()
    state.place(LONG, [0])
    situation.ends["long"] = 100.0
    queue.push(HEAD)
    queue.push(Job("open", 1, 1, 2, None))
    attempts = queue.attempts(situation)
    assert next(attempts).id == "head"
    assert [job.id for job in attempts] == []


def test_without_known_ends_nobody_passes() -> None:
    state = ClusterState(2)
    queue = Backfill(state)
    state.place(LONG, [0])
    assert queue.reserve(HEAD, Situation()) is None


def test_a_held_head_keeps_its_room() -> None:
    state = ClusterState(2)
    queue = Backfill(state)
    situation = Situation()
    reservation = queue.reserve(HEAD, situation)
    assert reservation is not None
    assert (reservation.time, reservation.spare) == (0.0, 0)


@settings(max_examples=200)
@given(jobs=workloads(most=25, nodes=3), spread=st.booleans())
def test_nobody_who_passes_makes_a_blocked_head_start_later_than_reserved(jobs: list[Job], spread: bool) -> None:
    scheduler: Scheduler = LeastAllocated(ClusterState(3)) if spread else BestFit(ClusterState(3))
    jobs = [job for job in jobs if -(-job.instances // (8 // job.gpus)) <= 3]
    promised: dict[str, float] = {}
    queue = Backfill(scheduler.state)
    reserve = queue.reserve

    def remembering(head, situation):  # type: ignore[no-untyped-def]
        found = reserve(head, situation)
        if found is not None:
            promised[head.id] = min(found.time, promised.get(head.id, found.time))
        return found

    queue.reserve = remembering  # type: ignore[method-assign]
    ledger = Ledger()
    Simulation(jobs, scheduler, queue, observer=ledger).run()
    for job_id, time in promised.items():
        assert ledger.records[job_id].first_start <= round(time * US) + 1


@settings(max_examples=120)
@given(jobs=workloads(most=25, nodes=3), name=st.sampled_from(("sif-opt", "sif-opt-moves", "compass-jit")))
def test_a_scheduler_that_finds_every_packing_keeps_the_promise_of_the_first_that_exists(
    jobs: list[Job], name: str
) -> None:
    # Moves are free: a pause would make others end later than the reservation could know.
    jobs = [replace(job, pause=None) for job in jobs if -(-job.instances // (8 // job.gpus)) <= 3]
    scheduler = make_scheduler(name, ClusterState(3))
    queue = make_queue("backfill", scheduler)
    assert isinstance(queue, FluidBackfill)
    promised: dict[str, float] = {}
    reserve = queue.reserve

    def remembering(head, situation):  # type: ignore[no-untyped-def]
        found = reserve(head, situation)
        if found is not None:
            promised[head.id] = min(found.time, promised.get(head.id, found.time))
        return found

    queue.reserve = remembering  # type: ignore[method-assign]
    ledger = Ledger()
    Simulation(jobs, scheduler, queue, cost=PaperCost(0), observer=ledger).run()
    for job_id, time in promised.items():
        assert ledger.records[job_id].first_start <= round(time * US) + 1


def test_what_may_pass_is_what_some_packing_holds_beside_the_head() -> None:
    # The 5 stays until 300, the 4 until 10; then the head gets a node.
    state = ClusterState(2)
    scheduler = make_scheduler("compass-jit", state)
    queue = make_queue("backfill", scheduler)
    situation = Situation()
    for node, (name, gpus, end) in enumerate((("five", 5, 300.0), ("four", 4, 10.0))):
        state.place(Job(name, 1, gpus, 0, end), [node])
        situation.ends[name] = end
    for job in (Job("head", 1, 8, 1, 5), Job("three", 1, 3, 2, 100), Job("other", 1, 4, 3, 100)):
        queue.push(job)
    attempts = queue.attempts(situation)
    assert next(attempts).id == "head"
    # Beside the 5 there is room for a 3, wherever it begins; a 4 would have to sit where the head goes.
    assert attempts.send(False).id == "three"
    state.place(queue[1], [0])
    situation.ends["three"] = 102.0
    with pytest.raises(StopIteration):
        attempts.send(True)
    assert [job.id for job in queue] == ["head", "other"]


def test_a_reservation_counts_what_ends_on_nodes_that_are_up() -> None:
    state = ClusterState(3)
    state.place(Job("cordoned", 1, 8, 0, 10), [0])
    state.place(Job("up", 2, 8, 0, 20), [1, 2])
    state.set_status("n0", NodeStatus.CORDONED)
    situation = Situation()
    situation.ends.update(cordoned=10.0, up=20.0)
    queue = FluidBackfill(state)
    # At 10 a node comes free that nobody may use.
    found = queue.reserve(Job("head", 1, 8, 0, 5), situation)
    assert found is not None
    assert found.time == 20.0
    assert queue.reserve(Job("large", 3, 8, 0, 5), situation) is None


@pytest.mark.parametrize(
    ("setting", "counts"),
    [({}, True), ({"effort": "fast"}, False), ({"moves_per_hour": "5"}, False), ({"cooldown": "60"}, False)],
)
def test_packings_count_only_where_no_policy_stands_before_them(setting: dict[str, str], counts: bool) -> None:
    queue = make_queue("backfill", make_scheduler("compass-jit", ClusterState(2), **setting))
    assert isinstance(queue, FluidBackfill) is counts
