"""Nothing is lost and nothing invented: jobs, GPU-seconds, and every microsecond of a job's life."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.model import ClusterState, Job, Mode, NodeStatus
from compass_abs.queues import QUEUES, make_queue
from compass_abs.simulation import Checks, NodeChange, PaperCost, Simulation, StrictCost
from compass_abs.simulation.recorder import Recorder
from tests.simulation.doubles import Ledger, Restless, workloads

COSTS = st.sampled_from((PaperCost(0), PaperCost(8), PaperCost(1.000001), StrictCost(3, 5), StrictCost(0.7, 0)))


@st.composite
def outages(draw: st.DrawFn, nodes: int = 4) -> list[NodeChange]:
    """Nodes that fail or are cordoned, each to come back."""
    found = []
    for node in draw(st.lists(st.integers(0, nodes - 1), max_size=3, unique=True)):
        begin = draw(st.integers(0, 60_000_000)) / 1e6
        status = draw(st.sampled_from((NodeStatus.LOST, NodeStatus.CORDONED, NodeStatus.DRAINING)))
        found.append(NodeChange(begin, f"n{node}", status))
        found.append(NodeChange(begin + draw(st.integers(1, 40_000_000)) / 1e6, f"n{node}", NodeStatus.UP))
    return found


@settings(max_examples=150)
@given(
    jobs=workloads(),
    cost=COSTS,
    queue=st.sampled_from(sorted(QUEUES)),
    changes=outages(),
    period=st.sampled_from((None, 0, 1.0, 3600.0)),
    seed=st.integers(0, 999),
)
def test_every_replay_conserves_jobs_gpu_seconds_and_microseconds(
    jobs: list[Job],
    cost: PaperCost | StrictCost,
    queue: str,
    changes: list[NodeChange],
    period: float | None,
    seed: int,
) -> None:
    scheduler = Restless(ClusterState(4), seed, (Mode.CHECKPOINT, Mode.RESTART))
    ledger = Ledger()
    simulation = Simulation(
        jobs,
        scheduler,
        make_queue(queue, scheduler),
        cost=cost,
        node_changes=changes,
        checkpoint_period=period,
        observer=ledger,
        checks=Checks.EVERY_EVENT,
    )
    summary = simulation.run()

    assert sorted(ledger.finished_at) == sorted(job.id for job in jobs)
    assert summary.jobs == summary.finished == len(jobs)
    for record in ledger.records.values():
        completion = ledger.finished_at[record.job.id] - record.submitted
        assert completion == record.queueing + record.service + record.delay + record.redone
        assert min(record.queueing, record.delay, record.redone) >= 0
        assert record.service == round(record.job.duration * 1e6)
    gpu_time = sum(
        record.job.total_gpus * (record.service + record.delay + record.redone) for record in ledger.records.values()
    )
    assert simulation.meter.busy_area == simulation.meter.delivered == gpu_time
    assert not scheduler.state.gangs
    assert sum(scheduler.state.demand) == 0


@settings(max_examples=40)
@given(jobs=workloads(), seed=st.integers(0, 999))
def test_delay_under_the_papers_cost_is_the_pause_of_each_event(jobs: list[Job], seed: int) -> None:
    scheduler, ledger = Restless(ClusterState(4), seed), Ledger()
    Simulation(jobs, scheduler, cost=PaperCost(8), observer=ledger).run()
    for record in ledger.records.values():
        pause = 8.0 if record.job.pause is None else record.job.pause
        assert record.delay == record.pauses * round(pause * 1e6)
        assert record.pauses <= record.migrations


@settings(max_examples=40)
@given(jobs=workloads(), seed=st.integers(0, 999), changes=outages())
def test_recorded_events_never_overfill_a_node(jobs: list[Job], seed: int, changes: list[NodeChange]) -> None:
    scheduler = Restless(ClusterState(4), seed)
    recorder = Recorder(scheduler.state)
    Simulation(jobs, scheduler, node_changes=changes, observer=recorder).run()
    used: dict[int, int] = {}
    where: dict[str, list[int]] = {}
    sizes = {job.id: job.gpus for job in jobs}
    for event in recorder.events().iter_rows(named=True):
        job = event["job"]
        match event["event"]:
            case "start":
                where[job] = list(event["nodes"])
                for node in event["nodes"]:
                    used[node] = used.get(node, 0) + sizes[job]
            case "move":
                assert where[job][event["instance"]] == event["source"]
                where[job][event["instance"]] = event["target"]
                used[event["source"]] -= sizes[job]
                used[event["target"]] = used.get(event["target"], 0) + sizes[job]
            case "finish" | "lost":
                for node in where.pop(job):
                    used[node] -= sizes[job]
        assert all(0 <= count <= 8 for count in used.values())
    assert not where
    table = recorder.jobs()
    parts = table["queueing_us"] + table["service_us"] + table["delay_us"] + table["redone_us"]
    assert (parts == table["jct_us"]).all()
    assert (table["finished_us"] - table["submitted_us"] == table["jct_us"]).all()


@pytest.mark.parametrize("queue", sorted(QUEUES))
def test_an_empty_trace_has_an_empty_summary(queue: str) -> None:
    scheduler = Restless(ClusterState(1), 0)
    summary = Simulation([], scheduler, make_queue(queue, scheduler)).run()
    assert (summary.jobs, summary.events, summary.ajct, summary.makespan) == (0, 0, 0, 0)
