"""Just-in-time compaction on domains: who waits, what is moved for it, and how near the fewest moves that is."""

import random
from itertools import combinations, product

import pytest

from compass_abs.fragmentation.levels import fits_repacked
from compass_abs.model import CompassError, Decision, Job, NodeStatus, Verdict
from compass_abs.planner import FewestMoves, Impossible, Plan
from compass_abs.planner.domains import plan_domains
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.hierarchical_jit import HierarchicalJit
from compass_abs.schedulers.jit import CompassJit
from compass_abs.schedulers.registry import make_scheduler
from compass_abs.topology import PRESETS, DomainState, Level, Topology
from compass_abs.topology.vacancies import Vacancies
from tests.schedulers.reachable_domains import explore_domains

SITUATION = Situation()


def shape(gpus: int, *levels: int) -> Topology:
    return Topology("small", gpus, tuple(Level(f"level {k}", size, size) for k, size in enumerate(levels)))


def of_domains(topology: Topology, domains: int, **knobs: object) -> HierarchicalJit:
    found = make_scheduler("hierarchical-jit", DomainState(domains * topology.panels_per_domain, topology), **knobs)
    assert isinstance(found, HierarchicalJit)
    return found


def could_start(scheduler: HierarchicalJit, job: Job) -> bool:
    return scheduler.state.free_gpus >= job.total_gpus and fits_repacked(scheduler.state, job)


