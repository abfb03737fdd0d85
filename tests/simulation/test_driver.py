"""The event loop against a slow simulation written independently, and at the corners of its order of events."""

from fractions import Fraction

import pytest
from hypothesis import given, settings

from compass_abs.model import ClusterState, CompassError, InvalidJobError, InvariantError, Job
from compass_abs.queues import Fifo
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.simulation import Checks, Simulation, StuckError, simulate
from tests.simulation.doubles import Holding, Ledger, Periodic, scheduler_on, workloads


def slow_fifo_best_fit(jobs: list[Job], nodes: int) -> dict[str, tuple[Fraction, Fraction]]:
    """Start and end of each job, by looking at every instant at which anything could happen."""
    free = [8] * nodes
    running: list[tuple[Fraction, str, list[int], int]] = []
    times: dict[str, tuple[Fraction, Fraction]] = {}
    waiting: list[Job] = []
    todo = list(jobs)

    def serve(now: Fraction) -> None:
        while waiting:
            job, chosen = waiting[0], []
            for _ in range(job.instances):
                fits = [(free[n], n) for n in range(nodes) if free[n] >= job.gpus]
                if not fits:
                    break
                chosen.append(min(fits)[1])
                free[chosen[-1]] -= job.gpus
            if len(chosen) < job.instances:
                for n in chosen:
                    free[n] += job.gpus
                return
            end = now + Fraction(round(job.duration * 10**6), 10**6)
            running.append((end, job.id, chosen, job.gpus))
            times[job.id] = (now, end)
            waiting.pop(0)

    order = {job.id: number for number, job in enumerate(jobs)}
    while todo or running or waiting:
        next_end = min((end for end, *_ in running), default=None)
        next_arrival = Fraction(round(todo[0].submitted * 10**6), 10**6) if todo else None
        if next_end is not None and (next_arrival is None or next_end <= next_arrival):
            gone = min((entry for entry in running if entry[0] == next_end), key=lambda entry: order[entry[1]])
            running.remove(gone)
            for n in gone[2]:
                free[n] += gone[3]
            serve(next_end)
        else:
            assert next_arrival is not None
            waiting.append(todo.pop(0))
            serve(next_arrival)
    return times


