"""Placement rules against literal transcriptions of their published definitions, node by node."""

from fractions import Fraction
from random import Random

import pytest

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.cafgd import ContextAwareFgd, long_term_share
from compass_abs.schedulers.demand import MixError
from compass_abs.schedulers.fgd import FragmentationGradientDescent
from compass_abs.schedulers.mcg import McgSched
from compass_abs.schedulers.registry import make_scheduler
from tests.schedulers.random_states import SIZES, literal_gang, random_state

STATES = 2000


def random_job(draw: Random, capacity: int = 8) -> Job:
    sizes = [size for size in SIZES if size <= capacity]
    return Job("new", draw.choice((1, 1, 1, 2, 3, 7)), draw.choice(sizes), duration=10 ** draw.uniform(0, 6))


def chosen_by(name: str, state: ClusterState, job: Job, **parameters: object) -> list[int] | None:
    decision = make_scheduler(name, state, **parameters).admit(job, Situation())
    if decision.reason is not None:
        assert job.id not in state.gangs
        return None
    assert list(decision.nodes) == state.gangs[job.id].nodes
    return list(decision.nodes)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # gpu_select of GFS's artifact: least free GPUs among the nodes that hold it, first in the list on ties.
        ("gfs", lambda free: free),
        # NodeResourcesFit with LeastAllocated and MostAllocated: the score is the share that stays free, or not.
        ("spread", lambda free: -free),
        ("pack", lambda free: free),
    ],
)
def test_fit_rules_on_random_states_choose_what_a_scan_of_all_nodes_chooses(name: str, key) -> None:  # type: ignore[no-untyped-def]
    draw = Random(1)
    refused = 0
    for _ in range(STATES):
        capacity = draw.choice((4, 8, 8, 8, 16))
        state = random_state(draw, draw.randint(1, 12), cordoned=0.1, capacity=capacity)
        job = random_job(draw, capacity)
        expected = literal_gang(state, job.gpus, job.instances, key)
        assert chosen_by(name, state, job) == expected
        refused += expected is None
    assert 0 < refused < STATES


def test_first_fit_on_random_states_chooses_the_first_node_of_a_scan() -> None:
    draw = Random(2)
    for _ in range(STATES):
        state = random_state(draw, draw.randint(1, 12), cordoned=0.1)
        job = random_job(draw)
        free = [node.free if node.status is NodeStatus.UP else -1 for node in state.nodes]
        expected: list[int] | None = []
        for _ in range(job.instances):
            node = next((n for n, f in enumerate(free) if f >= job.gpus), None)
            if node is None or expected is None:
                expected = None
                break
            expected.append(node)
            free[node] -= job.gpus
        assert chosen_by("first-fit", state, job) == expected


def test_random_fit_draws_only_nodes_that_hold_it_and_all_of_them() -> None:
    state = ClusterState(4)
    state.place(Job("full", 1, 8), [1])
    seen = {}
    for k in range(200):
        scheduler = make_scheduler("random", state, seed=k)
        decision = scheduler.admit(Job("new", 2, 5), Situation())
        assert len(set(decision.nodes)) == 2
        seen.update(dict.fromkeys(decision.nodes))
        state.release("new")
    assert sorted(seen) == [0, 2, 3]


def test_random_fit_with_equal_seed_and_job_draws_equal_nodes() -> None:
    draws = [make_scheduler("random", ClusterState(50), seed=7).admit(Job("x", 5, 3), Situation()) for _ in range(2)]
    assert draws[0].nodes == draws[1].nodes
    assert draws[0].nodes != make_scheduler("random", ClusterState(50)).admit(Job("x", 5, 3), Situation()).nodes


# ---- FGD


def node_fragment(free: int, capacity: int, typical: dict[int, Fraction]) -> Fraction:
    """NodeGpuShareFragAmountScore of FGD's frag.go, for GPUs that are idle (1000 milli) or not (0).

    A task that a node can't run makes all of its idle GPUs fragment; one that it can run only those GPUs that have
    less left than the task wants of one.
    """
    idle = [1000] * free + [0] * (capacity - free)
    amount = Fraction(0)
    for gpus, popularity in typical.items():
        wanted = 1000
        if sum(milli >= wanted for milli in idle) < gpus:
            amount += popularity * sum(idle)
        else:
            amount += popularity * sum(milli for milli in idle if milli < wanted)
    return amount / 1000


