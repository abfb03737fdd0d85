"""What the engine makes of a Node object: its GPUs, its pool, whom it lets in, and whether it lives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compass_abs.audit.kubernetes import POOL_LABELS
from compass_abs.audit.kubernetes_rules import CONDITION_TAINTS, Place, taints_of
from compass_abs.audit.values import whole
from compass_abs.engines.kubernetes import names
from compass_abs.engines.kubernetes.requests import Amounts, capacity_of
from compass_abs.engines.protocol import NodeHealth

#: Set by the cluster itself on nodes that it has lost.
_LOST_TAINTS = ("node.kubernetes.io/unreachable",)
#: Longest name of a pool in a job file.
_LONGEST_POOL = 63


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with GPUs."""

    name: str
    gpus: int
    pool: str
    health: NodeHealth
    detail: str
    place: Place
    address: str
    #: What it can give beside GPUs.
    capacity: Amounts


def read_node(node: Mapping[str, Any], resource: str) -> GpuNode | None:
    """The node; None when it has no whole GPUs to give."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    name = str(metadata["name"])
    where = f"node {name}"
    labels = metadata.get("labels") or {}
    allocatable = status.get("allocatable") or {}
    capacity = whole((status.get("capacity") or {}).get(resource, 0), f"{where}: {resource}")
    usable = whole(allocatable.get(resource, 0), f"{where}: {resource}")
    if not capacity or _shared(labels):
        return None
    place = Place(name, labels, taints_of(spec, where))
    health, detail = _health(spec, status, place)
    if health is NodeHealth.READY and usable < capacity:
        # Which of a pod's GPUs it is that broke, nobody knows from here.
        health, detail = NodeHealth.CORDONED, f"{capacity - usable} of {capacity} GPUs are broken or set aside"
    return GpuNode(
        name,
        capacity,
        _pool(labels, place, capacity, resource),
        health,
        detail,
        place,
        _address(status),
        capacity_of(allocatable),
    )


def _shared(labels: Mapping[str, Any]) -> bool:
    """True for GPUs that are sliced or lent to several pods at once: nothing here counts those."""
    product = str(labels.get("nvidia.com/gpu.product", ""))
    replicas = str(labels.get("nvidia.com/gpu.replicas", "1"))
    return "-MIG-" in product or product.endswith("-SHARED") or replicas not in ("", "0", "1")


def _pool(labels: Mapping[str, Any], place: Place, gpus: int, resource: str) -> str:
    """Nodes of one pool are interchangeable: same model, same number, same taints."""
    chosen = labels.get(names.POOL)
    if chosen:
        return str(chosen)
    model = next((str(labels[key]) for key in POOL_LABELS if labels.get(key)), "gpu")
    taints = [f"{t.key}={t.value}" if t.value else t.key for t in place.taints if t.keeps_away and t.key != resource]
    return " ".join([f"{model}-x{gpus}", *taints])[:_LONGEST_POOL]


def _health(spec: Mapping[str, Any], status: Mapping[str, Any], place: Place) -> tuple[NodeHealth, str]:
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready: Mapping[str, Any] = next((each for each in conditions if each.get("type") == "Ready"), {})
    said = str(ready.get("reason") or ready.get("message") or "")
    if ready.get("status") == "Unknown" or any(taint.key in _LOST_TAINTS for taint in place.taints):
        return NodeHealth.LOST, said or "its kubelet is silent"
    if ready.get("status") != "True":
        return NodeHealth.CORDONED, f"not ready: {said or 'its kubelet has not said so yet'}"
    if spec.get("unschedulable"):
        return NodeHealth.CORDONED, "cordoned"
    for taint in place.taints:
        if taint.key.startswith(CONDITION_TAINTS) and taint.effect in ("NoSchedule", "NoExecute"):
            return NodeHealth.CORDONED, f"tainted {taint.key}"
    return NodeHealth.READY, ""


def _address(status: Mapping[str, Any]) -> str:
    found = {str(each.get("type")): str(each.get("address")) for each in status.get("addresses") or ()}
    return found.get("InternalIP") or found.get("Hostname") or found.get("ExternalIP") or ""
