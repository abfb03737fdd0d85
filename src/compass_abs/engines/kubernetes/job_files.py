"""The job file that says the same as the pods of a gang."""

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from compass_abs.audit.kubernetes_pods import MOVABLE, read_pod
from compass_abs.audit.kubernetes_rules import Rules, unmodelled
from compass_abs.engines.kubernetes import gangs, names, pods
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.gangs import Gang
from compass_abs.engines.kubernetes.nodes import GpuNode
from compass_abs.engines.kubernetes.requests import Amounts, requests_of
from compass_abs.engines.protocol import CheckpointMode, EngineRefusalError

#: Priorities of Kubernetes reach a thousand million; the controller's order needs no more than these.
_PRIORITIES = (-1000, 1000)
_DEFAULT_GRACE = 30.0
#: Kinds of gangs that are remembered: pods that each ask for something else would fill the memory.
_MOST_KINDS = 1000


def job_name(gang: Gang) -> str:
    """The name of its job: people know the gang by it, and no other gang has it."""
    return f"{gang.namespace}/{gang.name}"[:180] + f" ({gang.key[:8]})"


def job_fields(gang: Gang, members: Sequence[Object], resource: str, pool: str, pinned: str) -> dict[str, Any]:
    """The job file; `pinned` is why it can't be moved, whatever it says itself. Refuses what can't be run."""
    first = members[0]
    for pod in members:
        _check(pod, resource)
    demand = {pods.gpus_of(pod, resource) for pod in members}
    if len(demand) > 1:
        raise EngineRefusalError(f"its pods ask for {sorted(demand)} GPUs; a gang's must ask for equally many")
    fields: dict[str, Any] = {
        "name": job_name(gang),
        "instances": len(members),
        "gpus_per_instance": demand.pop(),
        "command": [gangs.COMMAND, gang.key],
        "pool": pool,
        "priority": min(max(int((first["spec"].get("priority")) or 0), _PRIORITIES[0]), _PRIORITIES[1]),
        "labels": {"kubernetes-namespace": gang.namespace, "kubernetes-gang": gang.name[:1000]},
    }
    retries = names.count(pods.mark(first, names.RETRIES))
    if retries and not gang.owned:
        fields["retries"] = retries
    said = checkpoint_mode(first)
    if said == CheckpointMode.SESSION and not gang.control_dir:
        raise EngineRefusalError(f"{names.CHECKPOINT} is session, and {names.CONTROL_DIR} names no folder")
    if gang.control_dir and (not gang.control_dir.startswith("/") or ".." in gang.control_dir.split("/")):
        raise EngineRefusalError(f"{names.CONTROL_DIR} is {gang.control_dir!r}, expected an absolute path without '..'")
    grace = float(first["spec"].get("terminationGracePeriodSeconds") or _DEFAULT_GRACE)
    checkpoint: dict[str, Any] = {"mode": said or CheckpointMode.PERIODIC.value, "grace": grace}
    if said == CheckpointMode.SIGNAL:
        # The kubelet sends TERM, or what the image asks for instead.
        checkpoint |= {"signal": "TERM", "timeout": grace}
    return fields | {"checkpoint": checkpoint, "movable": bool(said) and not pinned and not gang.alone}


def checkpoint_mode(pod: Object) -> str:
    """How a pod says that it can be moved; empty when it can't."""
    said = pods.mark(pod, names.CHECKPOINT)
    if not said and pods.mark(pod, MOVABLE) == "true":
        said = CheckpointMode.PERIODIC
    if said not in ("", *CheckpointMode):
        raise EngineRefusalError(f"{names.CHECKPOINT} is {said!r}, expected one of: {', '.join(CheckpointMode)}")
    return said


class PoolChoice:
    """Chooses pools for gangs: once for all that are alike, as long as the nodes stay what they are."""

    def __init__(self, pools: Callable[[], Mapping[str, Sequence[GpuNode]]], changes: Callable[[], int]) -> None:
        self._pools, self._changes = pools, changes
        self._looked = -1
        self._chosen: dict[Hashable, str] = {}

    def of(self, members: Sequence[Object]) -> str:
        """The pool for a gang of these pods; refuses when there is none."""
        changes = self._changes()
        if changes != self._looked or len(self._chosen) > _MOST_KINDS:
            self._looked = changes
            self._chosen.clear()
        kind = (pods.mark(members[0], names.POOL), frozenset(_rules(members)), _largest(members))
        if kind not in self._chosen:
            self._chosen[kind] = choose_pool(members, self._pools())
        return self._chosen[kind]


def _rules(members: Sequence[Object]) -> dict[str, Rules]:
    """What they say of nodes, each rule once."""
    return {found.signature: found for found in (Rules(pod["spec"], pods.key_of(pod)[1]) for pod in members)}


def _largest(members: Sequence[Object]) -> Amounts:
    return functools.reduce(Amounts.most, map(requests_of, members))


def choose_pool(members: Sequence[Object], pools: Mapping[str, Sequence[GpuNode]]) -> str:
    """A pool all of whose nodes every member may use, and is small enough for; the largest of several."""
    chosen = pods.mark(members[0], names.POOL)
    rules, largest = _rules(members), _largest(members)
    partly = small = ""
    full: list[tuple[int, str]] = []
    for pool, nodes in pools.items():
        if chosen and pool != chosen:
            continue
        allowed = sum(all(each.allow(node.place) for each in rules.values()) for node in nodes)
        short = next(filter(None, (node.capacity.shortage(largest) for node in nodes)), "")
        if allowed == len(nodes) and not short:
            full.append((-allowed, pool))
        elif allowed == len(nodes):
            small = f"{short} on an empty node of pool {pool!r}"
        elif allowed:
            partly = f"allows {allowed} of the {len(nodes)} nodes of pool {pool!r}"
    if full:
        return min(full)[1]
    if small:
        raise EngineRefusalError(small)
    said = next(iter(rules.values()))
    if partly:
        raise EngineRefusalError(
            f"{said} {partly}, and nodes of a pool are interchangeable; label those nodes {names.POOL}=NAME to "
            "give them a pool of their own, or let the pods run on all of it"
        )
    where = f"in pool {chosen!r} " if chosen else ""
    raise EngineRefusalError(f"no node with GPUs {where}may be used by it: {said}")


def _check(pod: Object, resource: str) -> None:
    namespace, name = pods.key_of(pod)
    where = f"pod {namespace}/{name}"
    read = read_pod({**pod, "status": {}}, (resource,), where)
    if read is None:
        raise EngineRefusalError(f"{name} asks for no {resource}; leave it to the cluster's own scheduler")
    if read.uncountable:
        raise EngineRefusalError(f"{name} wants {read.uncountable}; only whole GPUs are given out")
    if what := unmodelled(pod["spec"], where):
        raise EngineRefusalError(f"{name} has rules about {what}, which are not known here")
