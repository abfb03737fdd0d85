"""Pools are chosen once for pods that are alike, and anew when nodes have changed."""

from typing import Any

import pytest

from compass_abs.audit.kubernetes_rules import Place
from compass_abs.engines.kubernetes import job_files, names
from compass_abs.engines.kubernetes.job_files import PoolChoice
from compass_abs.engines.kubernetes.nodes import GpuNode
from compass_abs.engines.kubernetes.requests import Amounts
from compass_abs.engines.protocol import EngineRefusalError, NodeHealth


def node(name: str, pool: str, **labels: str) -> GpuNode:
    return GpuNode(name, 8, pool, NodeHealth.READY, "", Place(name, labels, ()), "", Amounts(64.0, 1e12, 100.0))


def pod(name: str, cpu: str = "1", pool: str = "", **selector: str) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    marks = {names.POOL: pool} if pool else {}
    return {
        "metadata": {"namespace": "default", "name": name, "annotations": marks},
        "spec": {"containers": [container], "nodeSelector": selector},
    }


class Cluster:
    def __init__(self, *nodes: GpuNode) -> None:
        self.nodes, self.changes, self.looked = list(nodes), 0, 0

    def pools(self) -> dict[str, list[GpuNode]]:
        self.looked += 1
        found: dict[str, list[GpuNode]] = {}
        for each in self.nodes:
            found.setdefault(each.pool, []).append(each)
        return found

    def choice(self) -> PoolChoice:
        return PoolChoice(self.pools, lambda: self.changes)


def test_pods_that_are_alike_are_chosen_for_once() -> None:
    cluster = Cluster(node("a", "large"), node("b", "large"), node("c", "small"))
    choice = cluster.choice()
    assert [choice.of([pod(f"p{number}")]) for number in range(100)] == ["large"] * 100
    assert cluster.looked == 1


def test_pods_that_differ_in_anything_that_counts_are_chosen_for_each() -> None:
    cluster = Cluster(node("a", "large", kind="x"), node("b", "large", kind="x"), node("c", "small", kind="y"))
    choice = cluster.choice()
    assert choice.of([pod("plain")]) == "large"
    assert choice.of([pod("selecting", kind="y")]) == "small"
    assert choice.of([pod("marked", pool="small")]) == "small"
    with pytest.raises(EngineRefusalError, match="65 CPUs are asked for"):
        choice.of([pod("greedy", cpu="65")])


def test_changed_nodes_are_chosen_from_anew() -> None:
    cluster = Cluster(node("a", "large"), node("b", "large"), node("c", "small"))
    choice = cluster.choice()
    assert choice.of([pod("before")]) == "large"
    cluster.nodes = [node("c", "small")]
    cluster.changes += 1
    assert choice.of([pod("after")]) == "small"


def test_kinds_that_never_come_again_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "_MOST_KINDS", 10)
    choice = Cluster(node("a", "large")).choice()
    for number in range(100):
        choice.of([pod("odd", cpu=f"{number}m")])
    assert len(choice._chosen) <= 12
