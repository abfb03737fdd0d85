"""What the protocol asks of every scheduler in the registry, in long random lives."""

from dataclasses import replace
from random import Random

import pytest

from compass_abs.fragmentation import minimum_used
from compass_abs.model import ClusterState, Decision, Job, Mode, NodeStatus, Verdict, check_state
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.registry import make_scheduler
from tests.schedulers.random_states import SIZES

NODES = 9
#: Ours; COMPASS-ABS and its variants have tests of their own.
PLACERS = ("gfs", "fgd", "cafgd", "mcg", "spread", "pack", "slurm", "first-fit", "random")
MOVERS = ("drr", "fft", "kai", "threshold", "sif-opt-moves")
# What reacts to fragmentation alone could in principle starve a test of moves; fewer rounds would hide that.
STEPS = 260


class Life:
    """A random life of a cluster under one scheduler, every decision checked on a second state."""

    def __init__(self, name: str, seed: int, pinned: float, node_events: bool) -> None:
        self.draw = Random(seed)
        self.pinned, self.node_events = pinned, node_events
        self.state = ClusterState(NODES)
        self.shadow = ClusterState(NODES)
        self.scheduler = make_scheduler(name, self.state)
        self.situation = Situation()
        self.waiting: list[Job] = []
        self.situation.waiting = self.waiting
        self.story: list[object] = []
        self.moves = 0

    def run(self, steps: int = STEPS) -> "Life":
        next_round = self.scheduler.next_round(0.0)
        for k in range(steps):
            self.situation.now += self.draw.choice((5.0, 30.0, 120.0))
            while next_round is not None and next_round <= self.situation.now:
                self.check(self.scheduler.round(self.situation))
                later = self.scheduler.next_round(next_round)
                assert later is not None
                assert later > next_round
                next_round = later
            self.arrive(k)
            for _ in range(self.draw.choice((0, 1, 1, 1))):
                self.depart()
            if self.node_events and self.draw.random() < 0.08:
                self.change_node()
            self.serve()
        return self

    def arrive(self, k: int) -> None:
        job = Job(
            f"j{k:04d}",
            self.draw.choice((1, 1, 1, 1, 2, 3)),
            self.draw.choice(SIZES),
            self.situation.now,
            duration=10 ** self.draw.uniform(1, 5),
            priority=self.draw.choice((0, 0, 1)),
            movable=self.draw.random() >= self.pinned,
        )
        self.waiting.append(job)
        self.scheduler.submitted(job, self.situation)

    def depart(self) -> None:
        running = sorted(self.state.gangs)
        if running:
            job_id = self.draw.choice(running)
            self.situation.ends.pop(job_id, None)
            self.check(self.scheduler.finish(job_id, self.situation))
            assert job_id not in self.state.gangs

    def change_node(self) -> None:
        node = self.draw.choice(self.state.nodes)
        status = NodeStatus.UP if node.status is not NodeStatus.UP else NodeStatus.CORDONED
        self.shadow.set_status(node.name, status)
        self.check(self.scheduler.set_status(node.name, status, self.situation))

    def serve(self) -> None:
        while self.waiting:
            job = self.waiting[0]
            before = self.state.placements()
            decision = self.scheduler.admit(job, self.situation)
            if decision.reason is not None:
                assert sorted(self.state.placements()) == sorted(before)
                if decision.reason.verdict is Verdict.CAPACITY:
                    demand = list(self.state.demand)
                    demand[job.gpus] += job.instances
                    assert minimum_used(demand) > self.state.available_nodes
                break
            self.check(decision)
            self.waiting.pop(0)
            self.situation.ends[job.id] = self.situation.now + (job.duration or 0.0)

    def check(self, decision: Decision) -> None:
        """The decision, carried out elsewhere, leads to the same placements; pins and cordons were respected."""
        for move in decision.migrations:
            assert self.shadow.gangs[move.instance.job_id].job.movable
            assert self.shadow.nodes[move.target].status is NodeStatus.UP
        self.shadow.apply(replace(decision))
        assert sorted(self.shadow.placements()) == sorted(self.state.placements())
        self.scheduler.check_invariants()
        check_state(self.state)
        self.moves += len(decision.migrations)
        self.story.append((decision.job and decision.job.id, decision.nodes, decision.before, decision.after))


