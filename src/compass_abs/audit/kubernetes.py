"""Nodes and pods as `kubectl get nodes,pods -A -o json` prints them, read into rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compass_abs.audit.kubernetes_pods import GPU_RESOURCES, PAUSE, SHARED_SUFFIX, Pod, read_pod
from compass_abs.audit.kubernetes_rules import Place, Rules, Taint, taints_of, unmodelled
from compass_abs.audit.observation import AuditError, Observation, PendingJob, RunningJob, Shape
from compass_abs.audit.tally import Tally
from compass_abs.audit.values import items, mapping, quantity, shown, text
from compass_abs.model import CAPACITIES, NodeStatus
from compass_abs.snapshots import InstanceRow, NodeRow

#: Labels that tell GPU models apart, the most exact first.
POOL_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """What differs between clusters."""

    resources: tuple[str, ...] = GPU_RESOURCES
    #: Labels of which the first that a node has names its GPU model.
    gpu_labels: tuple[str, ...] = POOL_LABELS
    #: Further labels by which nodes are kept apart.
    pool_labels: tuple[str, ...] = ()


@dataclass(slots=True)
class _Machine:
    place: Place
    where: str
    pool: str
    gpu: str
    #: What its GPUs are called as a resource.
    resource: str
    capacity: int
    status: NodeStatus
    #: GPUs that are broken or in MIG mode: nobody's to give.
    lost: int
    instances: list[InstanceRow] = field(default_factory=list)
    unknown: int = 0

    @property
    def used(self) -> int:
        return sum(instance.gpus for instance in self.instances) + self.unknown + self.lost


def observe_kubernetes(
    objects: Iterable[object],
    source: str = "kubernetes",
    options: KubernetesOptions | None = None,
    time: float | None = None,
) -> Observation:
    """What Node and Pod objects say; others are passed over."""
    options = options or KubernetesOptions()
    reader = _Reader(options)
    pods: dict[str, Pod] = {}
    any_pods = False
    for k, entry in enumerate(objects):
        document = mapping(entry, f"{source}: items[{k}]")
        kind = document.get("kind")
        if kind not in ("Node", "Pod"):
            continue
        meta = mapping(document.get("metadata"), f"{source}: items[{k}]: metadata")
        name = text(meta.get("name"), f"{source}: items[{k}]: name")
        if not name:
            raise AuditError(f"{source}: items[{k}]: this {kind} has no name")
        if kind == "Node":
            reader.node(document, meta, name, f"{source}: node {name}")
        else:
            any_pods = True
            where = f"{source}: pod {meta.get('namespace')}/{name}"
            pod = read_pod(document, options.resources, where)
            if pod is not None and pods.setdefault(f"{pod.namespace}/{name}", pod) is not pod:
                raise AuditError(f"{where}: is there twice; give one list of pods")
    if not any_pods and reader.machines:
        reader.left_out.add("pods, of which there are none in it: every GPU counts as free", 0)
    return reader.observation(list(pods.values()), source, time)


class _Reader:
    def __init__(self, options: KubernetesOptions) -> None:
        self.options = options
        self.machines: dict[str, _Machine] = {}
        self.bare: dict[str, None] = {}
        self.fixed = Tally()
        self.left_out = Tally()
        #: The nodes that pods with equal rules may run on, and whether those are all nodes of a pool.
        self._reach: dict[tuple[str, str], frozenset[str]] = {}
        self._covers: dict[tuple[tuple[str, str, int], str], bool] = {}
        self._pools: dict[tuple[str, str, int], list[str]] = {}

    # ---- nodes

    def node(self, node: Mapping[str, Any], meta: Mapping[str, Any], name: str, where: str) -> None:
        status = mapping(node.get("status"), f"{where}: status")
        spec = mapping(node.get("spec"), f"{where}: spec")
        labels = mapping(meta.get("labels"), f"{where}: labels")
        if name in self.machines or name in self.bare:
            raise AuditError(f"{where}: is there twice; give one list of nodes")
        resource, total, available, sliced = self._gpus_of(status, where)
        gpu = next((str(labels[key]) for key in self.options.gpu_labels if labels.get(key)), "")
        if sliced:
            total = max(total, _count(labels.get("nvidia.com/gpu.count")))
        if not total and not sliced:
            self.bare[name] = None
            return
        if not total or _is_shared(labels, gpu):
            self._leave_out(name, "nodes whose GPUs are shared or sliced (time slicing, MIG)", total)
            return
        if total not in CAPACITIES:
            self._leave_out(name, f"nodes of {total} GPUs; only 1, 2, 4, 8 and 16 are understood", total)
            return
        taints = taints_of(spec, where)
        apart = [str(labels.get(key, "-")) for key in self.options.pool_labels]
        apart += [
            f"{t.key}={t.value}" if t.value else t.key
            for t in taints
            if t.keeps_away and t.key not in self.options.resources
        ]
        lost = total - available
        if lost > 0:
            self.fixed.add("nodes with GPUs that are broken or in MIG mode", 1, lost)
        self.machines[name] = _Machine(
            Place(name, labels, taints),
            where,
            " ".join(apart),
            gpu,
            resource,
            total,
            _status_of(spec, status, taints, where),
            max(0, lost),
        )

    def _leave_out(self, name: str, why: str, gpus: int) -> None:
        self.bare[name] = None
        self.left_out.add(why, 1, gpus)

    def _gpus_of(self, status: Mapping[str, Any], where: str) -> tuple[str, int, int, bool]:
        """What its GPUs are called, how many there are, how many can be given to pods, and whether some are sliced."""
        capacity = mapping(status.get("capacity"), f"{where}: capacity")
        allocatable = mapping(status.get("allocatable"), f"{where}: allocatable")
        name, most, available = "", 0, 0
        for resource in self.options.resources:
            given = quantity(allocatable.get(resource, 0), f"{where}: {resource}")
            total = max(given, quantity(capacity.get(resource, 0), f"{where}: {resource}"))
            if total > most:
                name, most, available = resource, total, given
        shared = [resource + SHARED_SUFFIX for resource in self.options.resources]
        sliced = any(
            str(value) != "0" and ("/mig-" in key or key in shared)
            for key, value in {**capacity, **allocatable}.items()
        )
        return name, most, available, sliced

    # ---- pods

    def observation(self, pods: Sequence[Pod], source: str, time: float | None) -> Observation:
        self._tell_makers_apart()
        running: dict[str, RunningJob] = {}
        waiting: dict[str, list[Pod]] = {}
        gangs: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.odd_pause:
                self.left_out.add(f"annotations {PAUSE} that are no number of seconds", 1)
            if pod.node:
                gangs.setdefault(pod.gang, []).append(pod)
            elif pod.uncountable:
                self.left_out.add(f"waiting pods that want {pod.uncountable}", 1)
            else:
                waiting.setdefault(pod.gang, []).append(pod)
        for gang, members in gangs.items():
            self._place(gang, members, running)
        rows = tuple(self._row(machine) for machine in self.machines.values())
        pending = tuple(self._pending(gang, members, running) for gang, members in waiting.items())
        return Observation(source, rows, running, pending, self.fixed.remarks(), self.left_out.remarks(), time)

    def _tell_makers_apart(self) -> None:
        """Nodes whose labels are equal and whose GPUs are not are no pool: a pod of one can't run on the other."""
        resources: dict[tuple[str, str, int], dict[str, None]] = {}
        for machine in self.machines.values():
            resources.setdefault((machine.pool, machine.gpu, machine.capacity), {})[machine.resource] = None
        for machine in self.machines.values():
            if len(resources.get((machine.pool, machine.gpu, machine.capacity), ())) > 1:
                machine.gpu = f"{machine.gpu} {machine.resource}".strip()

    def _place(self, gang: str, members: Sequence[Pod], running: dict[str, RunningJob]) -> None:
        held = [pod for pod in members if self._is_here(pod)]
        if not held:
            return
        whys = [why for pod in held if (why := pod.fixed or self._confined(pod))]
        for pod in held:
            machine = self.machines[pod.node]
            gpus, free = pod.gpus, machine.capacity - machine.used
            if gpus > free and machine.lost:  # a pod that holds a GPU which broke under it
                back = min(machine.lost, gpus - free)
                machine.lost -= back
                free += back
            if gpus > free:
                gpus = free
                self.fixed.add("pods on nodes that have fewer GPUs than their pods hold", 1, gpus)
                machine.unknown += gpus
                continue
            machine.instances.append(InstanceRow(gpus, gang, pinned=bool(whys), pause=pod.pause))
            if whys:
                self.fixed.add(whys[0], 1, gpus)
        times = [pod.started for pod in held if pod.started is not None]
        created = [pod.created for pod in held if pod.created is not None]
        running[gang] = RunningJob(
            gang,
            min(created, default=None),
            max(times, default=None),
            held[0].namespace,
            not whys and all(pod.movable for pod in held),
            whys[0] if whys else "",
        )

    def _is_here(self, pod: Pod) -> bool:
        machine = self.machines.get(pod.node)
        if pod.uncountable:
            if machine is not None and pod.gpus:
                gpus = min(pod.gpus, machine.capacity - machine.used)
                machine.unknown += gpus
                self.fixed.add(f"pods with {pod.uncountable}", 1, gpus)
            else:
                self.left_out.add(f"running pods with {pod.uncountable}, on GPUs that aren't known", 1)
            return False
        if machine is None:
            known = "nodes that are left out" if pod.node in self.bare else "nodes that the input doesn't have"
            self.left_out.add(f"pods on {known}", 1, pod.gpus)
            return False
        return True

    def _confined(self, pod: Pod) -> str:
        """Why a pod can't go to every node of its pool, which is what the planner takes for granted."""
        if what := unmodelled(pod.spec, pod.where):
            return f"pods with rules about {what}"
        machine, rules = self.machines[pod.node], Rules(pod.spec, pod.where)
        pool, signature = (machine.pool, machine.gpu, machine.capacity), rules.signature
        if (pool, signature) not in self._covers:
            reach = self._reached_by(rules, signature, machine.resource)
            self._covers[pool, signature] = all(name in reach for name in self._pool_of(pool))
        if self._covers[pool, signature]:
            return ""
        return "pods that their selectors or tolerations confine to a part of their pool"

    def _pool_of(self, pool: tuple[str, str, int]) -> list[str]:
        if not self._pools:
            for name, each in self.machines.items():
                self._pools.setdefault((each.pool, each.gpu, each.capacity), []).append(name)
        return self._pools[pool]

    def _reached_by(self, rules: Rules, signature: str, resource: str) -> frozenset[str]:
        key = (signature, resource)
        if key not in self._reach:
            self._reach[key] = frozenset(
                name
                for name, machine in self.machines.items()
                if machine.resource == resource and rules.allow(machine.place)
            )
        return self._reach[key]

    def _row(self, machine: _Machine) -> NodeRow:
        return NodeRow(
            machine.place.name,
            machine.capacity,
            tuple(machine.instances),
            machine.pool,
            machine.gpu,
            machine.status,
            machine.unknown + machine.lost,
            machine.where,
        )

    def _pending(self, gang: str, members: Sequence[Pod], running: Mapping[str, RunningJob]) -> PendingJob:
        sizes: dict[int, int] = {}
        reach: frozenset[str] | None = None
        for pod in members:
            sizes[pod.gpus] = sizes.get(pod.gpus, 0) + 1
            rules = Rules(pod.spec, pod.where)
            reached = self._reached_by(rules, rules.signature, pod.resource)
            reach = reached if reach is None else reach if reach is reached else reach & reached
        caveats = [what for pod in members[:1] if (what := unmodelled(pod.spec, pod.where))]
        caveat = f"its rules about {caveats[0]} are left out of account" if caveats else ""
        if gang in running:
            caveat = "some of its pods run already; only those that wait are counted"
        times = [pod.created for pod in members if pod.created is not None]
        return PendingJob(
            id=gang,
            shapes=tuple(Shape(sizes[gpus], gpus) for gpus in sorted(sizes, reverse=True)),
            submitted=min(times, default=None),
            priority=max(pod.priority for pod in members),
            owner=members[0].namespace,
            policy=next((pod.policy for pod in members if pod.policy), ""),
            said=next((pod.said for pod in members if pod.said), ""),
            caveat=caveat,
            reach=None if reach is not None and len(reach) == len(self.machines) else reach,
            rules=self._in_words(members[0]),
        )

    def _in_words(self, pod: Pod) -> str:
        """What a pod asks of its node."""
        rules = str(Rules(pod.spec, pod.where))
        makers = {machine.resource: None for machine in self.machines.values()}
        return rules if list(makers) == [pod.resource] else f"{pod.resource}, {rules}"


