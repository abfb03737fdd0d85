"""Topologies as configuration: the presets, files, what an instance asks of a level, and mistakes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from compass_abs.model import Job, PlacementError
from compass_abs.topology import PRESETS, Demand, DomainState, Level, Topology, TopologyError, find_topology


@pytest.mark.parametrize(
    ("name", "panel", "sizes", "usable", "gpus"),
    [
        ("hgx", 8, (1,), (1,), 8),
        ("dgx2", 8, (2,), (2,), 16),
        ("nvl72-paper", 8, (9,), (9,), 72),
        ("nvl72", 4, (18,), (18,), 72),
        ("nvl72-16", 4, (18,), (16,), 64),
        ("nvl576", 8, (72,), (72,), 576),
        ("nvl576-tiered", 8, (9, 8), (9, 8), 576),
    ],
)
def test_topology_preset_is_the_system_it_is_named_after(
    name: str, panel: int, sizes: tuple[int, ...], usable: tuple[int, ...], gpus: int
) -> None:
    topology = find_topology(name)
    assert topology.panel_gpus == panel
    assert tuple(level.size for level in topology.levels) == sizes
    assert tuple(level.usable for level in topology.levels) == usable
    assert topology.largest_instance == gpus


def test_topology_presets_are_all_checked_above() -> None:
    assert set(PRESETS) == {"hgx", "dgx2", "nvl72-paper", "nvl72", "nvl72-16", "nvl576", "nvl576-tiered"}


@pytest.mark.parametrize(
    ("name", "gpus", "demand", "panels"),
    [
        ("nvl72-paper", 8, Demand(0, 8), None),
        ("nvl72-paper", 9, Demand(1, 2), 2),
        ("nvl72-paper", 72, Demand(1, 9), 9),
        ("nvl72-16", 5, Demand(1, 2), 2),
        ("nvl72-16", 64, Demand(1, 16), 16),
        ("nvl576-tiered", 72, Demand(1, 9), 9),
        ("nvl576-tiered", 73, Demand(2, 2), 18),
        ("nvl576-tiered", 576, Demand(2, 8), 72),
    ],
)
def test_topology_instance_lives_on_the_smallest_level_that_holds_it(
    name: str, gpus: int, demand: Demand, panels: int | None
) -> None:
    topology = PRESETS[name]
    assert topology.demand(gpus) == demand
    if panels is not None:
        assert topology.panels_of(gpus) == panels
        assert topology.pieces(Job("j", 2, gpus)) == Job("j", 2 * panels, topology.panel_gpus)


def test_topology_file_with_spares_and_a_second_level_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(
        "panel: {name: tray, gpus: 4}\nlevels:\n  - {name: rack, size: 18, usable: 16}\n  - {name: row, size: 4}\n"
    )
    assert find_topology(str(path)) == Topology("ours", 4, (Level("rack", 18, 16), Level("row", 4, 4)), "tray")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("levels: 3\npanel: {gpus: 8}\n", "levels is 3, expected a list"),
        ("panel: {gpus: 8}\nlevels: [{name: rack, size: 0}]\n", "size is 0, expected a whole number"),
        ("panel: {gpus: 8}\nlevels: [{name: rack, size: 4, usable: 5}]\n", "usable is 5, expected 1 to its size, 4"),
        ("panel: {gpus: 6}\nlevels: [{name: rack, size: 4}]\n", "gpus is 6, expected one of 1, 2, 4, 8, 16"),
        ("panel: {gpus: eight}\nlevels: [{name: rack, size: 4}]\n", "has 'eight' GPUs"),
        ("panel: {gpus: 8}\nlevels: [{name: rack, size: 4, spare: 1}]\n", "there is no 'spare'"),
        ("panel: {gpus: 8}\nlevels: [{size: 4}]\n", "a level has no name"),
        ("panel: {gpus: 8}\nlevels: [{name: panel, size: 4}]\n", "two levels are called 'panel'"),
        ("panel: [\n", "isn't YAML"),
        ("- 1\n", "expected a table"),
    ],
)
def test_topology_file_with_a_mistake_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError, match=message.replace("[", r"\[")):
        find_topology(str(path))


def test_topology_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(TopologyError, match="did you mean 'nvl72'"):
        find_topology("nvl7")


def test_topology_cluster_of_broken_domains_says_how_many_panels_are_whole() -> None:
    with pytest.raises(TopologyError, match="20 trays don't make whole racks of 16 each; take 32"):
        PRESETS["nvl72-16"].domains(20)


def test_topology_panels_are_named_after_where_they_are() -> None:
    assert PRESETS["nvl72-16"].panel_names(18)[17] == "rack1-tray1"
    assert PRESETS["nvl576-tiered"].panel_names(80)[79] == "row1-rack0-panel7"


@pytest.mark.parametrize(
    ("name", "panels", "words"),
    [
        ("hgx", 12, "12 servers of 8 GPUs"),
        ("nvl72-paper", 162, "18 racks of 9 panels of 8 GPUs"),
        ("nvl72-16", 16, "1 rack of 16 trays of 4 GPUs"),
        ("nvl576-tiered", 144, "2 rows of 8 racks of 9 panels of 8 GPUs"),
    ],
)
def test_topology_describes_a_cluster_level_by_level(name: str, panels: int, words: str) -> None:
    assert PRESETS[name].described(panels) == words


@pytest.mark.parametrize("name", PRESETS)
def test_topology_of_its_plain_values_is_the_same(name: str) -> None:
    assert Topology.of(json.loads(json.dumps(asdict(PRESETS[name])))) == PRESETS[name]


def test_domain_state_instance_across_two_domains_is_refused() -> None:
    state = DomainState(18, PRESETS["nvl72-paper"])
    with pytest.raises(PlacementError, match="more than one domain"):
        state.place(Job("wide", 1, 16), [8, 9])