@settings(max_examples=150)
@given(jobs=workloads(most=30, nodes=3))
def test_fifo_best_fit_equals_the_slow_simulation(jobs: list[Job]) -> None:
    jobs = [job for job in jobs if -(-job.instances // (8 // job.gpus)) <= 3]
    ledger = Ledger()
    Simulation(jobs, scheduler_on(3), observer=ledger, checks=Checks.EVERY_EVENT).run()
    expected = slow_fifo_best_fit(jobs, 3)
    got = {
        job_id: (Fraction(record.first_start, 10**6), Fraction(ledger.finished_at[job_id], 10**6))
        for job_id, record in ledger.records.items()
    }
    assert got == expected


def test_departures_come_before_arrivals_at_the_same_instant() -> None:
    jobs = [Job("a", 1, 8, 0, 10), Job("b", 1, 8, 10, 5)]
    ledger = Ledger()
    Simulation(jobs, scheduler_on(1), observer=ledger).run()
    assert ledger.records["b"].queueing == 0


def test_departures_at_the_same_instant_come_in_the_order_of_submission() -> None:
    jobs = [Job("b", 1, 1, 0, 10), Job("a", 1, 1, 5, 5)]
    ledger = Ledger()
    Simulation(jobs, scheduler_on(1), observer=ledger).run()
    assert list(ledger.finished_at) == ["b", "a"]


def test_a_job_of_no_duration_ends_as_it_starts() -> None:
    ledger = Ledger()
    Simulation([Job("a", 1, 8, 3, 0), Job("b", 1, 8, 3, 1)], scheduler_on(1), observer=ledger).run()
    assert ledger.finished_at == {"a": 3_000_000, "b": 4_000_000}


def test_times_far_from_zero_keep_their_microseconds() -> None:
    start = 1_584_500_000.123456
    ledger = Ledger()
    Simulation([Job("a", 1, 8, start, 0.000001)], scheduler_on(1), observer=ledger).run()
    assert ledger.finished_at["a"] == 1_584_500_000_123_457


def test_a_held_job_is_tried_again_when_its_hold_ends() -> None:
    ledger = Ledger()
    scheduler = Holding(ClusterState(1), 0.1 + 0.2)
    summary = Simulation([Job("a", 1, 8, 0, 1), Job("b", 1, 1, 0.2, 1)], scheduler, observer=ledger).run()
    # 0.1 + 0.2 is a little over 0.3: the first microsecond that isn't before it is 0.300001.
    assert ledger.records["a"].queueing == 300_001
    # b is held until 0.5, then waits for a to end at 1.300001.
    assert summary.blocked_policy == pytest.approx(0.5)
    assert summary.blocked_capacity == pytest.approx(0.800001)
    assert summary.peak_seconds == pytest.approx(summary.blocked_policy + summary.blocked_capacity)


def test_rounds_come_when_asked_for_and_only_while_something_runs() -> None:
    scheduler = Periodic(ClusterState(1), 10)
    simulate([Job("a", 1, 8, 0, 25), Job("b", 1, 8, 70, 15)], scheduler)
    assert scheduler.rounds == [10, 20, 80]


def test_a_round_that_is_asked_for_in_the_past_is_refused() -> None:
    class Backwards(Periodic):
        def next_round(self, now: float) -> float | None:
            return 0.0

    with pytest.raises(CompassError, match=r"wants its next round at 0\.0"):
        simulate([Job("a", 1, 8, 0, 25)], Backwards(ClusterState(1), 10))


def test_a_job_that_its_scheduler_never_takes_is_named_with_the_reason() -> None:
    class Picky(BestFit):
        def admit(self, job, situation):  # type: ignore[no-untyped-def]
            return self.blocked(job, "never")

    with pytest.raises(StuckError, match=r"job 'a' \(1 × 8 GPUs\) can never start.*never"):
        simulate([Job("a", 1, 8, 0, 1)], Picky(ClusterState(1)))


def test_invariants_are_checked_after_each_event_when_asked() -> None:
    class Broken(BestFit):
        def check_invariants(self) -> None:
            raise InvariantError("as expected")

    with pytest.raises(InvariantError, match="as expected"):
        simulate([Job("a", 1, 8, 0, 1)], Broken(ClusterState(1)), checks=Checks.EVERY_EVENT)
    assert simulate([Job("a", 1, 8, 0, 1)], Broken(ClusterState(1))).finished == 1


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([Job("a", 1, 8, 5, 1), Job("b", 1, 8, 4, 1)], r"'b': submitted at 4.*sort"),
        ([Job("a", 1, 8, 0, 9), Job("a", 1, 8, 1, 1)], r"'a' is submitted twice"),
        ([Job("a", 1, 8, 0, None)], r"'a': duration is None"),
        ([Job("a", 1, 8, 0, -1)], r"'a': duration is -1"),
        ([Job("a", 1, 8, 0, float("nan"))], r"'a': duration is nan"),
        ([Job("a", 1, 8, 0, float("inf"))], r"'a': duration is inf"),
        ([Job("a", 1, 8, float("nan"), 1)], r"'a': submitted is nan"),
        ([Job("a", 1, 8, float("inf"), 1)], r"'a': submitted is inf"),
        ([Job("a", 1, 9, 0, 1)], r"'a': gpus is 9, but a node of pool '' has 8"),
        ([Job("a", 5, 3, 0, 1)], r"'a': 5 × 3 GPUs never fit 2 nodes.*at least 3 nodes"),
    ],
)
def test_jobs_that_cannot_be_simulated_are_named(jobs: list[Job], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        simulate(jobs, scheduler_on(2))


def test_history_is_told_to_schedulers_that_learn_and_changes_nothing_else() -> None:
    class Learning(BestFit):
        def __init__(self, state: ClusterState) -> None:
            super().__init__(state)
            self.seen: list[str] = []

        def submitted(self, job, situation):  # type: ignore[no-untyped-def]
            self.seen.append(job.id)

    scheduler = Learning(ClusterState(1))
    summary = simulate([Job("b", 1, 8, 5, 1)], scheduler, history=[Job("a", 1, 8, 0, 1)])
    assert scheduler.seen == ["a", "b"]
    assert summary.jobs == 1


def test_the_situation_shows_time_queue_and_ends() -> None:
    seen = []

    class Curious(BestFit):
        def admit(self, job, situation):  # type: ignore[no-untyped-def]
            seen.append((situation.now, [each.id for each in situation.waiting], dict(situation.ends)))
            return super().admit(job, situation)

    simulate([Job("a", 1, 8, 1, 10), Job("b", 1, 8, 2, 1)], Curious(ClusterState(1)), Fifo())
    assert seen == [(1.0, ["a"], {}), (2.0, ["b"], {"a": 11.0}), (11.0, ["b"], {})]


def test_progress_is_reported_and_ends_at_the_number_of_jobs() -> None:
    calls: list[int] = []
    jobs = [Job(f"j{i}", 1, 1, i, 1) for i in range(3000)]
    simulate(jobs, scheduler_on(1), progress=calls.append)
    assert calls == sorted(calls)
    # Not once a job, and often enough for a bar to appear while a slow scheduler is at its first hundred.
    assert 6000 / 64 <= len(calls) <= 6000 / 16
    assert calls[-1] == 3000
