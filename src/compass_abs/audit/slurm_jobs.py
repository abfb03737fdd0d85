"""What one Slurm job holds on each of its nodes, or asks for and waits for."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.audit.observation import PendingJob, Shape
from compass_abs.audit.slurm_text import gpus_in, hosts, number, slices_in, tasks_in
from compass_abs.audit.tally import Tally
from compass_abs.audit.values import items, text

if TYPE_CHECKING:
    from compass_abs.audit.slurm import Machine

#: A declaration, in a job's comment, that it can be checkpointed and moved.
MOVABLE = "compass-abs/movable=true"
#: Reasons that mean no more than "there is no room", or "others are before me".
_FOR_ROOM = ("NONE", "RESOURCES", "PRIORITY", "", "NULL")
#: Constraints that are understood: features that a node must all have.
_SIMPLE = re.compile(r"[\w.-]+(&[\w.-]+)*")


def share_of_node(job: Mapping[str, Any], nodes: Sequence[str], k: int, where: str) -> int | None:
    """GPUs of the job on its k-th node; None when nothing says."""
    details = items(job.get("gres_detail"), f"{where}: gres_detail")
    if len(details) == len(nodes):
        return sum(gpus_in(text(details[k], f"{where}: gres_detail"), f"{where}: gres_detail").values())
    allocated = text(job.get("tres_alloc_str"), f"{where}: tres_alloc_str")
    if allocated:
        return _evenly(_gpus(allocated, f"{where}: tres_alloc_str"), len(nodes))
    per_node = text(job.get("tres_per_node"), f"{where}: tres_per_node")
    if per_node:
        return _gpus(per_node, f"{where}: tres_per_node")
    requested = text(job.get("tres_req_str"), f"{where}: tres_req_str")
    return _evenly(_gpus(requested, f"{where}: tres_req_str"), len(nodes)) if requested else 0


def _gpus(resources: str, where: str) -> int:
    return sum(gpus_in(resources, where).values())


def _evenly(gpus: int, nodes: int) -> int | None:
    return gpus // nodes if gpus % nodes == 0 else None


def waits_by_policy(job: Mapping[str, Any]) -> str:
    """The reason that keeps a job waiting whatever room there is; empty when it waits for room."""
    reason = str(job.get("state_reason") or "")
    return "" if reason.upper() in _FOR_ROOM else reason


def pending_job(
    job: Mapping[str, Any], name: str, where: str, reaches: "Reaches", left_out: Tally
) -> PendingJob | None:
    """The job as a gang with an instance on each node; None for one that asks for no GPUs that can be counted."""
    wanted = _wanted(job, where)
    if wanted is None:
        return None
    gpu_type, per_node, total, nodes = wanted
    reach, largest = reaches.of(job, where, gpu_type)
    features = text(job.get("features"), f"{where}: features")
    caveat = f"its constraint {features} is left out of account" if features and not _SIMPLE.fullmatch(features) else ""
    if per_node is None and largest and total > largest * nodes:
        # --gpus=32 says nothing of nodes: as few as will hold them.
        nodes = -(-total // largest)
    shapes = _shapes(per_node, total, nodes)
    requests = " ".join(
        str(job.get(k) or "") for k in ("tres_per_node", "tres_per_job", "tres_per_task", "tres_req_str")
    )
    if slices_in(requests):
        left_out.add("waiting jobs that want parts of GPUs", 1)
        return None
    copies = 1
    tasks = text(job.get("array_task_string"), f"{where}: array_task_string")
    if tasks:
        copies, cut = tasks_in(tasks, f"{where}: array_task_string")
        if cut:
            caveat = caveat or "Slurm cuts off the list of its array's tasks; there are more"
    return PendingJob(
        id=name,
        shapes=shapes,
        submitted=number(job.get("submit_time"), f"{where}: submit_time"),
        priority=number(job.get("priority"), f"{where}: priority") or 0,
        owner=str(job.get("user_name") or job.get("account") or ""),
        policy=waits_by_policy(job),
        said=str(job.get("state_description") or job.get("state_reason") or ""),
        caveat=caveat,
        reach=None if len(reach) == len(reaches.machines) else reach,
        rules=_rules_in_words(job, gpu_type),
        copies=max(1, copies),
    )


def _wanted(job: Mapping[str, Any], where: str) -> tuple[str, int | None, int, int] | None:
    """Type, GPUs of each node where that is said, GPUs in all, and nodes."""
    nodes = number(job.get("node_count"), f"{where}: node_count") or number(job.get("nodes_min"), where) or 1
    per_node = gpus_in(text(job.get("tres_per_node"), f"{where}: tres_per_node"), f"{where}: tres_per_node")
    if per_node:
        return _type(per_node), sum(per_node.values()), sum(per_node.values()) * nodes, nodes
    for key in ("tres_req_str", "tres_per_job"):
        whole = gpus_in(text(job.get(key), f"{where}: {key}"), f"{where}: {key}")
        if whole:
            return _type(whole), None, sum(whole.values()), nodes
    per_task = gpus_in(text(job.get("tres_per_task"), f"{where}: tres_per_task"), f"{where}: tres_per_task")
    if per_task:
        tasks = number(job.get("tasks"), f"{where}: tasks") or nodes
        return _type(per_task), None, sum(per_task.values()) * tasks, nodes
    return None


def _type(gpus: Mapping[str, int]) -> str:
    named = [name for name in gpus if name]
    return named[0] if len(named) == 1 else ""


def _shapes(per_node: int | None, total: int, nodes: int) -> tuple[Shape, ...]:
    """An instance on each node: equal ones, or as equal as they can be."""
    if per_node is not None:
        return (Shape(nodes, per_node),)
    nodes = min(nodes, total)
    least, more = divmod(total, nodes)
    shapes = (Shape(more, least + 1), Shape(nodes - more, least))
    return tuple(shape for shape in shapes if shape.instances)


class Reaches:
    """The nodes that jobs may run on; jobs with equal rules share one answer."""

    def __init__(self, machines: Mapping[str, "Machine"]) -> None:
        self.machines = machines
        self._known: dict[tuple[str, ...], tuple[frozenset[str], int]] = {}

    def of(self, job: Mapping[str, Any], where: str, gpu_type: str) -> tuple[frozenset[str], int]:
        """The nodes, and the GPUs of the largest of them."""
        keys = ("partition", "required_nodes", "excluded_nodes", "features")
        rules = (gpu_type, *(text(job.get(key), f"{where}: {key}") for key in keys))
        if rules not in self._known:
            reach = self._find(where, *rules)
            largest = max((m.capacity for m in self.machines.values() if m.name in reach), default=0)
            self._known[rules] = (reach, largest)
        return self._known[rules]

    def _find(
        self, where: str, gpu_type: str, partition: str, required: str, excluded: str, features: str
    ) -> frozenset[str]:
        partitions = [p for p in partition.split(",") if p]
        wanted = frozenset(hosts(required, f"{where}: required_nodes"))
        barred = frozenset(hosts(excluded, f"{where}: excluded_nodes"))
        needed = features.split("&") if _SIMPLE.fullmatch(features) else []
        return frozenset(
            name
            for name, machine in self.machines.items()
            if (not partitions or not machine.partitions or any(p in machine.partitions for p in partitions))
            and (not gpu_type or not machine.gpu or machine.gpu == gpu_type)
            and name not in barred
            and (not wanted or name in wanted)
            and all(feature in machine.features for feature in needed)
        )


def _rules_in_words(job: Mapping[str, Any], gpu_type: str) -> str:
    parts = [f"GPUs of type {gpu_type}"] if gpu_type else []
    words = {"partition": "partition", "required_nodes": "nodes", "excluded_nodes": "not nodes", "features": "features"}
    parts += [f"{word} {job[key]}" for key, word in words.items() if job.get(key)]
    return ", ".join(parts) or "its rules"
