"""The pods that the engine makes: instances of our own jobs, and successors of users' pods."""

import copy
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from compass_abs.engines.kubernetes import names
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.nodes import GpuNode
from compass_abs.engines.kubernetes.runs import PodRun
from compass_abs.engines.protocol import EngineRefusalError, StartOrder
from compass_abs.model import CompassError

_CONTAINER = "instance"
_VOLUME = "compass-state"
#: What the server adds to a pod, and what names the old one: none of it belongs to a copy.
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "selfLink", "generation", "managedFields")
#: What the engine has written about the old one.
_OURS = (names.RUN, names.PAST, names.OWNER, names.RECORD)


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What pods of our own jobs are made of."""

    namespace: str = "default"
    #: Image for jobs that name none. It needs a python3 for the supervisor, nothing else.
    image: str = ""
    #: Name of the resource that device plugins give GPUs out by.
    resource: str = "nvidia.com/gpu"
    scheduler: str = names.SCHEDULER
    #: Claim of the volume that holds the state folder; empty for the folder of that path on every node.
    claim: str = ""
    #: A pod whose spec is the beginning of ours: security context, pull secrets, further volumes, network.
    template: Mapping[str, Any] = field(default_factory=dict)


def load_template(path: Path) -> dict[str, Any]:
    """A pod, or a pod's spec, of a YAML file."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise CompassError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise CompassError(f"{path}: expected a Pod, or a pod's spec")
    return document if "spec" in document else {"spec": document}


def own_pod(
    order: StartOrder, run: PodRun, node: GpuNode, settings: PodSettings, owner: str, program: Path, order_file: Path
) -> Object:
    """The pod of an instance of one of our own jobs: our supervisor, in the job's image, on a shared state folder."""
    image = order.workload.image or settings.image
    template = copy.deepcopy(dict(settings.template))
    spec = template.get("spec") or {}
    containers = spec.setdefault("containers", [])
    found = next((each for each in containers if each.get("name") == _CONTAINER), None)
    container = found if found is not None else (containers[0] if containers else {})
    if not containers:
        containers.append(container)
    image = image or str(container.get("image") or "")
    if not image:
        raise EngineRefusalError(f"{order.run} names no image, and there is none for jobs that don't; set --image")
    container |= {
        "name": container.get("name", _CONTAINER),
        "image": image,
        "command": ["python3", "-I", "-S", str(program), str(order_file)],
        "resources": _resources(order, settings.resource, container.get("resources") or {}),
    }
    _mount(spec, container, program.parent, settings.claim)
    # Ranks meet at their nodes' addresses: nobody has to wait for a name.
    spec.setdefault("hostNetwork", True)
    spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet" if spec["hostNetwork"] else "ClusterFirst")
    spec |= {
        "schedulerName": settings.scheduler,
        # A restart is the controller's to decide: with a new generation, from a checkpoint that it knows.
        "restartPolicy": "Never",
        "tolerations": [*(spec.get("tolerations") or ()), *_tolerations(node)],
    }
    if order.deadline is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(order.deadline - time.time()))
    metadata = template.get("metadata") or {}
    labels = {names.JOB_ID_LABEL: order.run.job_id, "app.kubernetes.io/managed-by": "compass-abs"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(order.run, owner),
            "namespace": settings.namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **marks(run, owner)},
        },
        "spec": spec,
    }


def marks(run: PodRun, owner: str) -> dict[str, str]:
    """Annotations by which any engine finds a run again."""
    record = {
        "node": run.node,
        "gpus": run.gpu_count,
        "mode": run.mode,
        "signal": run.signal_name,
        "born": run.born,
        "gang": run.gang,
    }
    return {names.OWNER: owner, names.RUN: str(run.run), names.RECORD: json.dumps(record)}


def _resources(order: StartOrder, resource: str, given: Mapping[str, Any]) -> Object:
    limits = dict(given.get("limits") or {})
    limits[resource] = str(order.gpus)
    wanted = order.workload.limits
    if wanted.cpus is not None:
        limits["cpu"] = f"{math.ceil(wanted.cpus * 1000)}m"
    return {**given, "limits": limits}


def _mount(spec: Object, container: Object, root: Path, claim: str) -> None:
    """The state folder, at the path at which the controller has it."""
    if any(each.get("mountPath") == str(root) for each in container.get("volumeMounts") or ()):
        return
    where: Object = (
        {"persistentVolumeClaim": {"claimName": claim}}
        if claim
        else {"hostPath": {"path": str(root), "type": "Directory"}}
    )
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": _VOLUME, **where}]
    mount: Object = {"name": _VOLUME, "mountPath": str(root)}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _tolerations(node: GpuNode) -> list[Object]:
    """The pool's taints were part of choosing it."""
    return [
        {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        for taint in node.place.taints
        if taint.keeps_away
    ]


# ---- copies of users' pods


def template_of(pod: Object) -> Object:
    """What is needed to make a pod like this one again: its spec as it is, without what the server or we added."""
    found = copy.deepcopy(pod)
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVER_SIDE}
    for gone in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(gone, None)
    metadata["annotations"] = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in _OURS}
    spec = found["spec"]
    spec.pop("nodeName", None)
    account = _account_volumes(spec)
    spec["volumes"] = [each for each in spec.get("volumes") or () if each["name"] not in account]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        mounts = container.get("volumeMounts") or ()
        container["volumeMounts"] = [each for each in mounts if each["name"] not in account]
    # Tolerations that the server gives to every pod come again by themselves; twice is an error to nobody.
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _account_volumes(spec: Object) -> set[str]:
    """Volumes of the service account's token: the server adds them anew, and their secrets are not for copying."""
    mounts = [
        mount
        for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        for mount in container.get("volumeMounts") or ()
    ]
    return {
        mount["name"] for mount in mounts if mount.get("mountPath") == "/var/run/secrets/kubernetes.io/serviceaccount"
    }


def successor(template: Mapping[str, Any], run: PodRun, owner: str) -> Object:
    """A user's pod once more, under a new name."""
    pod: Object = copy.deepcopy(dict(template))
    metadata = pod["metadata"]
    metadata["name"] = names.successor_name(str(metadata["name"]), run.run)
    metadata.pop("generateName", None)
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **marks(run, owner)}
    return pod
