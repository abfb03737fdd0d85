"""The hierarchical scheduler: one level is the flat one, bounds on every level, where the appendix's claims fail."""

import random

import pytest

from compass_abs.fragmentation.levels import LevelMeasure, measure_levels
from compass_abs.model import ClusterState, Decision, Job, NodeStatus
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.compass_residual import CompassAbsResidual
from compass_abs.schedulers.hierarchical import HierarchicalCompass
from compass_abs.schedulers.hierarchical_tiers import Fillers
from compass_abs.topology import PRESETS, DomainState, Level, Topology
from tests.schedulers.reachable_domains import explore_domains

SITUATION = Situation()


def of_domains(topology: Topology, domains: int, fillers: Fillers = Fillers.MEMBERS) -> HierarchicalCompass:
    return HierarchicalCompass(DomainState(domains * topology.panels_per_domain, topology), fillers=fillers)


def admit(scheduler: HierarchicalCompass, job_id: str, instances: int, gpus: int) -> Decision:
    decision = scheduler.admit(Job(job_id, instances, gpus), SITUATION)
    assert decision.admitted, decision.reason
    return decision


def random_size(rng: random.Random, topology: Topology, large: float) -> int:
    if rng.random() < large and topology.panels_per_domain > 1:
        return min(topology.panel_gpus * rng.randint(2, topology.panels_per_domain), topology.largest_instance)
    return 1 if rng.random() < 0.5 else rng.randint(1, topology.panel_gpus)


def check_bounds(levels: tuple[LevelMeasure, ...]) -> None:
    """The bounds that are kept: two partial panels, and one partial domain on every level above."""
    panels, *domains = levels
    if panels.margin >= 0:
        assert panels.avoidable <= 2, panels
    for level in domains:
        if level.margin >= 0:
            assert level.partial <= 1, level
            assert level.avoidable == 0, level
            assert sum(region.open_regions for region in level.regions) <= 1, level


# ---- one level is the flat scheduler


@pytest.mark.parametrize("seed", range(4))
def test_hierarchical_of_single_panels_decides_as_the_flat_scheduler_event_for_event(seed: int) -> None:
    rng, nodes = random.Random(seed), 7
    names = PRESETS["hgx"].panel_names(nodes)
    flat, tiers = CompassAbs(ClusterState(names)), of_domains(PRESETS["hgx"], nodes)
    running: list[str] = []
    moves = lost = 0
    for event in range(1500):
        if rng.random() < 0.06:
            away = [node.name for node in flat.state.nodes if node.status is not NodeStatus.UP]
            name = away[0] if away else rng.choice(names)
            status = NodeStatus.UP if away else rng.choice(tuple(NodeStatus))
            expected, found = flat.set_status(name, status, SITUATION), tiers.set_status(name, status, SITUATION)
            running = [job_id for job_id in running if job_id in flat.state.gangs]
            lost += len(expected.lost)
        elif running and rng.random() < 0.47:
            job_id = running.pop(rng.randrange(len(running)))
            expected, found = flat.finish(job_id, SITUATION), tiers.finish(job_id, SITUATION)
        else:
            job = Job(
                f"j{event}", rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 1, *range(1, 9))), movable=rng.random() < 0.97
            )
            expected, found = flat.admit(job, SITUATION), tiers.admit(job, SITUATION)
            if expected.admitted:
                running.append(job.id)
        assert found == expected
        moves += len(found.migrations)
    assert moves > 100
    assert lost >= 5


