"""What pods ask for beside GPUs, as Kubernetes counts it."""

from typing import Any

import pytest

from compass_abs.engines.kubernetes.requests import Amounts, capacity_of, quantity, requests_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("4", 4.0),
        (4, 4.0),
        ("1.5Gi", 1.5 * 2**30),
        ("128974848", 128974848.0),
        ("129e6", 129e6),
        ("129M", 129e6),
        ("128974848000m", 128974848.0),
        ("1E", 1e18),
        ("100k", 1e5),
        ("", 0.0),
        ("lots", 0.0),
        ("1..2", 0.0),
    ],
)
def test_quantity_is_read_as_kubernetes_writes_it(text: object, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def asked(**spec: Any) -> Amounts:
    return requests_of({"metadata": {"name": "p"}, "spec": spec})


def test_containers_add_up_and_a_limit_alone_is_a_request() -> None:
    both = [container({"cpu": "2"}, {"cpu": "8", "memory": "1Gi"}), container(limits={"cpu": "500m"})]
    assert asked(containers=both) == Amounts(2.5, 2.0**30, 1)
    assert asked(containers=both, overhead={"cpu": "250m"}) == Amounts(2.75, 2.0**30, 1)


def test_largest_init_container_counts_when_it_is_larger_and_sidecars_stay() -> None:
    main = [container({"cpu": "2"})]
    assert asked(containers=main, initContainers=[container({"cpu": "1"})]).cpus == 2
    assert asked(containers=main, initContainers=[container({"cpu": "5"})]).cpus == 5
    sidecar = container({"cpu": "1"}, restartPolicy="Always")
    assert asked(containers=main, initContainers=[sidecar, container({"cpu": "5"})]).cpus == 6
    assert asked(containers=main, initContainers=[container({"cpu": "1"}), sidecar]).cpus == 3


def test_shortage_names_what_is_missing() -> None:
    node = capacity_of({"cpu": "96", "memory": "1Ti", "pods": "2"})
    assert node.shortage(Amounts(96, 2.0**40, 2)) == ""
    assert node.shortage(Amounts(97)) == "97 CPUs are asked for, 96 are left"
    assert node.minus(Amounts(90)).shortage(Amounts(8)) == "8 CPUs are asked for, 6 are left"
    assert node.shortage(Amounts(1, 2.0**41)) == "2048 GiB are asked for, 1024 are left"
    assert "as many pods" in node.minus(Amounts(pods=2)).shortage(Amounts(pods=1))
    assert capacity_of({}).shortage(Amounts(1e9, 1e18, 1e6)) == "", "a node that says nothing has no limit"
