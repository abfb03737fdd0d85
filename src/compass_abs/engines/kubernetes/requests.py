"""What pods ask for beside GPUs: a node's kubelet turns a pod away that doesn't fit, whoever bound it there."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from compass_abs.engines.kubernetes.client import Object

_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<unit>[numkKMGTPE]?i?)")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {"E": 1e18, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
#: Sums of quantities like 0.1 don't come out exactly.
_SLACK = 1e-6


class Amounts(NamedTuple):
    """Of what nodes have, and pods ask for."""

    cpus: float = 0.0
    memory: float = 0.0
    pods: float = 0.0

    def plus(self, other: "Amounts") -> "Amounts":
        """Both together."""
        return Amounts(*(mine + others for mine, others in zip(self, other, strict=True)))

    def minus(self, other: "Amounts") -> "Amounts":
        """What is left."""
        return Amounts(*(mine - others for mine, others in zip(self, other, strict=True)))

    def most(self, other: "Amounts") -> "Amounts":
        """The larger of each."""
        return Amounts(*map(max, self, other))

    def shortage(self, wanted: "Amounts") -> str:
        """What of this isn't enough; empty when all is."""
        if wanted.cpus > self.cpus + _SLACK:
            return f"{wanted.cpus:g} CPUs are asked for, {max(self.cpus, 0.0):g} are left"
        if wanted.memory > self.memory + _SLACK:
            gibibyte = 2.0**30
            return f"{wanted.memory / gibibyte:.4g} GiB are asked for, {max(self.memory, 0.0) / gibibyte:.4g} are left"
        if wanted.pods > self.pods + _SLACK:
            return "it has as many pods as it may have"
        return ""


def quantity(value: object) -> float:
    """A quantity as Kubernetes writes it (`500m`, `1.5Gi`, `4`); 0 for what is none."""
    found = _QUANTITY.fullmatch(str(value).strip())
    if found is None or found["unit"] not in _UNITS:
        return 0.0
    try:
        return float(found["number"]) * _UNITS[found["unit"]]
    except ValueError:
        return 0.0


def capacity_of(allocatable: Mapping[str, Any]) -> Amounts:
    """What a node can give; without limit of what it says nothing."""
    given = [quantity(allocatable[name]) if name in allocatable else float("inf") for name in ("cpu", "memory", "pods")]
    return Amounts(*given)


def requests_of(pod: Object) -> Amounts:
    """What a pod asks for, as the scheduler of Kubernetes and its kubelets count it."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    running = Amounts(pods=1.0).plus(_amounts(spec.get("overhead")))
    for container in _list(spec, "containers"):
        running = running.plus(_requests(container))
    most = started = Amounts()
    for container in _list(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            # A sidecar: it stays.
            started = started.plus(_requests(container))
            most = most.most(started)
        else:
            most = most.most(started.plus(_requests(container)))
    return running.plus(started).most(most)


def _list(spec: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = spec.get(name) or ()
    return found


def _requests(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    # What is limited and not requested is requested.
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(values: Mapping[str, Any] | None) -> Amounts:
    given = values or {}
    return Amounts(quantity(given.get("cpu", 0)), quantity(given.get("memory", 0)))