# ---- lives


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("movable", [1.0, 0.85])
def test_hierarchical_random_lives_keep_invariants_bounds_and_decisions(name: str, movable: float) -> None:
    topology = PRESETS[name]
    rng = random.Random(name)
    domains = 2 if topology.panels_per_domain > 18 else 4
    scheduler = of_domains(topology, domains)
    shadow = DomainState(domains * topology.panels_per_domain, topology)
    running: list[str] = []
    held = 0
    for event in range(250):
        if running and rng.random() < 0.46:
            decision = scheduler.finish(running.pop(rng.randrange(len(running))), SITUATION)
        else:
            gpus = random_size(rng, topology, 0.25)
            job = Job(f"j{event}", rng.choice((1, 1, 2, 5)), gpus, movable=rng.random() < movable)
            decision = scheduler.admit(job, SITUATION)
            if decision.admitted:
                running.append(job.id)
        if decision.reason is None:
            shadow.apply(decision)
        state = scheduler.state
        assert isinstance(state, DomainState)
        scheduler.check_invariants()
        assert {k: g.nodes for k, g in shadow.gangs.items()} == {k: g.nodes for k, g in state.gangs.items()}
        if movable == 1.0:
            levels = measure_levels(state)
            check_bounds(levels)
            held += levels[-1].margin >= 0
        if event % 40 == 39:
            # A scheduler restored from who is where goes on as the one that made it.
            restored = of_domains(topology, domains)
            restored.restore([(state.job(job_id), gang.nodes) for job_id, gang in state.gangs.items()])
            scheduler = restored
    assert movable < 1.0 or held > 50


@pytest.mark.parametrize("name", ["dgx2", "nvl72-paper", "nvl72-16", "nvl576-tiered"])
def test_hierarchical_lives_with_panels_that_come_and_go_keep_invariants_and_use_none_that_is_not_up(name: str) -> None:
    topology = PRESETS[name]
    rng = random.Random(name)
    scheduler = of_domains(topology, 2 if topology.panels_per_domain > 18 else 4)
    state = scheduler.state
    running: list[str] = []
    ended_on_panels_away = 0
    for event in range(500):
        away = {node.index for node in state.nodes if node.status is not NodeStatus.UP}
        chance = rng.random()
        if chance < 0.12:
            index = rng.choice(sorted(away)) if away and rng.random() < 0.4 else rng.randrange(len(state.nodes))
            status = NodeStatus.UP if index in away else rng.choice(tuple(NodeStatus))
            scheduler.set_status(state.nodes[index].name, status, SITUATION)
            running = [job_id for job_id in running if job_id in state.gangs]
        elif running and chance < 0.5:
            job_id = running.pop(rng.randrange(len(running)))
            assert isinstance(state, DomainState)
            ended_on_panels_away += job_id in state.whole and not away.isdisjoint(state.gangs[job_id].nodes)
            scheduler.finish(job_id, SITUATION)
        else:
            decision = scheduler.admit(
                Job(f"j{event}", rng.choice((1, 1, 2)), random_size(rng, topology, 0.4)), SITUATION
            )
            if decision.admitted:
                running.append(f"j{event}")
                assert away.isdisjoint(decision.nodes)
            assert not any(move.target in away for move in decision.migrations)
        scheduler.check_invariants()
    assert ended_on_panels_away > 0


def test_hierarchical_large_instance_that_ends_on_a_draining_panel_leaves_it_to_nobody() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 1)
    wide = admit(scheduler, "wide", 1, 24)
    name = scheduler.state.nodes[wide.nodes[1]].name
    scheduler.set_status(name, NodeStatus.DRAINING, SITUATION)
    scheduler.finish("wide", SITUATION)
    scheduler.check_invariants()
    assert scheduler.admit(Job("rack", 1, 72), SITUATION).reason is not None
    less = admit(scheduler, "less", 1, 64)
    assert wide.nodes[1] not in less.nodes


@pytest.mark.parametrize("seed", range(3))
def test_hierarchical_restored_scheduler_decides_as_the_one_it_replaces(seed: int) -> None:
    rng, topology = random.Random(seed), PRESETS["nvl576-tiered"]
    one, other = of_domains(topology, 2), of_domains(topology, 2)
    running: list[str] = []
    for event in range(150):
        if running and rng.random() < 0.45:
            job_id = running.pop(rng.randrange(len(running)))
            assert one.finish(job_id, SITUATION) == other.finish(job_id, SITUATION)
        else:
            job = Job(f"j{event}", 1, random_size(rng, topology, 0.3))
            decision = one.admit(job, SITUATION)
            assert other.admit(job, SITUATION) == decision
            running += [job.id] if decision.admitted else []
        state = one.state
        assert isinstance(state, DomainState)
        other = of_domains(topology, 2)
        other.restore([(state.job(job_id), list(gang.nodes)) for job_id, gang in state.gangs.items()])


