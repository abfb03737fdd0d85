"""Nodes and pods as kubectl prints them, no larger than a test needs."""

import json
from pathlib import Path
from typing import Any


def node(name: str, gpus: int = 8, model: str = "H100", **fields: Any) -> dict[str, Any]:
    """A node that is up; `taints`, `unschedulable`, `allocatable`, `labels`, `ready`."""
    capacity = {"cpu": "192", "nvidia.com/gpu": str(gpus)}
    spec = {key: fields[key] for key in ("taints", "unschedulable") if key in fields}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": model, **fields.get("labels", {})}},
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, "nvidia.com/gpu": str(fields.get("allocatable", gpus))},
            "conditions": [{"type": "Ready", "status": "True" if fields.get("ready", True) else "Unknown"}],
        },
    }


def pod(name: str, gpus: int, host: str = "", **fields: Any) -> dict[str, Any]:
    """A pod, running where it has a host; `labels`, `annotations`, `owner`, `movable`, `spec`, `namespace`."""
    labels = dict(fields.get("labels", {}))
    if fields.get("movable"):
        labels["compass-abs/movable"] = "true"
    meta: dict[str, Any] = {
        "name": name,
        "namespace": fields.get("namespace", "team"),
        "creationTimestamp": "2026-11-18T09:00:00Z",
        "labels": labels,
        "annotations": fields.get("annotations", {}),
    }
    if "owner" in fields:
        kind, owner = fields["owner"]
        meta["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    spec = {"containers": [{"name": "main", "resources": resources}], **fields.get("spec", {})}
    if host:
        spec["nodeName"] = host
    phase = "Running" if host else "Pending"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    """As `kubectl get nodes,pods -A -o json` prints them."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}


def written(path: Path, *objects: dict[str, Any]) -> Path:
    """The same in a file."""
    path.write_text(json.dumps(listed(*objects), indent=4), encoding="utf-8")
    return path


def fragmented() -> list[dict[str, Any]]:
    """Three nodes that are half full with movable gangs, and a gang that wants a whole node."""
    halves = [pod(f"half-{k}", 4, f"gpu-{k}", movable=True) for k in range(3)]
    return [*(node(f"gpu-{k}") for k in range(3)), *halves, pod("whole", 8)]
