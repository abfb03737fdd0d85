"""What holds of every queue, and the order that each one keeps."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.model import ClusterState, CompassError, DuplicateJobError, Job, UnknownJobError
from compass_abs.queues import QUEUES, Queue, QueueError, make_queue
from compass_abs.queues.bounded_backfill import BoundedBackfill
from compass_abs.queues.fluid_backfill import FluidBackfill
from compass_abs.queues.nominated import Nominated
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.sif_opt import FluidOracle

NAMES = [*QUEUES, "fifo+priority", "sjf+priority", "smallest+priority", "backfill+priority", "backfill3"]


def new_queue(name: str) -> Queue:
    """On a cluster of two empty nodes."""
    return make_queue(name, BestFit(ClusterState(2)))


def tried(queue: Queue, admits: Callable[[Job], bool]) -> list[str]:
    """Who is tried in one pass, when `admits` decides."""
    attempts, found = queue.attempts(Situation()), []
    try:
        job = next(attempts)
        while True:
            found.append(job.id)
            job = attempts.send(admits(job))
    except StopIteration:
        return found


def ids(queue: Queue) -> list[str]:
    return [job.id for job in queue]


def some(*shapes: tuple[int, int, float]) -> list[Job]:
    """Jobs j0, j1, ... of (instances, GPUs, duration), a second apart."""
    return [Job(f"j{i}", w, g, float(i), duration) for i, (w, g, duration) in enumerate(shapes)]


def filled(name: str, jobs: list[Job]) -> Queue:
    queue = new_queue(name)
    for job in jobs:
        queue.push(job)
    return queue


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    shapes = draw(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 8), st.integers(1, 9), st.integers(0, 2))))
    return [Job(f"j{i}", w, g, float(i // 2), d, priority=p) for i, (w, g, d, p) in enumerate(shapes)]


@settings(max_examples=60)
@given(name=st.sampled_from(NAMES), some_jobs=jobs(), yes=st.randoms(use_true_random=False))
def test_a_pass_admits_each_job_at_most_once_and_keeps_the_refused(name: str, some_jobs: list[Job], yes) -> None:  # type: ignore[no-untyped-def]
    queue = filled(name, some_jobs)
    admitted: list[str] = []

    def admits(job: Job) -> bool:
        assert job in list(queue)
        good = yes.random() < 0.6
        if good:
            admitted.append(job.id)
        return good

    seen = tried(queue, admits)
    assert len(set(seen)) == len(seen)
    assert sorted([*admitted, *ids(queue)]) == sorted(job.id for job in some_jobs)
    assert len(queue) == len(ids(queue)) == len(some_jobs) - len(admitted)


@settings(max_examples=60)
@given(name=st.sampled_from(NAMES), some_jobs=jobs())
def test_head_is_the_first_in_order_and_the_first_tried(name: str, some_jobs: list[Job]) -> None:
    queue = filled(name, some_jobs)
    head = queue.head()
    if not some_jobs:
        assert head is None
        assert not queue
        assert tried(queue, lambda job: True) == []
        return
    assert head is not None
    assert ids(queue)[0] == head.id == queue[0].id == tried(queue, lambda job: False)[0]
    assert queue[-1].id == ids(queue)[-1]
    assert [job.id for job in queue[:2]] == ids(queue)[:2]


@settings(max_examples=60)
@given(name=st.sampled_from(NAMES), some_jobs=jobs(), data=st.data())
def test_removing_and_requeueing_a_job_gives_it_its_place_or_a_better_one(
    name: str, some_jobs: list[Job], data: st.DataObject
) -> None:
    if not some_jobs:
        return
    queue = filled(name, some_jobs)
    before = ids(queue)
    job = data.draw(st.sampled_from(some_jobs))
    assert queue.remove(job.id) is job
    assert ids(queue) == [other for other in before if other != job.id]
    queue.requeue(job)
    after = ids(queue)
    assert sorted(after) == sorted(before)
    assert after.index(job.id) <= before.index(job.id)
    ahead = {other.id for other in some_jobs if other.submitted < job.submitted}
    if name in ("fifo", "backfill", "backfill16", "backfill3"):
        assert set(after[: after.index(job.id)]) == ahead


@pytest.mark.parametrize("name", NAMES)
def test_a_job_waits_once(name: str) -> None:
    queue = filled(name, some((1, 1, 1)))
    job = queue[0]
    for join in (queue.push, queue.requeue):
        with pytest.raises(DuplicateJobError, match="'j0' is waiting already"):
            join(job)
    queue.remove("j0")
    with pytest.raises(UnknownJobError, match="'j0' is not waiting"):
        queue.remove("j0")
    with pytest.raises(IndexError):
        queue[0]
    queue.push(job)
    assert ids(queue) == ["j0"]


def test_fifo_stops_at_the_first_refusal() -> None:
    queue = filled("fifo", some((1, 8, 5), (1, 4, 1), (1, 1, 1)))
    assert tried(queue, lambda job: job.gpus != 4) == ["j0", "j1"]
    assert ids(queue) == ["j1", "j2"]


def test_sjf_tries_the_shortest_and_unknown_durations_last() -> None:
    queue = filled("sjf", [*some((1, 1, 5), (1, 1, 1), (1, 1, 3)), Job("x", 1, 1, 0.0, None)])
    assert tried(queue, lambda job: job.id != "j0") == ["j1", "j2", "j0"]
    assert ids(queue) == ["j0", "x"]


def test_smallest_tries_the_fewest_gpus_of_the_gang() -> None:
    assert ids(filled("smallest", some((3, 2, 1), (1, 4, 1), (1, 4, 1), (5, 1, 1)))) == ["j1", "j2", "j3", "j0"]


def test_bounded_backfill_skips_the_refused_up_to_its_depth() -> None:
    queue = filled("backfill3", some(*[(1, g, 1) for g in (8, 1, 8, 1, 8, 1, 1)]))
    # j0, j2 and j4 are refused; with the third refusal the pass is over.
    assert tried(queue, lambda job: job.gpus == 1) == ["j0", "j1", "j2", "j3", "j4"]
    assert ids(queue) == ["j0", "j2", "j4", "j5", "j6"]


def test_gfs_artifact_tries_the_largest_and_after_a_failure_only_smaller_ones() -> None:
    queue = filled("gfs_artifact", some((1, 1, 1), (1, 8, 1), (1, 4, 1), (1, 8, 1), (1, 4, 1), (2, 1, 1)))
    assert ids(queue) == ["j1", "j3", "j2", "j4", "j0", "j5"]
    assert tried(queue, lambda job: job.gpus < 8) == ["j1", "j2", "j4", "j0", "j5"]
    assert ids(queue) == ["j1", "j3"]


@settings(max_examples=60)
@given(some_jobs=jobs(), yes=st.randoms(use_true_random=False))
def test_gfs_artifact_tries_whom_its_published_loop_tries(some_jobs: list[Job], yes) -> None:  # type: ignore[no-untyped-def]
    will = {job.id: yes.random() < 0.6 for job in some_jobs}
    # policy/gfs.py: sort by (-gpus, submit time); skip every job with at least as many GPUs as one that failed.
    expected, failed = [], 99
    for job in sorted(some_jobs, key=lambda job: (-job.gpus, job.submitted)):
        if job.gpus >= failed:
            continue
        expected.append(job.id)
        if not will[job.id]:
            failed = job.gpus
    assert tried(filled("gfs_artifact", some_jobs), lambda job: will[job.id]) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("+priority")])
def test_priorities_go_before_everything_else(name: str) -> None:
    low, high = Job("low", 1, 1, 0.0, 1, priority=0), Job("high", 2, 8, 5.0, 99, priority=3)
    assert ids(filled(name, [low, high])) == ["high", "low"]
    assert ids(filled(name.removesuffix("+priority"), [low, high])) == ["low", "high"]


def test_nominated_tries_whom_the_scheduler_names_until_one_is_refused() -> None:
    class Backwards(BestFit):
        def nominate(self, situation: Situation) -> Job | None:
            return situation.waiting[-1] if len(situation.waiting) > 1 else None

    scheduler = Backwards(ClusterState(1))
    queue = make_queue("fifo", scheduler)
    assert isinstance(queue, Nominated)
    for job in some((1, 1, 1), (1, 1, 1), (1, 1, 1)):
        queue.push(job)
    situation = Situation()
    situation.waiting = queue
    attempts = queue.attempts(situation)
    assert next(attempts).id == "j2"
    assert attempts.send(True).id == "j1"
    with pytest.raises(StopIteration):
        attempts.send(True)
    assert ids(queue) == ["j0"]


def test_queues_are_found_by_name() -> None:
    assert isinstance(make_queue("backfill", FluidOracle(ClusterState(1))), FluidBackfill)
    deep = new_queue("backfill32")
    assert isinstance(deep, BoundedBackfill)
    assert deep.depth == 32
    for wrong in ("", "lifo", "backfill0", "gfs_artifact+priority", "backfill-1"):
        with pytest.raises(QueueError, match="known: fifo"):
            new_queue(wrong)
    with pytest.raises(CompassError, match="depth is 0"):
        BoundedBackfill(0)


def test_cancelling_most_of_a_ranked_queue_frees_its_memory() -> None:
    queue = filled("sjf", [Job(f"j{i}", 1, 1, 0.0, i) for i in range(1000)])
    for i in range(990):
        queue.remove(f"j{i}")
    assert len(queue._heap) < 100  # type: ignore[attr-defined]
    assert ids(queue) == [f"j{i}" for i in range(990, 1000)]
