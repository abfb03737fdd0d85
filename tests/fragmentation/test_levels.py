"""Exact fragmentation of any capacity, against packings counted out, and of levels of a topology."""

import random
from collections.abc import Iterator
from functools import cache

import pytest

from compass_abs.fragmentation.arc_flow import (
    filling_margin,
    first_fit_decreasing,
    inherent_at,
    minimum_used_at,
)
from compass_abs.fragmentation.levels import fits_repacked, measure_levels
from compass_abs.fragmentation.pattern_program import fewest_partial_count, fewest_used
from compass_abs.model import Job, NodeStatus
from compass_abs.topology import PRESETS, DomainState, Level, Topology


@cache
def by_enumeration(items: tuple[int, ...], capacity: int) -> tuple[int, int]:
    """(fewest partial, fewest used) over all packings, by taking out every content of the largest item's node."""
    if not items:
        return 0, 0
    first, rest = items[0], items[1:]
    best_partial = best_used = len(items)
    seen = set()
    for mask in range(1 << len(rest)):
        own = tuple(item for k, item in enumerate(rest) if mask >> k & 1)
        if own in seen or first + sum(own) > capacity:
            continue
        seen.add(own)
        partial, used = by_enumeration(tuple(i for k, i in enumerate(rest) if not mask >> k & 1), capacity)
        best_partial = min(best_partial, partial + (first + sum(own) < capacity))
        best_used = min(best_used, used + 1)
    return best_partial, best_used


def counts_of(items: list[int], capacity: int) -> list[int]:
    return [items.count(size) for size in range(capacity + 1)]


@pytest.mark.parametrize("capacity", [3, 5, 6, 7, 9, 18])
def test_exact_measures_of_any_capacity_agree_with_enumeration(capacity: int) -> None:
    rng = random.Random(capacity)
    for _ in range(60):
        items = sorted((rng.randint(1, capacity) for _ in range(rng.randint(1, 8))), reverse=True)
        counts = counts_of(items, capacity)
        partial, used = by_enumeration(tuple(items), capacity)
        assert (inherent_at(counts, capacity), minimum_used_at(counts, capacity)) == (partial, used), items
        assert first_fit_decreasing(counts, capacity) >= used
        if filling_margin(counts, capacity) >= 0:
            assert partial <= 1


@cache
def by_largest(counts: tuple[int, ...], capacity: int) -> tuple[int, int]:
    """The same as `by_enumeration`, of counts by size and for more items."""
    first = max((size for size, count in enumerate(counts) if count), default=0)
    if not first:
        return 0, 0
    left, found = list(counts), list[tuple[int, int]]()
    left[first] -= 1

    def fill(size: int, room: int) -> None:
        partial, used = by_largest(tuple(left), capacity)
        found.append((partial + (room > 0), used + 1))
        for next_size in range(min(size, room), 0, -1):
            if left[next_size]:
                left[next_size] -= 1
                fill(next_size, room - next_size)
                left[next_size] += 1

    fill(first, capacity - first)
    return min(partial for partial, _ in found), min(used for _, used in found)