def test_fgd_on_random_states_and_mixes_chooses_the_least_growth_of_the_published_measure() -> None:
    draw = Random(3)
    for _ in range(STATES):
        weights = {size: draw.randint(0, 20) for size in range(1, 9)}
        if not any(weights.values()):
            continue
        total = sum(weights.values())
        typical = {size: Fraction(weight, total) for size, weight in weights.items()}
        table = [node_fragment(free, 8, typical) for free in range(9)]
        state = random_state(draw, draw.randint(1, 12), cordoned=0.1)
        job = random_job(draw)
        expected = literal_gang(
            state,
            job.gpus,
            job.instances,
            lambda free, g=job.gpus, f=table: f[free - g] - f[free],  # type: ignore[misc]
        )
        mix = ",".join(f"{size}:{weight}" for size, weight in weights.items())
        assert chosen_by("fgd", state, job, mix=mix) == expected


def test_fgd_with_the_mix_of_the_literature_prefers_these_counts() -> None:
    scheduler = FragmentationGradientDescent(ClusterState(1), mix="1:0.35,2:0.1,4:0.05,8:0.5")
    assert list(scheduler.order(Job("x", 1, 1), Situation())) == [1, 3, 5, 6, 7, 2, 4, 8]


def test_fgd_learns_from_the_submissions_of_its_window_only() -> None:
    learned = FragmentationGradientDescent(ClusterState(1), window=100.0)
    for k in range(200):
        learned.submitted(Job(f"a{k}", 1, 4, submitted=float(k)), Situation())
    for k in range(200):
        learned.submitted(Job(f"b{k}", 1, 1 if k % 3 else 8, submitted=1000.0 + k), Situation())
    # 101 submissions lie in the last 100 seconds; what is older has been forgotten, fours included.
    assert learned._history is not None
    assert learned._history.weights[4] == 0
    assert sum(learned._history.weights) == 101


def test_fgd_before_any_submission_is_best_fit() -> None:
    scheduler = FragmentationGradientDescent(ClusterState(1))
    assert list(scheduler.order(Job("x", 1, 2), Situation())) == [2, 3, 4, 5, 6, 7, 8]


def test_fgd_with_a_typical_share_counts_the_most_popular_sizes_only() -> None:
    cut = FragmentationGradientDescent(ClusterState(1), mix="1:60,8:36,4:4", typical_share=0.95)
    whole = FragmentationGradientDescent(ClusterState(1), mix="1:60,8:36")
    for gpus in range(1, 9):
        assert cut.order(Job("x", 1, gpus), Situation()) == whole.order(Job("x", 1, gpus), Situation())


@pytest.mark.parametrize("mix", ["1:a", "9:1", "0:1", "1:-1", "1:0", "one:1"])
def test_fgd_with_a_bad_mix_says_what_is_wrong(mix: str) -> None:
    with pytest.raises(MixError, match="demand mix"):
        FragmentationGradientDescent(ClusterState(1), mix=mix)


# ---- CAFGD


def literal_cafgd_mix(history: list[Job], duration: float) -> dict[int, Fraction] | None:
    """The demand that a job of this duration is placed against, from the whole list of submissions."""
    seen = len(history)
    if seen < 400:
        return None
    step = 400 if seen <= 10_000 else 10_000
    upto = seen - seen % step
    long_term = shares(history[max(0, upto - 10_000) : upto], 0.95)
    short_term = shares(history[-50:] if duration < 500 else history[-400:], 1.0)
    alpha = Fraction(round(long_term_share(duration) * 2**20), 2**20)
    return {size: alpha * long_term[size] + (1 - alpha) * short_term[size] for size in range(1, 9)}


def shares(jobs: list[Job], popular: float) -> dict[int, Fraction]:
    counts = dict.fromkeys(range(1, 9), 0)
    for job in jobs:
        counts[job.gpus] += job.instances
    total, kept, taken = sum(counts.values()), {}, 0
    for size in sorted(counts, key=lambda g: (-counts[g], g)):
        kept[size] = counts[size] if taken < popular * total else 0
        taken += kept[size]
    return {size: Fraction(count, taken) for size, count in kept.items()}