def test_hierarchical_undo_of_a_large_gang_and_of_its_end_restores_the_state() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 3)
    for k in range(4):
        admit(scheduler, f"a{k}", 1, 24)
    before = {k: list(g.nodes) for k, g in scheduler.state.gangs.items()}
    scheduler.undo(admit(scheduler, "b", 1, 40))
    scheduler.check_invariants()
    scheduler.undo(scheduler.finish("a1", SITUATION))
    scheduler.check_invariants()
    assert {k: list(g.nodes) for k, g in scheduler.state.gangs.items()} == before


def test_hierarchical_lost_panel_takes_its_gang_and_is_not_used_again() -> None:
    scheduler = of_domains(PRESETS["nvl72-paper"], 2)
    wide = admit(scheduler, "wide", 1, 72)
    name = scheduler.state.nodes[wide.nodes[4]].name
    decision = scheduler.set_status(name, NodeStatus.LOST, SITUATION)
    assert [(job.id, job.gpus) for job in decision.lost] == [("wide", 72)]
    scheduler.check_invariants()
    assert scheduler.admit(Job("again", 2, 72), SITUATION).reason is not None
    admit(scheduler, "one", 1, 72)
    admit(scheduler, "less", 1, 64)
    scheduler.add_node(name, SITUATION)
    admit(scheduler, "small", 1, 8)
    scheduler.check_invariants()


def test_hierarchical_refuses_what_fits_no_domain_as_a_mistake() -> None:
    scheduler = of_domains(PRESETS["nvl72-16"], 2)
    admit(scheduler, "whole", 2, 64)
    with pytest.raises(Exception, match="largest domain of topology 'nvl72-16' has 64"):
        scheduler.admit(Job("more", 1, 65), SITUATION)


# ---- every reachable state of small shapes


def explore_to_the_end(gpus: int, levels: tuple[int, ...], domains: int, most_instances: int = 1) -> None:
    topology = Topology("small", gpus, tuple(Level(f"level {k}", size, size) for k, size in enumerate(levels)))
    held = 0
    for scheduler, decision in explore_domains(lambda: of_domains(topology, domains), topology, most_instances):
        scheduler.check_invariants()
        if decision.reason is not None:
            assert not decision.migrations
            continue
        found = measure_levels(scheduler.state)
        check_bounds(found)
        held += found[1].margin >= 0
    assert held > 50


@pytest.mark.parametrize(
    ("gpus", "levels", "domains"),
    [
        (1, (2,), 3),
        (2, (2,), 3),
        (1, (3,), 3),
        (2, (3,), 1),
        (1, (4,), 2),
        (2, (1,), 3),
        (4, (2,), 1),
        (2, (4,), 1),
        (1, (2, 2), 2),
        (2, (2, 2), 1),
    ],
)
def test_hierarchical_every_reachable_state_of_small_shapes_keeps_the_bounds(
    gpus: int, levels: tuple[int, ...], domains: int
) -> None:
    explore_to_the_end(gpus, levels, domains, most_instances=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "levels", "domains"),
    [
        (2, (3,), 2),
        (2, (3,), 3),
        (1, (4,), 4),
        (2, (4,), 2),
        (4, (2,), 2),
        (4, (3,), 1),
        (4, (4,), 1),
        (8, (2,), 1),
        (2, (2, 2), 2),
        (1, (3, 2), 2),
    ],
)
def test_hierarchical_every_reachable_state_of_larger_shapes_keeps_the_bounds(
    gpus: int, levels: tuple[int, ...], domains: int
) -> None:
    explore_to_the_end(gpus, levels, domains)


# ---- capacities that are no power of two


@pytest.mark.parametrize("capacity", [3, 5, 6, 7, 9, 11, 18, 72])
def test_a_level_of_any_capacity_under_its_condition_leaves_one_partial_node(capacity: int) -> None:
    from compass_abs.fragmentation.arc_flow import filling_margin

    rng = random.Random(capacity)
    scheduler = CompassAbsResidual(ClusterState(7, capacity))
    running: list[str] = []
    held = 0
    for event in range(1200):
        if running and rng.random() < 0.47:
            scheduler.finish(running.pop(rng.randrange(len(running))), SITUATION)
        else:
            small = rng.random() < 0.55
            job = Job(f"j{event}", rng.randint(1, capacity) if small else 1, 1 if small else rng.randint(2, capacity))
            if scheduler.admit(job, SITUATION).admitted:
                running.append(job.id)
        if filling_margin(scheduler.state.demand, capacity) >= 0:
            held += 1
            assert scheduler.state.partial_nodes <= 1, scheduler.state.nodes
    assert held > 200


