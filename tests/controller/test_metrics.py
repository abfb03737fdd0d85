"""Metrics and the Grafana dashboard name the same things."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.controller.running import service

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "compass.json"


def test_grafana_asks_only_for_metrics_that_exist(tmp_path: Path) -> None:
    from compass_abs.controller.metrics import Metrics

    with service(tmp_path) as running:
        text = running.ask(Metrics().render).decode()
    families = list(text_string_to_metric_families(text))
    known = {family.name for family in families} | {family.name + "_total" for family in families}
    known |= {family.name + "_bucket" for family in families}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"compass_\w+", target["expr"])
    }
    assert asked
    assert asked <= known


def test_metrics_follow_the_cluster(tmp_path: Path) -> None:
    from compass_abs.controller.metrics import Metrics

    with service(tmp_path, nodes=3) as running:
        text = running.ask(Metrics().render).decode()
    assert 'compass_gpus{pool="default",state="free"} 24.0' in text
    assert 'compass_usable_slots{gpus="8",pool="default"} 3.0' in text
    assert 'compass_nodes{health="ready"} 3.0' in text
