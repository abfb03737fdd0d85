"""`compass audit` on a synthetic Kubernetes cluster of 5,000 nodes and 40,000 pods, each step timed."""

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from compass_abs.audit import audit, load_observation
from compass_abs.audit.audit import AuditOptions, Movability

NODES, PODS, WAITING = 5_000, 40_000, 200
PRODUCTS = (("NVIDIA-H100-80GB-HBM3", 0.6), ("NVIDIA-A100-SXM4-80GB", 0.3), ("Tesla-V100-SXM2-32GB", 0.1))
#: GPUs of a pod and how often; half of all pods want no GPU at all, as clusters are.
SIZES = ((1, 0.45), (2, 0.2), (4, 0.15), (8, 0.2))


def node(name: str, product: str) -> dict[str, Any]:
    """A Node of about the size that real ones have."""
    resources = {
        "cpu": "192",
        "ephemeral-storage": "1844284980Ki",
        "memory": "2113417364Ki",
        "nvidia.com/gpu": "8",
        "pods": "110",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-10T08:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "gpu-8",
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.count": "8",
                **{f"feature.node.kubernetes.io/cpu-cpuid.F{k}": "true" for k in range(20)},
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Kubelet", "message": "fine"}
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {"names": [f"registry.example/image-{k}@sha256:{'0' * 64}"], "sizeBytes": 10**9} for k in range(20)
            ],
        },
    }


def pod(name: str, owner: str, gpus: int, host: str | None, movable: bool) -> dict[str, Any]:
    """A Pod of about the size that real ones have."""
    resources = {"cpu": "8", "memory": "64Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status: dict[str, Any] = {"phase": "Running" if host else "Pending", "qosClass": "Guaranteed"}
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled") if host else ()
    status["conditions"] = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-11-18T10:00:00Z", "lastProbeTime": None}
        for kind in conditions
    ]
    if host:
        status |= {"startTime": "2026-11-18T10:00:00Z", "hostIP": "10.0.0.1", "podIP": "10.1.0.1"}
        status["containerStatuses"] = [
            {"name": "main", "ready": True, "image": "registry.example/train:1", "imageID": f"sha256:{'a' * 64}",
             "containerID": f"containerd://{'b' * 64}", "restartCount": 0,
             "state": {"running": {"startedAt": "2026-11-18T10:00:00Z"}}}
        ]  # fmt: skip
    else:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/5000 nodes are available: 5000 Insufficient nvidia.com/gpu."}
        ]  # fmt: skip
    labels = {"app": owner, "batch.kubernetes.io/job-name": owner, "batch.kubernetes.io/controller-uid": "0" * 36}
    if movable:
        labels["compass-abs/movable"] = "true"
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/train:1",
                "command": ["python", "-m", "train", "--config", "/etc/config.yaml"],
                "env": [{"name": f"VARIABLE_{k}", "value": "some value or other"} for k in range(12)],
                "resources": {"limits": resources, "requests": resources},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token", "readOnly": True}],
            }
        ],
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "volumes": [
            {
                "name": "token",
                "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "token"}}]},
            }
        ],
        "schedulerName": "default-scheduler",
        "priority": 0,
    }
    if host:
        spec["nodeName"] = host
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{len(owner) % 7}",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-18T09:00:00Z",
            "labels": labels,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "controller": True, "uid": "0" * 36}
            ],
        },
        "spec": spec,
        "status": status,
    }


def cluster(nodes: int = NODES, pods: int = PODS, waiting: int = WAITING, seed: int = 2026) -> dict[str, Any]:
    """What `kubectl get nodes,pods -A -o json` would print of a busy cluster that was scheduled by spreading."""
    chance = random.Random(seed)
    names, weights = [p for p, _ in PRODUCTS], [w for _, w in PRODUCTS]
    found = [node(f"gpu-{k:05d}", chance.choices(names, weights)[0]) for k in range(nodes)]
    free = [8] * nodes
    sizes, shares = [s for s, _ in SIZES], [w for _, w in SIZES]
    job = made = 0
    used = 0.0
    while made < pods - 2 * waiting:
        job += 1
        wide = chance.choice((1, 1, 1, 2, 4))
        gpus = chance.choices(sizes, shares)[0] if used < 0.88 * 8 * nodes and chance.random() < 0.6 else 0
        movable = chance.random() < 0.7
        for k in range(wide):
            host = chance.randrange(nodes)
            if gpus:
                tries = [chance.randrange(nodes) for _ in range(60)]
                host = next((t for t in tries if free[t] >= gpus), -1)
                if host < 0:
                    continue
                free[host] -= gpus
                used += gpus
            found.append(pod(f"job-{job}-{k}", f"job-{job}", gpus, f"gpu-{host:05d}", movable))
            made += 1
    for k in range(waiting):
        wide, gpus = chance.choice(((1, 8), (2, 8), (4, 8), (16, 8), (1, 4), (64, 8)))
        for w in range(wide):
            found.append(pod(f"wait-{k}-{w}", f"wait-{k}", gpus, None, True))
    return {"apiVersion": "v1", "kind": "List", "items": found}


def main() -> None:
    """Prints the time of each step, declared and assumed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        document = cluster()
        path.write_text(json.dumps(document, indent=4))  # as kubectl writes it
        kinds = [item["kind"] for item in document["items"]]
        print(f"{kinds.count('Node'):,} nodes, {kinds.count('Pod'):,} pods, {path.stat().st_size / 1e6:.0f} MB")
        del document
        for movability in Movability:
            start, busy = time.perf_counter(), time.process_time()
            observation = load_observation([path])
            read = time.process_time()
            found = audit(observation, AuditOptions(movability))
            end = time.process_time()
            moves = sum(len(pool.admissions.moves) for pool in found.pools)
            starts = sum(pool.admissions.starts for pool in found.pools)
            print(
                f"  {movability:<9} read {read - busy:5.2f} s, audit {end - read:5.2f} s, together {end - busy:5.2f} s "
                f"of CPU ({time.perf_counter() - start:5.2f} s by the clock); "
                f"{starts} of {len(found.verdicts)} waiting jobs start, {moves} moves"
            )


if __name__ == "__main__":
    main()
