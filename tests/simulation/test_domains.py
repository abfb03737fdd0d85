"""Simulations on NVLink domains: traces, metrics of each level, the command line, and who may run there."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.model import ClusterState, Job
from compass_abs.simulation import Checks, LevelMeter, Setup, bound, replay
from compass_abs.simulation.setup import SetupError
from compass_abs.topology import PRESETS
from compass_abs.traces import cluster_size
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

PAPER = PRESETS["nvl72-paper"]
ON_DOMAINS = ("hierarchical", "hierarchical-jit", "hierarchical-best-fit", "tightest-rack", "hierarchical-spread")


def jobs_of_a_day(many: int = 250) -> list[Job]:
    return list(synthesize(workload("nvl72"), 1, 3).jobs[:many])


def setup(scheduler: str, jobs: list[Job]) -> Setup:
    racks = cluster_size(jobs, 0.85, PAPER.largest_instance)
    return Setup(scheduler, racks * PAPER.panels_per_domain, 8, topology=PAPER)


def test_synthetic_racks_have_instances_of_every_size_of_whole_panels() -> None:
    sizes = {job.gpus for job in synthesize(workload("nvl72"), 3, 0).jobs}
    assert {16, 24, 32, 40, 48, 56, 64, 72} <= sizes
    assert {1, 2, 4, 8} <= sizes


@pytest.mark.parametrize("scheduler", ON_DOMAINS)
def test_simulation_on_racks_finishes_every_job_with_every_invariant_kept(scheduler: str) -> None:
    jobs = jobs_of_a_day()
    summary = replay(jobs, setup(scheduler, jobs), checks=Checks.EVERY_EVENT)
    assert summary.finished == len(jobs)
    assert summary.ajct >= bound(jobs, setup(scheduler, jobs)).ajct - 1e-6


def test_simulation_on_racks_just_in_time_waits_least_and_moves_less_than_compaction_after_every_event() -> None:
    jobs = jobs_of_a_day(450)
    found = {name: replay(jobs, setup(name, jobs)) for name in ON_DOMAINS}
    least = bound(jobs, setup("hierarchical", jobs)).ajct
    assert found["hierarchical-jit"].ajct <= 1.001 * least
    assert found["hierarchical-jit"].blocked_avoidable == 0.0
    assert 0 < found["hierarchical-jit"].migrations < found["hierarchical"].migrations / 3
    assert found["tightest-rack"].ajct > 1.02 * least


def test_level_meter_of_a_compacted_run_sees_no_avoidable_rack_while_its_condition_holds() -> None:
    jobs, meters = jobs_of_a_day(), list[LevelMeter]()

    def watch(state: ClusterState) -> LevelMeter:
        meters.append(LevelMeter(state))
        return meters[0]

    setup("hierarchical", jobs).simulation(jobs, observe=watch).run()
    panels, racks = meters[0].summary()
    assert (panels.name, racks.name) == ("panel", "rack")
    assert panels.nodes == 9 * racks.nodes
    assert racks.condition == 1.0
    assert racks.max_n_sif == 0
    assert racks.sif == 0.0
    assert racks.max_domain_sif == pytest.approx(1 / 9)
    assert 0.5 < panels.condition < 1.0
    assert panels.max_n_sif <= 3
    assert 0 < racks.empty < racks.nodes


def test_simulation_on_racks_by_a_scheduler_of_flat_clusters_is_refused_with_those_that_can() -> None:
    jobs = [Job("j", 1, 16, duration=10.0)]
    with pytest.raises(SetupError, match=r"'compass-jit' knows no domains .* take one of .*hierarchical-jit"):
        replay(jobs, Setup("compass-jit", 18, 8, topology=PAPER))


def test_simulate_command_on_racks_of_a_file_prints_every_level(tmp_path: Path) -> None:
    trace, shape = tmp_path / "jobs.csv", tmp_path / "ours.yaml"
    trace.write_text("job_id,submitted,duration,instances,gpus\n1,0,60,1,16\n2,5,60,1,64\n3,9,60,2,3\n")
    shape.write_text("panel: {name: tray, gpus: 4}\nlevels: [{name: rack, size: 18, usable: 16}]\n")
    command = ["simulate", str(trace), "--topology", str(shape), "--scheduler", "hierarchical-jit"]
    shown = CliRunner().invoke(app, [*command, "--json"])
    assert shown.exit_code == 0, shown.output
    levels = json.loads(shown.stdout)["levels"]
    assert [(level["name"], level["capacity"]) for level in levels] == [("tray", 4), ("rack", 16)]
    table = CliRunner().invoke(app, command)
    assert "racks of 16 trays of 4 GPUs" in table.stdout
    assert "most N·SIF" in table.stdout


def test_compare_command_on_racks_prints_and_gives_every_level_of_every_scheduler(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    rows = "".join(f"{k},{7 * k},600,1,{gpus}\n" for k, gpus in enumerate((3, 16, 5, 72, 1, 24, 8, 64, 2, 40)))
    trace.write_text("job_id,submitted,duration,instances,gpus\n" + rows)
    command = ["compare", str(trace), "--topology", "nvl72-paper", "--nodes", "18", "-q"]
    usual = CliRunner().invoke(app, [*command, "--json"])
    assert set(json.loads(usual.stdout)["levels"]) == set(ON_DOMAINS)
    command += ["--schedulers", "hierarchical,tightest-rack"]
    shown = CliRunner().invoke(app, [*command, "--json"])
    assert shown.exit_code == 0, shown.output
    levels = json.loads(shown.stdout)["levels"]
    assert {name: [level["name"] for level in found] for name, found in levels.items()} == {
        "hierarchical": ["panel", "rack"],
        "tightest-rack": ["panel", "rack"],
    }
    alone = ["simulate", *command[1:6], "--scheduler", "tightest-rack", "--json"]
    assert json.loads(CliRunner().invoke(app, alone).stdout)["levels"] == levels["tightest-rack"]
    table = CliRunner().invoke(app, command)
    assert "2 racks of 9 panels of 8 GPUs" in table.stdout
    assert table.stdout.count("tightest-rack ") >= 3
    assert "\n18 panels" in table.stdout
    assert "\n2 racks" in table.stdout
    flat = CliRunner().invoke(app, ["compare", "demo", "--schedulers", "gfs", "--window", "0:7200", "-q", "--json"])
    assert "levels" not in json.loads(flat.stdout)
