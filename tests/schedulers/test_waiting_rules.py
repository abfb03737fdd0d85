"""Who waits and who goes first, where that is part of the method: slow transcriptions on random states."""

import dataclasses
from fractions import Fraction
from random import Random

import pytest

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.cafgd import ContextAwareFgd
from compass_abs.schedulers.mcg import McgSched
from tests.schedulers.random_states import SIZES, literal_gang, random_state
from tests.schedulers.test_placement_rules import STATES, literal_cafgd_mix, node_fragment, random_job, shares


def test_cafgd_wait_for_peak_on_random_states_holds_whom_the_rule_holds() -> None:
    draw = Random(8)
    scheduler, history = ContextAwareFgd(ClusterState(1)), []
    for k in range(450):
        history.append(Job(f"h{k}", 1, draw.choice(SIZES), submitted=float(k)))
        scheduler.submitted(history[-1], Situation())
    held = admitted = expired = 0
    for k in range(STATES):
        # Half of the states below the peak, some with nodes that nobody may use.
        state = random_state(draw, draw.randint(1, 8), cordoned=0.1)
        scheduler.state = state
        scheduler.rebuild()
        job = dataclasses.replace(random_job(draw), id=f"new{k}")
        assert job.duration is not None
        mix = literal_cafgd_mix(history, job.duration)
        assert mix is not None
        up = [node for node in state.nodes if node.status is NodeStatus.UP]
        table = [node_fragment(free, 8, mix) for free in range(9)]
        chosen = literal_gang(state, job.gpus, job.instances, lambda f, g=job.gpus, t=table: t[f - g] - t[f])  # type: ignore[misc]
        if chosen is None:
            continue
        left = {n: state.nodes[n].free for n in chosen}
        growth = Fraction(0)
        for n in chosen:
            growth += table[left[n] - job.gpus] - table[left[n]]
            left[n] -= job.gpus
        peak = sum(8 - node.free for node in up) >= Fraction(8, 10) * 8 * len(up)
        holds, limit = growth > 0 and not peak, min(60.0, 0.02 * job.duration)
        situation = Situation()
        situation.now = 1000.0
        decision = scheduler.admit(job, situation)
        if holds:
            assert decision.reason is not None
            assert decision.reason.until == 1000.0 + limit
            situation.now = 1000.0 + draw.choice((0.5, 1.0)) * limit
            again = scheduler.admit(job, situation)
            assert again.admitted == (situation.now >= 1000.0 + limit)
            held += 1
            expired += again.admitted
        else:
            assert decision.admitted
            assert list(decision.nodes) == chosen
            admitted += 1
    assert min(held, admitted, expired) > 100


def test_mcg_on_random_queues_nominates_the_least_rank_of_those_that_fit() -> None:
    draw = Random(9)
    reordered = guarded = nobody = 0
    for _ in range(STATES):
        state = random_state(draw, draw.randint(1, 10))
        scheduler, situation = McgSched(state), Situation()
        past = [Job(f"p{k}", draw.randint(1, 3), draw.choice(SIZES)) for k in range(draw.randint(1, 30))]
        times = sorted(draw.uniform(650, 2500) for _ in range(draw.randint(1, 20)))
        waiting = [Job(f"w{k}", draw.choice((1, 1, 3, 7)), draw.choice(SIZES), time) for k, time in enumerate(times)]
        for job in (*past, *waiting):
            scheduler.submitted(job, situation)
        situation.waiting, situation.now = waiting, 2500.0
        old, pending = shares([*past, *waiting], 1.0), shares(waiting, 1.0)
        table = [node_fragment(free, 8, {m: (old[m] + pending[m]) / 2 for m in range(1, 9)}) for free in range(9)]
        ranks: dict[str, float] = {}
        for job in waiting[:16]:

            def key(free: int, g: int = job.gpus) -> Fraction:
                return table[free - g] - table[free] + Fraction(1, 20) * (free - g) / 8  # noqa: B023

            if literal_gang(state, job.gpus, job.instances, key) is None:
                continue
            # What the first four instances add, on the nodes as they are now.
            chosen = literal_gang(state, job.gpus, min(4, job.instances), key) or []
            left, growth = {n: state.nodes[n].free for n in chosen}, Fraction(0)
            for n in chosen:
                growth += table[left[n] - job.gpus] - table[left[n]]
                left[n] -= job.gpus
            ranks[job.id] = float(growth / (job.instances * job.gpus)) - (2500.0 - job.submitted) / 1800
        nominated = scheduler.nominate(situation)
        assert nominated is not None
        if 2500.0 - waiting[0].submitted > 1800:
            assert nominated == waiting[0]
            guarded += 1
        elif not ranks:
            assert nominated == waiting[0]
            nobody += 1
        else:
            assert ranks[nominated.id] == pytest.approx(min(ranks.values()), abs=1e-6)
            reordered += nominated != waiting[0]
    assert min(reordered, guarded, nobody) > 50