def check(scheduler: HierarchicalJit) -> None:
    """The state is sound, larger instances are whole, and what is counted beside it is what is there."""
    scheduler.check_invariants()
    domains = scheduler.domains
    for job_id, job in domains.whole.items():
        each = domains.topology.panels_of(job.gpus)
        size = domains.topology.panels(domains.topology.demand(job.gpus).level - 1)
        nodes = domains.gangs[job_id].nodes
        for first in range(0, len(nodes), each):
            assert len({panel // size for panel in nodes[first : first + each]}) == 1
    fresh = Vacancies(domains, domains.topology)
    for kept, counted in zip(scheduler.vacancies.by_empty, fresh.by_empty, strict=True):
        assert [list(bucket) for bucket in kept] == [list(bucket) for bucket in counted]


def random_job(rng: random.Random, topology: Topology, number: int, large: float = 0.25) -> Job:
    gpus = rng.choice((1, 1, rng.randint(1, topology.panel_gpus)))
    if rng.random() < large and topology.panels_per_domain > 1:
        gpus = topology.panel_gpus * rng.randint(2, topology.panels_per_domain)
    return Job(f"j{number}", rng.choice((1, 1, 1, 2)), gpus)


# ---- the guarantee


@pytest.mark.parametrize("name", PRESETS)
def test_hierarchical_jit_head_waits_only_if_no_packing_of_all_levels_exists(name: str) -> None:
    topology, rng = PRESETS[name], random.Random(name)
    domains = 2 if topology.panels_per_domain > 18 else 5
    scheduler = of_domains(topology, domains)
    shadow = DomainState(domains * topology.panels_per_domain, topology)
    running: list[str] = []
    head, planned = None, 0
    for event in range(260):
        head = head or random_job(rng, topology, event)
        expected = could_start(scheduler, head)
        decision = scheduler.admit(head, SITUATION)
        assert decision.admitted == expected, (head, decision.reason)
        if decision.admitted:
            planned += bool(decision.before)
            running.append(head.id)
            head = None
        else:
            assert decision.reason is not None
            assert decision.reason.verdict is Verdict.CAPACITY
            decision = scheduler.finish(running.pop(rng.randrange(len(running))), SITUATION)
        shadow.apply(decision)
        assert {k: g.nodes for k, g in shadow.gangs.items()} == {k: g.nodes for k, g in scheduler.state.gangs.items()}
        check(scheduler)
        if event % 60 == 59:
            restored = of_domains(topology, domains)
            gangs = scheduler.state.gangs
            restored.restore([(scheduler.domains.job(job_id), gang.nodes) for job_id, gang in gangs.items()])
            scheduler = restored
    assert planned >= 2


def test_hierarchical_jit_on_flat_domains_of_72_finds_packings_of_awkward_instances() -> None:
    """The search alone refuses sixteen times although a packing exists."""
    topology, rng = PRESETS["nvl576"], random.Random(4)
    scheduler = of_domains(topology, 4)
    running: list[str] = []
    planned = 0
    for event in range(200):
        job = Job(f"j{event}", rng.choice((1, 1, 2)), 8 * rng.choice((5, 7, 11, 13, 17, 19, 23, 29)))
        expected = could_start(scheduler, job)
        decision = scheduler.admit(job, SITUATION)
        assert decision.admitted == expected, (job, decision.reason)
        planned += bool(decision.before)
        if decision.admitted:
            running.append(job.id)
        else:
            scheduler.finish(running.pop(rng.randrange(len(running))), SITUATION)
    check(scheduler)
    assert planned >= 20


@pytest.mark.parametrize(
    ("topology", "domains"),
    [
        (shape(2, 2), 2),
        (shape(1, 3), 2),
        (shape(1, 4), 2),
        (shape(1, 2, 2), 2),
        pytest.param(shape(2, 3), 2, marks=pytest.mark.slow),
        pytest.param(shape(4, 2), 2, marks=pytest.mark.slow),
        pytest.param(shape(2, 4), 2, marks=pytest.mark.slow),
    ],
)
def test_hierarchical_jit_in_every_reachable_state_of_small_shapes_admits_whatever_can_be_packed(
    topology: Topology, domains: int
) -> None:
    planned = 0
    for scheduler, decision in explore_domains(lambda: of_domains(topology, domains), topology):
        assert isinstance(scheduler, HierarchicalJit)
        check(scheduler)
        planned += bool(decision.before)
        if decision.reason is not None:
            assert decision.job is not None
            assert not could_start(scheduler, decision.job), (scheduler.state.gangs, decision.job)
    assert planned >= 3


# ---- the fewest moves

Items = list[tuple[int, tuple[int, ...]]]


def homes(topology: Topology, panels: int, gpus: int) -> list[tuple[int, ...]]:
    """Every set of panels that an instance can be on; larger than a panel: of one domain."""
    if gpus <= topology.panel_gpus:
        return [(panel,) for panel in range(panels)]
    size = topology.levels[0].usable
    each = topology.panels_of(gpus)
    return [own for first in range(0, panels, size) for own in combinations(range(first, first + size), each)]


def fewest_moves(topology: Topology, panels: int, items: Items, gpus: int) -> int | None:
    """Instances, or pieces of them, that have to change panels for one more instance to fit: by trying everything."""
    best = None
    for chosen in product(*(homes(topology, panels, size) for size, _ in items)):
        free = [topology.panel_gpus] * panels
        moves = 0
        for (size, old), new in zip(items, chosen, strict=True):
            moves += len(set(new) - set(old))
            for panel in new:
                free[panel] -= min(size, topology.panel_gpus)
        if min(free) < 0 or (best is not None and moves >= best):
            continue
        needs = min(gpus, topology.panel_gpus)
        if any(all(free[panel] >= needs for panel in own) for own in homes(topology, panels, gpus)):
            best = moves
    return best


@pytest.mark.parametrize(
    ("gpus", "panels", "domains", "seed"), [(2, 2, 2, 0), (2, 3, 2, 1), (4, 2, 2, 2), (3, 2, 3, 3)]
)
def test_plan_for_domains_exists_when_trying_everything_finds_one_and_is_near_the_fewest_moves(
    gpus: int, panels: int, domains: int, seed: int
) -> None:
    topology, rng = shape(gpus, panels), random.Random(seed)
    count = panels * domains
    planned = least = compared = 0
    for _ in range(150):
        state, items = DomainState(count, topology), Items()
        for number in range(rng.randint(2, 5)):
            size = rng.choice((1, rng.randint(1, gpus), gpus * rng.randint(1, panels)))
            free = [
                own for own in homes(topology, count, size) if all(state.nodes[p].free >= min(size, gpus) for p in own)
            ]
            if free:
                own = rng.choice(free)
                state.place(Job(f"j{number}", 1, size), own)
                items.append((size, own))
        wanted = Job("new", 1, rng.choice((rng.randint(1, gpus), gpus * panels, gpus * rng.randint(1, panels))))
        if state.room(wanted.gpus):
            continue
        found, best = plan_domains(state, wanted, FewestMoves()), fewest_moves(topology, count, items, wanted.gpus)
        assert isinstance(found, Impossible) == (best is None), (items, wanted)
        if isinstance(found, Plan) and best is not None:
            decision = Decision(wanted, found.nodes, before=found.moves)
            state.apply(decision)
            assert found.bound <= best <= found.cost
            assert not found.proven or found.cost == best
            planned, least, compared = planned + len(found.moves), least + best, compared + 1
    assert compared >= 5
    assert planned <= 1.03 * least


# ---- one level, examples, knobs


@pytest.mark.parametrize("seed", range(3))
def test_hierarchical_jit_of_single_panels_decides_as_compass_jit_event_for_event(seed: int) -> None:
    from compass_abs.model import ClusterState

    rng = random.Random(seed)
    flat, tiers = CompassJit(ClusterState(7)), of_domains(PRESETS["hgx"], 7)
    running: list[str] = []
    planned = 0
    for event in range(500):
        if running and rng.random() < 0.47:
            job_id = running.pop(rng.randrange(len(running)))
            assert tiers.finish(job_id, SITUATION) == flat.finish(job_id, SITUATION)
            continue
        job = Job(f"j{event}", rng.choice((1, 1, 2, 3)), rng.randint(1, 8), movable=rng.random() < 0.97)
        expected, found = flat.admit(job, SITUATION), tiers.admit(job, SITUATION)
        assert (found.nodes, found.before) == (expected.nodes, expected.before)
        assert (found.reason and found.reason.verdict) == (expected.reason and expected.reason.verdict)
        if found.admitted:
            running.append(job.id)
            planned += bool(found.before)
    assert planned >= 3


def test_hierarchical_jit_makes_an_empty_rack_when_a_rack_sized_gang_waits() -> None:
    """Two racks of 9 panels, one GPU used on every panel: nine moves into the other rack's panels, not more."""
    scheduler = of_domains(PRESETS["nvl72-paper"], 2)
    state = scheduler.state
    state.restore((Job(f"small{panel}", 1, 1), [panel]) for panel in range(18))
    scheduler.rebuild()
    decision = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert decision.admitted
    assert len(decision.before) == 9
    assert {panel // 9 for panel in decision.nodes} == {0}
    check(scheduler)


def test_hierarchical_jit_makes_an_empty_rack_of_a_row_when_a_gang_of_racks_waits() -> None:
    """Two rows of 8 racks, all but one in each row in use by a single small job: a gang of two racks needs one more."""
    topology = PRESETS["nvl576-tiered"]
    scheduler = of_domains(topology, 2)
    scheduler.state.restore((Job(f"small{rack}", 1, 4), [rack * 9]) for rack in range(16) if rack % 8)
    scheduler.rebuild()
    decision = scheduler.admit(Job("two racks", 1, 144), SITUATION)
    assert decision.admitted
    assert len(decision.before) == 1
    check(scheduler)


def test_hierarchical_jit_packs_panels_first_where_free_gpus_make_no_free_panels() -> None:
    """Every panel holds 4 of 8 GPUs. Nothing can move to a free panel, but two halves make a whole."""
    scheduler = of_domains(PRESETS["nvl72-paper"], 3)
    scheduler.state.restore((Job(f"half{panel:02}", 1, 4), [panel]) for panel in range(27))
    scheduler.rebuild()
    decision = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert decision.admitted
    assert len(decision.before) == 9
    check(scheduler)


def test_hierarchical_jit_leaves_pinned_jobs_and_says_so() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 2)
    for rack in range(2):
        scheduler.state.place(Job(f"pinned{rack}", 1, 1, movable=False), [rack * 9])
    scheduler.rebuild()
    decision = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert decision.reason is not None
    assert decision.reason.verdict is Verdict.POLICY
    assert "pinned: a packing exists, but not around 2 jobs that may not move" in decision.reason.detail


def test_hierarchical_jit_with_an_exhausted_budget_waits_and_says_so() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 2, moves_per_hour=8)
    scheduler.state.restore((Job(f"small{panel}", 1, 1), [panel]) for panel in range(18))
    scheduler.rebuild()
    decision = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert decision.reason is not None
    assert decision.reason.verdict is Verdict.POLICY
    assert "9 moves needed, 0 of 8 moves an hour made" in decision.reason.detail


def test_hierarchical_jit_uses_no_panel_that_is_not_up() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 2)
    scheduler.set_status(scheduler.state.nodes[3].name, NodeStatus.CORDONED, SITUATION)
    scheduler.state.place(Job("small", 1, 1), [12])
    scheduler.rebuild()
    first = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert [(move.source, move.target // 9) for move in first.before] == [(12, 0)]
    assert set(first.nodes) == set(range(9, 18))
    scheduler.finish("small", SITUATION)
    second = scheduler.admit(Job("another", 1, 64), SITUATION)
    assert second.admitted
    assert {panel // 9 for panel in second.nodes} == {0}
    scheduler.finish("another", SITUATION)
    third = scheduler.admit(Job("third", 1, 72), SITUATION)
    assert third.reason is not None
    assert third.reason.verdict is Verdict.CAPACITY
    check(scheduler)


@pytest.mark.parametrize("seed", range(3))
def test_hierarchical_jit_lives_with_panels_that_come_and_go_plans_around_them(seed: int) -> None:
    rng, topology = random.Random(seed), PRESETS["nvl72-paper"]
    scheduler = of_domains(topology, 4)
    running: list[str] = []
    planned = 0
    for event in range(200):
        away = {node.index for node in scheduler.state.nodes if node.status is not NodeStatus.UP}
        chance = rng.random()
        if chance < 0.08:
            index = rng.choice(sorted(away)) if away and rng.random() < 0.6 else rng.randrange(36)
            status = NodeStatus.UP if index in away else rng.choice(tuple(NodeStatus))
            scheduler.set_status(scheduler.state.nodes[index].name, status, SITUATION)
            running = [job_id for job_id in running if job_id in scheduler.state.gangs]
        elif running and chance < 0.45:
            scheduler.finish(running.pop(rng.randrange(len(running))), SITUATION)
        else:
            job = random_job(rng, topology, event, 0.4)
            decision = scheduler.admit(job, SITUATION)
            planned += bool(decision.before)
            running += [job.id] if decision.admitted else []
            assert away.isdisjoint(decision.nodes)
            assert not any(move.target in away for move in decision.migrations)
        check(scheduler)
    assert planned >= 1


def test_hierarchical_jit_says_which_panels_that_are_not_up_keep_a_rack_from_being_whole() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 2)
    for panel in (3, 12):
        scheduler.set_status(scheduler.state.nodes[panel].name, NodeStatus.CORDONED, SITUATION)
    decision = scheduler.admit(Job("rack", 1, 72), SITUATION)
    assert decision.reason is not None
    assert "not around 2 panels that are not up" in decision.reason.detail


def test_hierarchical_jit_without_a_topology_says_what_to_do() -> None:
    from compass_abs.model import ClusterState

    with pytest.raises(CompassError, match="--topology"):
        HierarchicalJit(ClusterState(4))


def test_hierarchical_schedulers_take_jobs_of_any_name() -> None:
    """Members stand as jobs beside those of users, on a state of their own."""
    for name in ("hierarchical", "hierarchical-jit"):
        scheduler = make_scheduler(name, DomainState(18, PRESETS["nvl72-paper"]))
        for job_id, gpus in (("unit 1", 24), ("small", 1), ("unit 2", 16), ("unit 3", 2)):
            assert scheduler.admit(Job(job_id, 1, gpus), SITUATION).admitted
        scheduler.check_invariants()
