"""Exact fragmentation of any capacity, against packings counted out, and of levels of a topology."""

import random
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
from compass_abs.model import Job
from compass_abs.topology import PRESETS, DomainState


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


@pytest.mark.parametrize("capacity", [12, 18])
def test_arc_flow_on_large_demands_agrees_with_patterns(capacity: int) -> None:
    # The pattern program pairs halves, so it knows even capacities only.
    rng = random.Random(capacity)
    for _ in range(8):
        counts = [0] + [rng.choice((0, 0, 0, rng.randint(0, 30))) for _ in range(capacity)]
        assert inherent_at(counts, capacity) == fewest_partial_count(counts, capacity), counts
        assert minimum_used_at(counts, capacity) == fewest_used(counts, capacity).used_nodes, counts


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


def test_a_job_fits_repacked_exactly_when_a_packing_of_all_levels_exists() -> None:
    state = DomainState(8, PRESETS["dgx2"])
    for domain in range(3):
        state.place(Job(f"s{domain}", 1, 5), [2 * domain])
    # Three panels of one 5 each take two domains; two domains are left.
    assert fits_repacked(state, Job("two", 2, 16))
    assert not fits_repacked(state, Job("three", 3, 16))
    assert fits_repacked(state, Job("ones", 5 * 8 + 3 * 3, 1))
    assert not fits_repacked(state, Job("more", 5 * 8 + 3 * 3 + 1, 1))