def test_the_condition_of_the_paper_alone_is_not_enough_for_nine_panels() -> None:
    """3 × (5 + 4) fill three racks of 9, but slots are 8 wide: each rack of slots has a panel that nothing fills."""
    scheduler = of_domains(PRESETS["nvl72-paper"], 16)
    for k in range(8):
        admit(scheduler, f"five{k}", 1, 40)
        admit(scheduler, f"four{k}", 1, 32)
    admit(scheduler, "fillers", 24, 8)
    assert isinstance(scheduler.state, DomainState)
    racks = measure_levels(scheduler.state)[1]
    assert racks.demand[1] >= 3 * racks.demand[5]
    assert racks.margin < 0
    assert racks.avoidable > 2


# ---- where the appendix's claims fail


def scattered(fillers: Fillers, domains: int) -> LevelMeasure:
    """Every panel full of two 4-GPU instances; then all but one panel of each domain empties. No multi-panel job."""
    topology = Topology("four", 8, (Level("domain", 4, 4),))
    scheduler = of_domains(topology, domains, fillers)
    for k in range(8 * domains):
        admit(scheduler, f"j{k:03}", 1, 4)
    assert isinstance(scheduler.state, DomainState)
    # Whole panels end, so that the GPU level has nothing to compact.
    for domain in range(domains):
        for panel in range(4 * domain + 1, 4 * domain + 4):
            for instance in list(scheduler.state.nodes[panel].contents):
                decision = scheduler.finish(instance.job_id, SITUATION)
                if fillers is Fillers.WHOLE_INSTANCES:
                    # Between two ends of one panel the other 4 GPUs are the only partial panel: nothing to join.
                    assert not decision.migrations
    panels, racks = measure_levels(scheduler.state)
    assert panels.avoidable == 0
    assert panels.margin >= 0
    return racks


def test_appendix_with_whole_panel_fillers_alone_leaves_every_domain_partial_although_both_conditions_hold() -> None:
    for domains in (4, 8, 12):
        racks = scattered(Fillers.WHOLE_INSTANCES, domains)
        # The paper's panel condition: no 3, 5, 6 or 7 panels are asked for, so n8 ≥ 0 suffices.
        assert racks.margin >= 0
        assert racks.partial == domains
        assert racks.avoidable == domains


def test_panels_in_use_as_items_restore_the_bound_where_the_appendix_loses_it() -> None:
    """The same history; whichever jobs end, at most one domain stays partial."""
    topology = Topology("four", 8, (Level("domain", 4, 4),))
    scheduler = of_domains(topology, 8)
    for k in range(64):
        admit(scheduler, f"j{k:03}", 1, 4)
    rng = random.Random(0)
    for job_id in rng.sample(sorted(scheduler.state.gangs), 48):
        scheduler.finish(job_id, SITUATION)
        assert isinstance(scheduler.state, DomainState)
        check_bounds(measure_levels(scheduler.state))
    assert measure_levels(scheduler.state)[1].empty == 6


def test_levels_do_interfere_an_end_on_the_gpu_level_moves_panels_on_the_next() -> None:
    topology = Topology("four", 8, (Level("domain", 4, 4),))
    scheduler = of_domains(topology, 3)
    # Three panels of a domain are anchored; the vacancy of their slot holds a panel that small instances share.
    admit(scheduler, "small", 1, 4)
    admit(scheduler, "wide", 1, 24)
    state = scheduler.state
    assert isinstance(state, DomainState)
    assert {state.domain_of(panel) for panel in range(12) if state.nodes[panel].contents} == {
        state.domain_of(state.gangs["wide"].nodes[0])
    }
    admit(scheduler, "other", 1, 8)
    decision = scheduler.finish("small", SITUATION)
    # The panel is gone from the vacancy, and the panel level, which saw no event of its own, fills it.
    assert [move.instance.job_id for move in decision.after] == ["other"]
    assert measure_levels(state)[1].partial == 0
