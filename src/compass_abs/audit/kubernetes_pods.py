"""What one pod asks for, which gang it belongs to, and what keeps it where it is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compass_abs.audit.values import items, mapping, moment, quantity, text

#: Whole GPUs as device plugins name them.
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
#: A declaration, as a label or an annotation, that a pod's gang can be checkpointed and moved.
MOVABLE = "compass-abs/movable"
#: How it is checkpointed, for the Kubernetes engine: who says how can be moved, too.
CHECKPOINT = "compass-abs/checkpoint"
#: Seconds that a move pauses its gang, as an annotation.
PAUSE = "compass-abs/pause-seconds"

#: Labels and annotations that name a pod's gang, the most deliberate first; with what tells apart gangs of one name.
_GROUPS: tuple[tuple[str, str], ...] = (
    ("compass-abs/job", ""),
    ("scheduling.k8s.io/group-name", ""),  # Volcano
    ("scheduling.volcano.sh/group-name", ""),
    ("pod-group-name", ""),  # KAI
    ("scheduling.x-k8s.io/pod-group", ""),  # coscheduling
    ("pod-group.scheduling.sigs.k8s.io", ""),
    ("kueue.x-k8s.io/pod-group-name", ""),
    ("jobset.sigs.k8s.io/jobset-name", ""),  # JobSet, and the TrainJobs that stand on it
    ("training.kubeflow.org/job-name", ""),  # PyTorchJob, MPIJob, ...
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("ray.io/cluster", ""),
    ("batch.kubernetes.io/job-name", ""),
    ("job-name", ""),
)
#: Owners whose pods start together or not at all; a Deployment's replicas are each by themselves.
_GANG_OWNERS = ("Job", "JobSet", "PyTorchJob", "TrainJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "PodGroup")
_FRACTIONS = ("gpu-fraction", "gpu-memory", "runai/gpu-fraction")
_FRACTION_RESOURCES = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "aliyun.com/gpu-mem",
    "volcano.sh/gpu-memory",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-number",
)
#: How device plugins call GPUs that several pods share.
SHARED_SUFFIX = ".shared"
#: Where KAI and Run:ai put the pods that hold GPUs for fractions.
_RESERVATIONS = ("kai-resource-reservation", "runai-reservation")


@dataclass(slots=True)
class Pod:
    """What matters of one pod."""

    where: str
    namespace: str
    name: str
    gang: str
    gpus: int
    #: The resource that they are GPUs of; empty for none.
    resource: str
    node: str
    phase: str
    spec: Mapping[str, Any]
    created: float | None
    started: float | None
    priority: int
    movable: bool
    pause: float | None
    #: What it says of its pause, where that is no number of seconds.
    odd_pause: str
    #: Why it can't be classified or moved; empty when it can.
    fixed: str
    #: Held by a gate, or what the scheduler says of it.
    policy: str
    said: str
    #: Uses GPUs in a way that can't be counted in whole ones.
    uncountable: str


def read_pod(pod: Mapping[str, Any], resources: Sequence[str], where: str) -> Pod | None:
    """The pod, or None for one that has ended, or that has nothing to do with GPUs."""
    status = mapping(pod.get("status"), f"{where}: status")
    phase = text(status.get("phase"), f"{where}: phase")
    if phase in ("Succeeded", "Failed"):
        return None
    spec = mapping(pod.get("spec"), f"{where}: spec")
    meta = mapping(pod.get("metadata"), f"{where}: metadata")
    annotations = mapping(meta.get("annotations"), f"{where}: annotations")
    gpus, resource, uncountable = _demand(spec, annotations, resources, where)
    if not gpus and not uncountable:
        return None
    labels = mapping(meta.get("labels"), f"{where}: labels")
    namespace, name = text(meta.get("namespace"), f"{where}: namespace"), text(meta.get("name"), f"{where}: name")
    gang, owner = _gang(namespace, name, meta, labels, annotations, where)
    policy, said = _waits_for(spec, status, where)
    said_pause = annotations.get(PAUSE)
    pause = _pause(said_pause)
    return Pod(
        where=where,
        namespace=namespace,
        name=name,
        gang=gang,
        gpus=gpus,
        resource=resource,
        node=text(spec.get("nodeName"), f"{where}: nodeName"),
        phase=phase,
        spec=spec,
        created=moment(meta.get("creationTimestamp"), f"{where}: creationTimestamp"),
        started=moment(status.get("startTime"), f"{where}: startTime"),
        priority=_priority(spec.get("priority")),
        movable="true" in (labels.get(MOVABLE), annotations.get(MOVABLE))
        or CHECKPOINT in annotations
        or CHECKPOINT in labels,
        pause=pause,
        odd_pause="" if said_pause is None or pause is not None else str(said_pause),
        fixed=_fixed(namespace, owner, meta, annotations),
        policy=policy,
        said=said,
        uncountable=uncountable,
    )


# ---- demand


def _demand(
    spec: Mapping[str, Any], annotations: Mapping[str, Any], resources: Sequence[str], where: str
) -> tuple[int, str, str]:
    """Whole GPUs, the resource that they are, and what makes them uncountable."""
    containers = items(spec.get("containers"), f"{where}: containers")
    first = items(spec.get("initContainers"), f"{where}: initContainers")
    together = 0
    odd = ""
    kinds: dict[str, None] = {}
    for container in containers:
        gpus, strange = _request(mapping(container, f"{where}: containers"), resources, kinds, where)
        together += gpus
        odd = odd or strange
    # Sidecars (init containers that are restarted) run beside the others; the rest run before them, one by one.
    sidecars = highest = 0
    for container in first:
        entry = mapping(container, f"{where}: initContainers")
        gpus, strange = _request(entry, resources, kinds, where)
        odd = odd or strange
        if entry.get("restartPolicy") == "Always":
            sidecars += gpus
        else:
            highest = max(highest, sidecars + gpus)
    if not odd and any(key in annotations for key in _FRACTIONS):
        odd = "a fraction of a GPU"
    if not odd and spec.get("resourceClaims") and not together + sidecars:
        odd = "a resource claim (DRA)"
    if not odd and len(kinds) > 1:
        odd = "GPUs of several makers"
    return max(together + sidecars, highest), next(iter(kinds), ""), odd


def _request(
    container: Mapping[str, Any], resources: Sequence[str], kinds: dict[str, None], where: str
) -> tuple[int, str]:
    """GPUs of one container, and what makes them uncountable; notes the resources that it names."""
    wanted = container.get("resources")
    if not wanted:
        return 0, ""
    limits = mapping(wanted, f"{where}: resources")
    # An extended resource has equal requests and limits; what names only one of the two is completed by the server.
    amounts = {
        **mapping(limits.get("requests"), f"{where}: requests"),
        **mapping(limits.get("limits"), f"{where}: limits"),
    }
    total, odd = 0, ""
    for resource, amount in amounts.items():
        if resource in resources:
            gpus = quantity(amount, f"{where}: {resource}")
            total += gpus
            if gpus:
                kinds[resource] = None
        elif resource in _FRACTION_RESOURCES or resource.removesuffix(SHARED_SUFFIX) in resources:
            odd = "a fraction of a GPU"
        elif "/mig-" in resource:
            odd = "a MIG slice"
    return total, odd


# ---- the rest


def _gang(
    namespace: str,
    name: str,
    meta: Mapping[str, Any],
    labels: Mapping[str, Any],
    annotations: Mapping[str, Any],
    where: str,
) -> tuple[str, str]:
    """The name of the pod's gang, and the kind of its owner."""
    owner_kind = owner_name = ""
    for entry in items(meta.get("ownerReferences"), f"{where}: ownerReferences"):
        owner = mapping(entry, f"{where}: ownerReferences")
        if owner.get("controller") or not owner_kind:
            owner_kind, owner_name = str(owner.get("kind")), str(owner.get("name"))
    for key, part in _GROUPS:
        group = annotations.get(key) or labels.get(key)
        if group:
            number = labels.get(part) if part else None
            return f"{namespace}/{group}" + (f"-{number}" if number is not None else ""), owner_kind
    if owner_kind in _GANG_OWNERS:
        return f"{namespace}/{owner_name}", owner_kind
    return f"{namespace}/{name}", owner_kind


