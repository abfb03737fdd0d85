"""The shadow on days that are made up: who was really in charge does neither better nor worse, and nothing breaks."""

import random
from pathlib import Path
from typing import Any

import pytest

from compass_abs.audit.journal import Journal
from compass_abs.audit.reading import observe_documents
from compass_abs.audit.shadow import ShadowOptions, ShadowReport, compare
from tests.audit.kubectl import listed, node, pod

#: 2026-11-18T00:00:00Z
MIDNIGHT = 1_794_960_000


def clock(minute: int) -> str:
    return f"2026-11-18T{minute // 60:02d}:{minute % 60:02d}:00Z"


def pods_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """A gang's pods, waiting or running."""
    found = []
    for k in range(job["instances"]):
        host = job["nodes"][k] if job["started"] is not None else ""
        entry = pod(f"{job['id']}-{k}", job["gpus"], host, labels={"job-name": job["id"]}, movable=job["movable"])
        entry["metadata"]["creationTimestamp"] = clock(job["arrives"])
        if host:
            entry["status"]["startTime"] = clock(job["started"])
        found.append(entry)
    return found


def day(path: Path, seed: int, minutes: int = 240, hosts: int = 5) -> None:
    """Best fit, first come first served, a look at every minute."""
    chance = random.Random(seed)
    names = [f"n{k}" for k in range(hosts)]
    free = dict.fromkeys(names, 8)
    jobs = [
        {"id": f"j{k:03d}", "instances": chance.choice((1, 1, 1, 2)), "gpus": chance.choice((1, 2, 4, 4, 8)),
         "arrives": chance.randrange(minutes), "lasts": chance.randrange(5, 90), "movable": chance.random() < 0.7,
         "started": None, "nodes": []}
        for k in range(60)
    ]  # fmt: skip
    jobs.sort(key=lambda job: (job["arrives"], job["id"]))
    journal = Journal(path)
    for minute in range(minutes):
        for job in jobs:
            if job["started"] is not None and minute == job["started"] + job["lasts"]:
                for host in job["nodes"]:
                    free[host] += job["gpus"]
        for job in jobs:
            if job["started"] is not None or job["arrives"] > minute:
                continue
            after, chosen = dict(free), []
            for _ in range(job["instances"]):
                fitting = [host for host in names if after[host] >= job["gpus"]]
                if fitting:
                    chosen.append(min(fitting, key=lambda host: (after[host], host)))
                    after[chosen[-1]] -= job["gpus"]
            if len(chosen) < job["instances"]:
                break
            free, job["started"], job["nodes"] = after, minute, chosen
        here = [j for j in jobs if j["arrives"] <= minute and not (
            j["started"] is not None and minute >= j["started"] + j["lasts"])]  # fmt: skip
        document = listed(*(node(name) for name in names), *(each for job in here for each in pods_of(job)))
        time = MIDNIGHT + 60.0 * minute
        journal.observe(observe_documents([("k", document)], "k", time=time), time)
    journal.close()


def told(path: Path, scheduler: str, **options: Any) -> ShadowReport:
    return compare(Journal.read(path), ShadowOptions(scheduler, **options))


@pytest.mark.parametrize("seed", range(6))
def test_scheduler_that_was_really_in_charge_would_have_done_the_same(seed: int, tmp_path: Path) -> None:
    day(tmp_path / "day", seed)
    report = told(tmp_path / "day", "best-fit")
    assert len(report.jobs) > 40
    assert [(job.job, job.really) for job in report.jobs] == [(job.job, job.shadow) for job in report.jobs]
    (pool,) = report.pools
    assert (pool.really_partial, pool.really_avoidable) == (pool.shadow_partial, pool.shadow_avoidable)
    assert any((job.really or 0) > job.submitted for job in report.jobs)


@pytest.mark.parametrize("seed", range(3))
def test_mover_keeps_fewer_avoidable_nodes_and_nobody_is_lost(seed: int, tmp_path: Path) -> None:
    day(tmp_path / "day", seed)
    really = told(tmp_path / "day", "best-fit")
    moved = told(tmp_path / "day", "compass-jit", everything_moves=True, pause=0.0)
    assert {job.job for job in moved.jobs} == {job.job for job in really.jobs}
    assert moved.waits()[1] <= really.waits()[0]


@pytest.mark.parametrize("scheduler", ["compass-abs", "compass-abs-residual", "fgd", "threshold"])
@pytest.mark.parametrize("queue", ["sjf", "backfill", "fifo+priority"])
def test_any_scheduler_and_queue_can_be_asked(scheduler: str, queue: str, tmp_path: Path) -> None:
    day(tmp_path / "day", 7, minutes=90)
    report = told(tmp_path / "day", scheduler, queue=queue, everything_moves=True)
    assert report.jobs
    assert all(job.shadow is None or job.shadow >= job.submitted for job in report.jobs)
    assert report.as_dict()["queue"] == queue


def test_gang_that_ran_and_grew_is_told_without_what_came_later(tmp_path: Path) -> None:
    """At the first look another job holds the node on which the second instance starts afterwards."""
    gang = [pod(f"g-{k}", 8, host, labels={"job-name": "g"}) for k, host in enumerate("ab")]
    gang[1]["status"]["startTime"] = clock(5)
    other = pod("other", 8, "b")
    journal = Journal(tmp_path / "day")
    looks = [[gang[0], other], [gang[0]], gang, gang, []]
    for number, pods in enumerate(looks):
        time = MIDNIGHT + 120.0 * number
        document = listed(node("a"), node("b"), *pods)
        journal.observe(observe_documents([("k", document)], "k", time=time), time)
    journal.close()
    report = told(tmp_path / "day", "best-fit")
    assert [(job.job, job.instances, job.really, job.shadow) for job in report.jobs] == [
        ("team/g", 1, MIDNIGHT + 240.0, MIDNIGHT + 240.0)
    ]


def test_jobs_of_higher_priority_go_first_where_the_queue_says_so(tmp_path: Path) -> None:
    first, second = pod("first", 8), pod("second", 8, spec={"priority": 9})
    first["metadata"]["creationTimestamp"], second["metadata"]["creationTimestamp"] = clock(0), clock(1)
    journal = Journal(tmp_path / "day")
    for minute in (1, 2, 10):
        pods = [pod("runs", 8, "a")] if minute == 1 else []
        document = listed(node("a"), *pods, first, second)
        time = MIDNIGHT + 60.0 * minute
        journal.observe(observe_documents([("k", document)], "k", time=time), time)
    journal.close()
    for queue, winner in (("fifo", "team/first"), ("fifo+priority", "team/second")):
        report = told(tmp_path / "day", "best-fit", queue=queue)
        assert [job.job for job in report.jobs if job.shadow is not None] == [winner]