def test_cafgd_along_a_long_history_chooses_the_least_growth_under_the_literal_mix() -> None:
    draw = Random(4)
    learner = ContextAwareFgd(ClusterState(1), wait=0)
    history: list[Job] = []
    checked = 0
    for k in range(21_000):
        size = draw.choice(SIZES) if (k // 700) % 2 else draw.choice((1, 8))
        job = Job(f"h{k}", draw.choice((1, 1, 1, 4)), size, submitted=float(k))
        history.append(job)
        learner.submitted(job, Situation())
        if k % 10 == 0 or 395 < k < 405:
            new = random_job(draw)
            assert new.duration is not None
            mix = literal_cafgd_mix(history, new.duration)
            table = [Fraction(-free * free) if mix is None else node_fragment(free, 8, mix) for free in range(9)]
            state = random_state(draw, draw.randint(1, 8))
            expected = literal_gang(
                state,
                new.gpus,
                new.instances,
                lambda free, g=new.gpus, f=table: f[free - g] - f[free],  # type: ignore[misc]
            )
            learner.state = state
            decision = learner.admit(new, Situation())
            assert (None if decision.reason else list(decision.nodes)) == expected
            checked += 1
    assert checked > 2000


@pytest.mark.parametrize(
    ("duration", "share"), [(1, 0.0), (499, 0.0), (500, 0.0), (5_000, 0.5), (50_000, 1.0), (5e5, 1.0), (None, 1.0)]
)
def test_long_term_share_is_linear_in_the_logarithm_between_its_ends(duration: float | None, share: float) -> None:
    assert long_term_share(duration) == pytest.approx(share)


def warm_cafgd(nodes: int, **parameters: float) -> ContextAwareFgd:
    scheduler = ContextAwareFgd(ClusterState(nodes), **parameters)
    for k in range(400):
        scheduler.submitted(Job(f"h{k}", 1, 8 if k % 2 else 1), Situation())
    return scheduler


def test_cafgd_off_peak_holds_a_job_that_fragments_until_its_wait_is_over() -> None:
    scheduler, situation = warm_cafgd(10), Situation()
    job = Job("x", 1, 1, duration=10_000.0)
    situation.now = 100.0
    first = scheduler.admit(job, situation)
    assert first.reason is not None
    assert first.reason.until == 160.0
    situation.now = 130.0
    again = scheduler.admit(job, situation)
    assert again.reason is not None
    assert again.reason.until == 160.0
    situation.now = 160.0
    assert scheduler.admit(job, situation).admitted


def test_cafgd_off_peak_admits_a_job_that_adds_no_fragmentation_at_once() -> None:
    assert warm_cafgd(10).admit(Job("x", 1, 8, duration=10_000.0), Situation()).admitted


def test_cafgd_at_the_peak_admits_at_once() -> None:
    scheduler = warm_cafgd(10)
    scheduler.state.place(Job("load", 8, 8), range(8))
    assert scheduler.admit(Job("x", 1, 1, duration=10_000.0), Situation()).admitted


def test_cafgd_holds_a_short_job_for_its_patience_only() -> None:
    refused = warm_cafgd(10).admit(Job("x", 1, 1, duration=100.0), Situation())
    assert refused.reason is not None
    assert refused.reason.until == 2.0


# ---- MCG


def test_mcg_on_random_states_chooses_the_least_growth_under_past_and_pending_demand() -> None:
    draw = Random(5)
    for _ in range(STATES):
        state = random_state(draw, draw.randint(1, 12))
        share, load = draw.choice((0.0, 0.5, 1.0)), draw.choice((0.0, 0.05, 1.0))
        scheduler = McgSched(state, pending_share=share, load_weight=load)
        situation = Situation()
        past = [Job(f"p{k}", draw.randint(1, 3), draw.choice(SIZES)) for k in range(draw.randint(1, 30))]
        waiting = [Job(f"w{k}", draw.randint(1, 3), draw.choice(SIZES)) for k in range(draw.randint(0, 5))]
        for job in (*past, *waiting):
            scheduler.submitted(job, situation)
        situation.waiting = waiting
        old, pending = shares([*past, *waiting], 1.0), dict.fromkeys(range(1, 9), Fraction(0))
        weight = Fraction(0)
        if waiting:
            pending, weight = shares(waiting, 1.0), Fraction(share)
        mix = {size: (1 - weight) * old[size] + weight * pending[size] for size in range(1, 9)}
        new = random_job(draw)
        table = [node_fragment(free, 8, mix) for free in range(9)]
        pull = Fraction(load) / 8

        def key(free: int, g: int = new.gpus, f: list[Fraction] = table, pull: Fraction = pull) -> Fraction:
            return f[free - g] - f[free] + pull * (free - g)

        free = [node.free for node in state.nodes]
        decision = scheduler.admit(new, situation)
        if state.room(new.gpus) < new.instances and decision.reason is not None:
            assert literal_gang(state, new.gpus, new.instances, key) is None
            continue
        for node in decision.nodes:
            best = min((key(f), f, n) for n, f in enumerate(free) if f >= new.gpus)
            # The pull is rounded to a unit far below any difference that means something.
            assert key(free[node]) - best[0] < Fraction(1, 10**6)
            if key(free[node]) == best[0]:
                assert (free[node], node) == best[1:]
            free[node] -= new.gpus


def mcg_with_queue(*jobs: Job, nodes: int = 2, guard: float = 1800.0) -> tuple[McgSched, Situation]:
    scheduler, situation = McgSched(ClusterState(nodes), guard=guard), Situation()
    for job in jobs:
        scheduler.submitted(job, situation)
    situation.waiting = jobs
    return scheduler, situation


def test_mcg_nominates_the_job_that_fits_ahead_of_one_that_does_not() -> None:
    scheduler, situation = mcg_with_queue(Job("wide", 3, 8), Job("slim", 1, 8))
    assert scheduler.nominate(situation) == situation.waiting[1]


def test_mcg_nominates_the_job_that_adds_least_fragmentation_per_gpu() -> None:
    scheduler, situation = mcg_with_queue(Job("one", 1, 1), Job("eight", 1, 8))
    assert scheduler.nominate(situation) == situation.waiting[1]


def test_mcg_lets_age_outweigh_fragmentation() -> None:
    scheduler, situation = mcg_with_queue(Job("seven", 1, 7), Job("eight", 1, 8))
    assert scheduler.nominate(situation) == situation.waiting[1]
    scheduler, situation = mcg_with_queue(Job("seven", 1, 7), Job("eight", 1, 8, submitted=1700.0))
    situation.now = 1700.0
    assert scheduler.nominate(situation) == situation.waiting[0]


def test_mcg_once_the_first_waited_for_the_guard_nominates_nobody_else() -> None:
    scheduler, situation = mcg_with_queue(Job("wide", 3, 8), Job("slim", 1, 8))
    situation.now = 1801.0
    assert scheduler.nominate(situation) == situation.waiting[0]
    assert not scheduler.admit(situation.waiting[0], situation).admitted


def test_mcg_looks_no_further_than_its_reach() -> None:
    wide = [Job(f"wide{k}", 3, 8) for k in range(16)]
    scheduler, situation = mcg_with_queue(*wide, Job("slim", 1, 8))
    assert scheduler.nominate(situation) == wide[0]


def test_mcg_notices_a_cancelled_job() -> None:
    scheduler, situation = mcg_with_queue(Job("a", 1, 8), Job("b", 1, 1))
    before = scheduler.table(situation)
    situation.waiting = situation.waiting[:1]
    assert scheduler.table(situation) != before


# ---- Slurm


def literal_consecutive(state: ClusterState, gpus: int, instances: int) -> list[int] | None:
    """`_eval_nodes_consec` with its tables of consecutive sets, for equal weights and no required nodes.

    What the original counts in CPUs is counted in instances of the job.
    """
    avail = [node.free // gpus if node.status is NodeStatus.UP else 0 for node in state.nodes]
    consec_cpus, consec_start, consec_end = [0], [0], [0]
    nodes_in = [0]
    for i, count in enumerate(avail):
        if count:
            if nodes_in[-1] == 0:
                consec_start[-1] = i
            consec_cpus[-1] += count
            nodes_in[-1] += 1
            consec_end[-1] = i
        elif nodes_in[-1]:
            for column in (consec_cpus, consec_start, consec_end, nodes_in):
                column.append(0)
    remaining, chosen = instances, []
    while remaining > 0:
        best, best_cpus, best_sufficient = -1, 0, False
        for i in range(len(consec_cpus)):
            if nodes_in[i] == 0:
                continue
            sufficient = consec_cpus[i] >= remaining
            if (
                best < 0
                or (sufficient and not best_sufficient)
                or (sufficient and consec_cpus[i] < best_cpus)
                or (not sufficient and not best_sufficient and consec_cpus[i] > best_cpus)
            ):
                best, best_cpus, best_sufficient = i, consec_cpus[i], sufficient
        if best < 0:
            return None
        nodes = range(consec_start[best], consec_end[best] + 1)
        single, single_size = -1, 0
        for i in nodes:
            if avail[i] >= remaining and (single < 0 or avail[i] < single_size):
                single, single_size = i, avail[i]
        for i in [single] if single >= 0 else nodes:
            taken = min(avail[i], remaining)
            chosen += [i] * taken
            remaining -= taken
        nodes_in[best] = 0
    return chosen


def test_slurm_on_random_states_chooses_what_its_tables_of_consecutive_sets_choose() -> None:
    draw = Random(6)
    split = 0
    for _ in range(STATES):
        state = random_state(draw, draw.randint(1, 14), cordoned=0.15)
        job = random_job(draw)
        expected = literal_consecutive(state, job.gpus, job.instances)
        assert chosen_by("slurm", state, job) == expected
        split += expected is not None and max(expected) - min(expected) >= len(expected)
    assert split > 20


def test_slurm_busy_nodes_on_random_states_are_taken_before_idle_ones_each_in_order() -> None:
    draw = Random(7)
    for _ in range(STATES):
        state = random_state(draw, draw.randint(1, 14), cordoned=0.15)
        job = random_job(draw)
        expected: list[int] = []
        for idle in (False, True):
            for node in state.nodes:
                if node.status is NodeStatus.UP and (node.free == 8) == idle:
                    expected += [node.index] * min(node.free // job.gpus, job.instances - len(expected))
        chosen = chosen_by("slurm", state, job, selection="busy")
        assert chosen == (expected if len(expected) == job.instances else None)
