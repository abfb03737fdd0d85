"""Metrics and the Grafana dashboard name the same things."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from compass_abs.controller.book import JobPhase
from compass_abs.controller.job_spec import check_job
from compass_abs.controller.metrics import Metrics
from compass_abs.controller.migration import Phase
from compass_abs.controller.reconcile import Config, Controller
from compass_abs.model import NodeStatus
from tests.controller.running import service, wait_until

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "compass.json"
#: What dashboards and alerts of users are built on: changing one breaks them.
NAMES = {
    "compass_sif_ratio": {"pool"},
    "compass_partial_nodes": {"pool", "kind"},
    "compass_empty_nodes": {"pool"},
    "compass_usable_slots": {"pool", "gpus"},
    "compass_unusable_free_ratio": {"pool", "gpus"},
    "compass_wcc_margin": {"pool"},
    "compass_pending_jobs": {"reason"},
    "compass_migrations_total": {"class", "trigger", "outcome"},
    "compass_migration_seconds_bucket": {"phase", "le"},
    "compass_disrupted_gpu_seconds_total": set(),
    "compass_plan_seconds_bucket": {"le"},
    "compass_invariant_violations_total": set(),
    "compass_budget_exhausted_total": set(),
}


def test_grafana_asks_only_for_metrics_that_exist(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        text = running.ask(Metrics().render).decode()
    families = list(text_string_to_metric_families(text))
    known = {family.name for family in families} | {family.name + "_total" for family in families}
    known |= {family.name + "_bucket" for family in families}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"compass_\w+", target["expr"])
    }
    assert asked <= known
    assert {name for name in NAMES if name not in asked} == set(), "not shown to anybody"
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)


def test_metrics_have_the_names_and_labels_that_users_build_on(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        metrics = Metrics()
        running.subscribe(lambda event: metrics.on_event(event, running.controller.book))
        job = running.ask(lambda c: c.submit(check_job({"name": "a", "command": ["x"], "gpus_per_instance": 4})))
        wait_until(running, lambda c: c.entry(job).phase is JobPhase.RUNNING)
        running.ask(lambda c: c.set_node(c.entry(job).nodes[0], NodeStatus.DRAINING))
        wait_until(running, lambda c: bool(c.entry(job).past))
        text = running.ask(metrics.render).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: set(sample.labels) for sample in samples}
    assert {name: labels.get(name) for name in NAMES} == NAMES


def test_metrics_follow_the_cluster(tmp_path: Path) -> None:
    with service(tmp_path, nodes=3) as running:
        text = running.ask(Metrics().render).decode()
    assert 'compass_gpus{pool="default",state="free"} 24.0' in text
    assert 'compass_usable_slots{gpus="8",pool="default"} 3.0' in text
    assert 'compass_nodes{health="ready"} 3.0' in text


def test_migration_is_counted_with_its_trigger_and_the_time_of_each_phase(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        job = running.ask(lambda c: c.submit(check_job({"name": "a", "command": ["x"], "gpus_per_instance": 4})))
        wait_until(running, lambda c: c.entry(job).phase is JobPhase.RUNNING)
        # As after a restart of the controller: the job was there before anybody counted.
        metrics = Metrics()
        running.subscribe(lambda event: metrics.on_event(event, running.controller.book))
        running.ask(lambda c: c.set_node(c.entry(job).nodes[0], NodeStatus.DRAINING))
        wait_until(running, lambda c: bool(c.entry(job).past))
        text = running.ask(metrics.render).decode()
    assert 'compass_migrations_total{class="w4",outcome="done",trigger="drain"} 1.0' in text
    for phase in Phase:
        assert f'compass_migration_seconds_count{{phase="{phase}"}} 1.0' in text
    paused = re.search(r"^compass_disrupted_gpu_seconds_total (\S+)$", text, re.MULTILINE)
    assert paused is not None
    seconds = sum(
        float(value) for value in re.findall(r"^compass_migration_seconds_sum\{.*\} (\S+)$", text, re.MULTILINE)
    )
    assert float(paused[1]) == pytest.approx(4 * seconds)
    assert seconds > 0


def test_job_that_a_budget_keeps_waiting_is_counted_once(tmp_path: Path) -> None:
    # Two half-full nodes and no move allowed: a whole node could be had, and isn't.
    config = Config(scheduler="compass-jit", parameters={"moves_per_hour": 0})
    with service(tmp_path, config, nodes=2) as running:
        metrics = Metrics()
        for _ in range(3):
            running.ask(lambda c: c.submit(check_job({"name": "a", "command": ["x"], "gpus_per_instance": 4})))
        wait_until(running, lambda c: c.book.counts[JobPhase.RUNNING] == 3)
        running.ask(lambda c: c.cancel(full_node(c)))
        wait_until(running, lambda c: c.book.counts[JobPhase.CANCELLED] == 1)
        running.ask(lambda c: c.submit(check_job({"name": "b", "command": ["x"], "gpus_per_instance": 8})))
        for _ in range(2):
            text = running.ask(metrics.render).decode()
            assert "compass_budget_exhausted_total 1.0" in text, text
            assert 'compass_pending_jobs{reason="policy"} 1.0' in text


def test_every_waiting_job_is_counted_with_what_keeps_it(tmp_path: Path) -> None:
    with service(tmp_path, nodes=1) as running:
        for _ in range(4):
            running.ask(lambda c: c.submit(check_job({"name": "a", "command": ["x"], "gpus_per_instance": 8})))
        wait_until(running, lambda c: c.book.counts[JobPhase.RUNNING] == 1)
        text = running.ask(Metrics().render).decode()
    assert 'compass_pending_jobs{reason="capacity"} 1.0' in text
    assert 'compass_pending_jobs{reason="policy"} 2.0' in text


def full_node(c: Controller) -> str:
    """A job that shares its node."""
    nodes = [entry.nodes for entry in c.book.jobs.values()]
    return next(entry.id for entry in c.book.jobs.values() if nodes.count(entry.nodes) > 1)