def _count(label: object) -> int:
    """The number that a label gives; 0 for none, and for what is no number: nobody checks labels."""
    words = str(label)
    return int(words) if words.isascii() and words.isdigit() and len(words) < 10 else 0


def _is_shared(labels: Mapping[str, Any], gpu: str) -> bool:
    """Whether several pods share one of the node's GPUs, as its labels say."""
    return (
        "-MIG-" in gpu
        or gpu.endswith("-SHARED")
        or _count(labels.get("nvidia.com/gpu.replicas")) > 1
        or labels.get("nvidia.com/gpu.sharing-strategy", "none") not in ("none", "")
        or bool(labels.get("cloud.google.com/gke-gpu-sharing-strategy"))
        or bool(labels.get("cloud.google.com/gke-gpu-partition-size"))
    )


def _status_of(spec: Mapping[str, Any], status: Mapping[str, Any], taints: Sequence[Taint], where: str) -> NodeStatus:
    if spec.get("unschedulable") or any(taint.closes for taint in taints):
        return NodeStatus.CORDONED
    for entry in items(status.get("conditions"), f"{where}: conditions"):
        condition = mapping(entry, f"{where}: conditions")
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return NodeStatus.CORDONED
    return NodeStatus.UP


def is_kubernetes(document: Mapping[str, Any]) -> bool:
    """Whether this is what kubectl prints."""
    return "apiVersion" in document or "kind" in document


def objects_of(document: Mapping[str, Any], source: str) -> list[Any]:
    """The objects of a list, or the object itself."""
    kind = document.get("kind")
    if kind in ("Node", "Pod"):
        return [document]
    if not str(kind).endswith("List"):
        raise AuditError(f"{source}: kind is {shown(kind)}, expected List, NodeList or PodList")
    found = items(document.get("items"), f"{source}: items")
    if kind in ("NodeList", "PodList"):  # the objects of a raw API answer don't repeat their kind
        return [{"kind": str(kind).removesuffix("List"), **mapping(entry, f"{source}: items")} for entry in found]
    return found