def demands(capacity: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every multiset of sizes that adds up to at most this, as counts by size."""

    def extend(size: int, left: int, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if size == 0:
            yield (0, *counts)
            return
        for number in range(left // size + 1):
            yield from extend(size - 1, left - number * size, (number, *counts))

    return extend(capacity, most, ())


@pytest.mark.parametrize(("capacity", "most"), [(3, 18), (5, 16), (6, 14), (7, 15), (9, 13), (18, 10)])
def test_exact_measures_of_every_demand_of_uneven_nodes_agree_with_packing_them(capacity: int, most: int) -> None:
    held = 0
    for counts in demands(capacity, most):
        partial, used = by_largest(counts, capacity)
        assert (inherent_at(counts, capacity), minimum_used_at(counts, capacity)) == (partial, used), counts
        if filling_margin(counts, capacity) >= 0:
            held += 1
            assert partial == (sum(size * count for size, count in enumerate(counts)) % capacity > 0)
    assert held > 90


@pytest.mark.parametrize(("gpus", "levels"), [(4, (3,)), (2, (5,)), (8, (2,)), (2, (3, 2)), (1, (2, 2, 2))])
def test_levels_of_random_states_are_what_is_counted_out_panel_by_panel(gpus: int, levels: tuple[int, ...]) -> None:
    topology = Topology("small", gpus, tuple(Level(f"level {k}", size, size) for k, size in enumerate(levels)))
    for seed in range(40):
        rng = random.Random(seed)
        state = DomainState(3 * topology.panels_per_domain, topology)
        for number in range(12):
            size = rng.randint(1, gpus) if rng.random() < 0.6 else rng.randint(1, topology.largest_instance)
            home = some_home(rng, state, size)
            if home:
                state.place(Job(f"j{number}", 1, size), home)
        for found in measure_levels(state):
            demand, partial, empty = counted_out(state, found.level)
            assert (found.demand, found.partial, found.empty) == (demand, partial, empty), (seed, found)
            assert found.unavoidable == by_largest(demand, found.capacity)[0]
            assert found.avoidable >= 0
            assert found.sif == (partial - found.unavoidable) / found.nodes


def some_home(rng: random.Random, state: DomainState, gpus: int) -> list[int]:
    """Panels that an instance of this size may have now; none where there are none."""
    topology = state.topology
    if gpus <= topology.panel_gpus:
        fitting = [node.index for node in state.nodes if node.free >= gpus]
        return [rng.choice(fitting)] if fitting else []
    level, units = topology.demand(gpus)
    panels, each = topology.panels(level - 1), topology.panels(level - 1) // topology.levels[level - 1].usable
    first = rng.randrange(0, len(state.nodes), panels)
    members = [range(start, start + each) for start in range(first, first + panels, each)]
    free = [member for member in members if not any(state.nodes[panel].contents for panel in member)]
    return [panel for member in rng.sample(free, units) for panel in member] if len(free) >= units else []


def counted_out(state: DomainState, level: int) -> tuple[tuple[int, ...], int, int]:
    """Items by size, partial and empty nodes of a level: each member of a domain by who is on its panels."""
    topology = state.topology
    if level == 0:
        sizes = [gpus for node in state.nodes for gpus in node.contents.values()]
        free = [node.free for node in state.nodes]
        demand = tuple(sizes.count(size) for size in range(topology.panel_gpus + 1))
        return demand, sum(0 < f < topology.panel_gpus for f in free), free.count(topology.panel_gpus)
    capacity = topology.levels[level - 1].usable
    panels = topology.panels(level - 1)
    each = panels // capacity
    items, partial, empty = [0] * (capacity + 1), 0, 0
    for first in range(0, len(state.nodes), panels):
        owners = []
        for start in range(first, first + panels, each):
            ids = {instance.job_id for panel in range(start, start + each) for instance in state.nodes[panel].contents}
            large = [job_id for job_id in ids if topology.demand(state.job(job_id).gpus).level >= level]
            owners.append(large[0] if large else "shared" if ids else "")
        empty += not any(owners)
        partial += any(owners) and not all(owners)
        items[1] += owners.count("shared")
        for job_id in {owner for owner in owners if owner not in ("", "shared")}:
            # Every job has one instance here.
            items[owners.count(job_id)] += 1
    return tuple(items), partial, empty


@pytest.mark.parametrize("capacity", [12, 18])
def test_arc_flow_on_large_demands_agrees_with_patterns(capacity: int) -> None:
    # The pattern program pairs halves, so it knows even capacities only.
    rng = random.Random(capacity)
    for _ in range(8):
        counts = [0] + [rng.choice((0, 0, 0, rng.randint(0, 30))) for _ in range(capacity)]
        assert inherent_at(counts, capacity) == fewest_partial_count(counts, capacity), counts
        assert minimum_used_at(counts, capacity) == fewest_used(counts, capacity).used_nodes, counts


def test_exact_measures_of_many_small_instances_on_72_panels_need_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs of 2, 3, 5, 7 and 9 panels without enough fillers: each such demand took the solver up to minutes."""
    monkeypatch.setattr("compass_abs.fragmentation.arc_flow.solve", lambda program: pytest.fail("asked the solver"))
    rng = random.Random(0)
    for _ in range(200):
        counts = [0] * 73
        for size in (1, 2, 3, 5, 7, 9):
            counts[size] = rng.randint(1, 20)
        total = sum(size * count for size, count in enumerate(counts))
        assert inherent_at(counts, 72) == (total % 72 > 0)
        assert minimum_used_at(counts, 72) == -(-total // 72)


def test_exact_measures_of_72_panels_are_found() -> None:
    # 5 × 40 leave 32 each; two 16s fill one.
    counts = [0] * 73
    counts[40], counts[16], counts[30] = 5, 2, 1
    assert minimum_used_at(counts, 72) == 5
    assert inherent_at(counts, 72) == 4


def test_levels_of_a_rack_count_shared_panels_as_panels() -> None:
    state = DomainState(18, PRESETS["nvl72-paper"])
    state.place(Job("wide", 1, 24), [0, 1, 2])
    state.place(Job("small", 2, 1), [3, 9])
    panels, racks = measure_levels(state)
    assert (panels.partial, panels.unavoidable, panels.avoidable) == (2, 1, 1)
    assert racks.demand[3] == 1
    assert racks.demand[1] == 2
    assert (racks.partial, racks.unavoidable, racks.avoidable) == (2, 1, 1)
    assert [(r.domain, r.anchors, r.units, r.free) for r in racks.regions] == [(0, (3,), 1, 5), (1, (), 1, 8)]
    assert [racks.sif_of(region) for region in racks.regions] == [1 / 9, 1 / 9]


def test_levels_count_a_panel_that_is_not_up_as_one_in_use() -> None:
    state = DomainState(18, PRESETS["nvl72-paper"])
    state.place(Job("wide", 1, 64), list(range(8)))
    for panel in (8, 17):
        state.set_status(state.nodes[panel].name, NodeStatus.CORDONED)
    _, racks = measure_levels(state)
    assert (racks.demand[8], racks.demand[1]) == (1, 2)
    assert (racks.partial, racks.unavoidable, racks.empty) == (1, 1, 0)


def test_a_job_fits_repacked_exactly_when_a_packing_of_all_levels_exists() -> None:
    state = DomainState(8, PRESETS["dgx2"])
    for domain in range(3):
        state.place(Job(f"s{domain}", 1, 5), [2 * domain])
    # Three panels of one 5 each take two domains; two domains are left.
    assert fits_repacked(state, Job("two", 2, 16))
    assert not fits_repacked(state, Job("three", 3, 16))
    assert fits_repacked(state, Job("ones", 5 * 8 + 3 * 3, 1))
    assert not fits_repacked(state, Job("more", 5 * 8 + 3 * 3 + 1, 1))