@pytest.mark.parametrize("name", PLACERS + MOVERS)
def test_scheduler_in_a_random_life_decides_what_can_be_carried_out(name: str) -> None:
    life = Life(name, seed=1, pinned=0.0, node_events=False).run()
    assert (life.moves > 0) == (name in MOVERS)


@pytest.mark.parametrize("name", PLACERS + MOVERS)
def test_scheduler_with_pinned_jobs_and_cordoned_nodes_respects_both(name: str) -> None:
    for seed in (2, 3):
        Life(name, seed, pinned=0.3, node_events=True).run()


@pytest.mark.parametrize("name", PLACERS + MOVERS)
def test_scheduler_given_the_same_events_twice_decides_the_same(name: str) -> None:
    first, second = (Life(name, 4, pinned=0.2, node_events=True).run(120) for _ in range(2))
    assert first.story == second.story


@pytest.mark.parametrize("name", MOVERS)
def test_scheduler_whose_decision_is_undone_stands_where_it_stood(name: str) -> None:
    life = Life(name, 5, pinned=0.0, node_events=False).run(80)
    state = life.state
    admitted = moved = 0
    for k in range(80, 160):
        before = sorted(state.placements())
        job = Job(f"new{k}", life.draw.choice((1, 2)), life.draw.choice(SIZES), life.situation.now)
        decision = life.scheduler.admit(job, life.situation)
        if decision.admitted:
            life.scheduler.undo(decision)
            admitted += 1
            moved += bool(decision.migrations)
        assert sorted(state.placements()) == before
        life.scheduler.check_invariants()
        for running in sorted(state.gangs)[:3]:
            life.scheduler.undo(life.scheduler.finish(running, life.situation))
            assert sorted(state.placements()) == before
        life.arrive(k)
        life.depart()
        life.serve()
    assert admitted > 20
    assert moved or name not in ("kai", "sif-opt-moves")


@pytest.mark.parametrize("name", [*PLACERS, "sif-opt-moves", "fft"])
def test_restored_scheduler_decides_as_the_one_it_replaces(name: str) -> None:
    """Those that learn the demand are compared before they have learned any."""
    draw = Random(6)
    state = ClusterState(NODES)
    scheduler = make_scheduler(name, state)
    situation = Situation()
    for k in range(30):
        scheduler.admit(Job(f"j{k}", 1, draw.choice(SIZES)), situation)
    for job_id in sorted(state.gangs)[::3]:
        scheduler.finish(job_id, situation)
    other = make_scheduler(name, ClusterState(NODES))
    other.restore([(gang.job, list(gang.nodes)) for gang in state.gangs.values()])
    for k in range(20):
        job = Job(f"new{k}", draw.choice((1, 2)), draw.choice(SIZES))
        first, second = scheduler.admit(job, situation), other.admit(job, situation)
        assert (first.nodes, first.before, first.after) == (second.nodes, second.before, second.after)


@pytest.mark.parametrize("name", PLACERS + MOVERS)
def test_scheduler_asked_for_more_gpus_than_a_node_has_says_so(name: str) -> None:
    from compass_abs.model import InvalidJobError

    scheduler = make_scheduler(name, ClusterState(2))
    with pytest.raises(InvalidJobError, match="split it"):
        scheduler.admit(Job("x", 1, 9), Situation())


@pytest.mark.parametrize("name", [name for name in MOVERS if name != "kai"])
def test_scheduler_that_moves_keeps_progress(name: str) -> None:
    life = Life(name, 7, pinned=0.0, node_events=False).run(100)
    moves = [move for _, _, before, after in life.story for move in (*before, *after)]  # type: ignore[misc]
    assert {move.mode for move in moves} == {Mode.CHECKPOINT}
