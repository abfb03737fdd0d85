"""Snapshots in JSON: {"nodes": [{"node": "n0", "capacity": 8, "instances": [4, {"gpus": 2, "job": "a"}]}]}."""

import json
from collections.abc import Collection, Mapping

from compass_abs.model import ClusterState, NodeStatus
from compass_abs.snapshots import fields
from compass_abs.snapshots.rows import InstanceRow, NodeRow, SnapshotError

NODE_KEYS = ("node", "capacity", "instances", "pool", "gpu", "status", "unknown_gpus")
#: Keys of documents that a running cluster's own commands print.
_ELSEWHERE = ("apiVersion", "kind", "jobs", "sinfo", "meta")
INSTANCE_KEYS = ("gpus", "job", "pinned", "priority", "pause")


def rows_of_json(content: str, source: str) -> list[NodeRow]:
    """The nodes of a snapshot in JSON: an object with "nodes", or the list alone."""

    def object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
        entry = dict(pairs)
        if len(entry) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise SnapshotError(f"{source}: key {fields.shown(twice)} occurs twice in {fields.shown(entry)}")
        return entry

    try:
        document = json.loads(content, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        raise SnapshotError(f"{source}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise SnapshotError(f"{source}: not a snapshot: nested too deeply") from None
    except ValueError:
        raise SnapshotError(f"{source}: not a snapshot: a number in it has thousands of digits") from None
    default_capacity: object = None
    if isinstance(document, dict):
        if any(key in document for key in _ELSEWHERE):
            raise SnapshotError(f"{source}: this is what kubectl or Slurm prints; `compass audit` reads it")
        _known_keys(document, ("nodes", "capacity"), source)
        if "nodes" not in document:
            raise SnapshotError(f'{source}: there is no "nodes", expected a list of nodes')
        default_capacity = document.get("capacity")
        document = document["nodes"]
    if not isinstance(document, list):
        raise SnapshotError(f'{source}: "nodes" is {fields.shown(document)}, expected a list of nodes')
    rows = [_node(entry, f"{source}: nodes[{k}]", default_capacity) for k, entry in enumerate(document)]
    first: dict[str, str] = {}
    for row in rows:
        if row.name in first:
            raise SnapshotError(f"{row.where}: node {row.name!r} is at {first[row.name]} already")
        first[row.name] = row.where
    return rows


def _node(entry: object, where: str, default_capacity: object) -> NodeRow:
    if not isinstance(entry, dict):
        raise SnapshotError(
            f'{where}: is {fields.shown(entry)}, expected an object with "node", "capacity", "instances"'
        )
    _known_keys(entry, NODE_KEYS, where)
    if "node" not in entry:
        raise SnapshotError(f'{where}: there is no "node", expected its name')
    name = fields.text(entry["node"], where, "node")
    capacity = entry.get("capacity", default_capacity)
    if capacity is None:
        raise SnapshotError(f'{where}: node {name!r} has no "capacity", expected its number of GPUs')
    instances = entry.get("instances", [])
    if not isinstance(instances, list):
        raise SnapshotError(f"{where}: instances is {fields.shown(instances)}, expected a list of sizes or objects")
    row = NodeRow(
        name=name,
        capacity=fields.whole_number(capacity, where, "capacity", 1),
        instances=tuple(_instance(item, f"{where}: instances[{k}]") for k, item in enumerate(instances)),
        pool=fields.text(entry.get("pool", ""), where, "pool"),
        gpu=fields.text(entry.get("gpu", ""), where, "gpu"),
        status=fields.node_status(entry.get("status", ""), where),
        unknown_gpus=fields.whole_number(entry.get("unknown_gpus", 0), where, "unknown_gpus", 0),
        where=where,
    )
    row.check()
    return row


def _instance(item: object, where: str) -> InstanceRow:
    if not isinstance(item, dict):
        return InstanceRow(fields.whole_number(item, where, "gpus", 1))
    _known_keys(item, INSTANCE_KEYS, where)
    if "gpus" not in item:
        raise SnapshotError(f'{where}: there is no "gpus", expected the size of the instance')
    return InstanceRow(
        gpus=fields.whole_number(item["gpus"], where, "gpus", 1),
        job=None if item.get("job") is None else fields.text(item["job"], where, "job"),
        pinned=fields.truth(item.get("pinned", False), where, "pinned"),
        priority=fields.any_whole_number(item.get("priority", 0), where, "priority"),
        pause=None if item.get("pause") is None else fields.seconds(item["pause"], where, "pause"),
    )


def json_of_pools(pools: Mapping[str, ClusterState]) -> str:
    """The same pools as a snapshot that reads back as they are, one node a line."""
    nodes: list[dict[str, object]] = []
    for name, state in pools.items():
        for node in state.nodes:
            entry: dict[str, object] = {"node": node.name, "capacity": state.capacity, "pool": name}
            if node.status is not NodeStatus.UP:
                entry["status"] = node.status.value
            instances = []
            for instance, gpus in node.contents.items():
                job = state.gangs[instance.job_id].job
                item: dict[str, object] = {"gpus": gpus, "job": job.id}
                if not job.movable:
                    item["pinned"] = True
                if job.priority:
                    item["priority"] = job.priority
                if job.pause is not None:
                    item["pause"] = job.pause
                instances.append(item)
            nodes.append(entry | {"instances": instances})
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in nodes)
    return '{"nodes": [\n' + lines + "\n]}\n"


def _known_keys(entry: Mapping[str, object], known: Collection[str], where: str) -> None:
    for key in entry:
        if key not in known:
            raise SnapshotError(f"{where}: unknown key {fields.shown(key)}, expected one of {', '.join(known)}")