def _fixed(namespace: str, owner: str, meta: Mapping[str, Any], annotations: Mapping[str, Any]) -> str:
    if owner == "DaemonSet":
        return "pods of DaemonSets"
    if owner == "Node" or "kubernetes.io/config.mirror" in annotations:
        return "static pods"
    if namespace in _RESERVATIONS:
        return "GPUs that are shared in fractions"
    if meta.get("deletionTimestamp"):
        return "pods that are ending"
    return ""


def _waits_for(spec: Mapping[str, Any], status: Mapping[str, Any], where: str) -> tuple[str, str]:
    """What forbids the pod to start whatever room there is, and what its scheduler says."""
    gates = [
        str(mapping(g, f"{where}: schedulingGates").get("name")) for g in items(spec.get("schedulingGates"), where)
    ]
    if gates:
        return f"scheduling gate {', '.join(gates)}", ""
    for entry in items(status.get("conditions"), f"{where}: conditions"):
        condition = mapping(entry, f"{where}: conditions")
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return "", text(condition.get("message"), f"{where}: PodScheduled: message")
    return "", ""


def _priority(value: object) -> int:
    return value if type(value) is int else 0


def _pause(value: object) -> float | None:
    """Seconds; None where nothing is said, or nothing that is a number: users write annotations, nobody checks them."""
    try:
        seconds = float(value) if isinstance(value, str | int) else math.nan
    except ValueError:
        return None
    return seconds if 0 <= seconds < 10**6 else None
