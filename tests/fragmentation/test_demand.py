"""Counts by size: what is refused, and the workload composition condition."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from compass_abs.fragmentation import (
    DemandError,
    inherent,
    inherent_heuristic,
    largest_gang_repacked,
    minimum_used,
    slot_width,
    wcc_holds,
    wcc_margin,
    witness,
)
from compass_abs.model import CompassError

MEASURES: tuple[Callable[[list[int], int], object], ...] = (inherent, minimum_used, witness, wcc_margin, wcc_holds)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("counts", "capacity", "named"),
    [
        ([0, 1, -2], 2, r"counts\[2\] is -2"),
        ([0, True, 0], 2, r"counts\[1\] is True"),
        ([0, 1.0, 0], 2, r"counts\[1\] is 1\.0"),
        ([0, 0, "3"], 2, r"counts\[2\] is '3'"),
        ([0, 0, None], 2, r"counts\[2\] is None"),
        ([3, 0, 0], 2, r"counts\[0\] is 3.*shifted"),
        ([0, 1], 2, "2 entries, expected 3"),
        ([0, 1, 2, 3], 2, "4 entries, expected 3"),
        ([], 8, "0 entries, expected 9"),
        ([0] * 4, 3, "capacity is 3"),
        ([0] * 9, "8", "capacity is '8'"),
        ([0] * 2, True, "capacity is True"),
        ([0] * 33, 32, "capacity is 32"),
    ],
)
def test_measure_of_bad_counts_names_the_value(
    measure: Callable[[object, object], object], counts: object, capacity: object, named: str
) -> None:
    with pytest.raises(DemandError, match=named) as caught:
        measure(counts, capacity)
    assert isinstance(caught.value, CompassError)


@pytest.mark.parametrize(
    ("nodes", "gpus", "named"),
    [(-1, 1, "nodes is -1"), (1.5, 1, "nodes is 1.5"), (4, 0, "gpus is 0"), (4, 9, "gpus is 9"), (4, True, "gpus is")],
)
def test_largest_gang_of_bad_numbers_names_the_value(nodes: int, gpus: int, named: str) -> None:
    with pytest.raises(DemandError, match=named):
        largest_gang_repacked([0] * 9, nodes, gpus)


def test_heuristic_of_bad_counts_names_the_value() -> None:
    with pytest.raises(DemandError, match="5 entries"):
        inherent_heuristic([0] * 5)


def test_slot_width_is_the_next_power_of_two() -> None:
    assert [slot_width(g) for g in range(1, 17)] == [1, 2, 4, 4, 8, 8, 8, 8, *[16] * 8]


@pytest.mark.parametrize("gpus", [0, -1, 1.0, "2"])
def test_slot_width_of_no_size_is_refused(gpus: int) -> None:
    with pytest.raises(DemandError, match="gpus is"):
        slot_width(gpus)


def test_margin_is_the_papers_sum() -> None:
    # n1 − (n3 + 3·n5 + 2·n6 + n7), as the paper has it.
    assert wcc_margin([0, 100, 7, 10, 7, 5, 4, 3, 9]) == 100 - (10 + 3 * 5 + 2 * 4 + 3)
    assert wcc_margin([0, 5, 1, 2, 3], 4) == 5 - 2
    assert wcc_margin([0, 0, *[1] * 15], 16) == -(1 + (3 + 2 + 1) + (7 + 6 + 5 + 4 + 3 + 2 + 1))


def test_condition_holds_from_margin_zero() -> None:
    assert wcc_holds([0, 1, 0, 1, 0, 0, 0, 0, 0])
    assert not wcc_holds([0, 1, 0, 2, 0, 0, 0, 0, 0])


def test_rooms_import_no_third_party_package() -> None:
    script = (
        "import sys, compass_abs.fragmentation, compass_abs.snapshots; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'highspy', 'numpy', 'rich', 'typer'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
