"""Which nodes a pod's own rules let it run on: node selector, required node affinity, taints."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from compass_abs.audit.values import items, mapping, shown, text

#: Taints that say how a node is, not whom it is for; a node that has them isn't up.
CONDITION_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/",
    "node.cilium.io/agent-not-ready",
)


class Taint(NamedTuple):
    """A mark on a node that keeps away pods without a matching toleration."""

    key: str
    value: str
    effect: str

    @property
    def keeps_away(self) -> bool:
        """False for one that only discourages, or that says how the node is."""
        return self.effect in ("NoSchedule", "NoExecute") and not self.key.startswith(CONDITION_TAINTS)

    @property
    def closes(self) -> bool:
        """Whether it says that the node takes nobody now."""
        return self.effect in ("NoSchedule", "NoExecute") and self.key.startswith(CONDITION_TAINTS)


class Place(NamedTuple):
    """What rules look at in a node."""

    name: str
    labels: Mapping[str, Any]
    taints: tuple[Taint, ...]


def taints_of(spec: Mapping[str, Any], where: str) -> tuple[Taint, ...]:
    """The taints of a node, in order."""
    found = []
    for k, entry in enumerate(items(spec.get("taints"), f"{where}: taints")):
        taint = mapping(entry, f"{where}: taints[{k}]")
        parts = (text(taint.get(key), f"{where}: taints[{k}]: {key}") for key in ("key", "value", "effect"))
        found.append(Taint(*parts))
    return tuple(sorted(found))


class Rules:
    """The rules of one pod; pods of one template have equal rules."""

    __slots__ = ("_affinity", "_selector", "_tolerations", "_where")

    def __init__(self, spec: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._selector = mapping(spec.get("nodeSelector"), f"{where}: nodeSelector")
        affinity = mapping(spec.get("affinity"), f"{where}: affinity")
        node_affinity = mapping(affinity.get("nodeAffinity"), f"{where}: nodeAffinity")
        self._affinity = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._tolerations = items(spec.get("tolerations"), f"{where}: tolerations")

    @property
    def signature(self) -> str:
        """Equal for equal rules."""
        return repr((self._selector, self._affinity, self._tolerations))

    def allow(self, place: Place) -> bool:
        """Whether a pod with these rules may run there."""
        for key, value in self._selector.items():
            if place.labels.get(key) != value:
                return False
        if self._affinity is not None and not self._selects(place):
            return False
        return all(self._tolerates(taint) for taint in place.taints if taint.keeps_away)

    def __str__(self) -> str:
        parts = [f"{key}={value}" for key, value in self._selector.items()]
        if self._affinity is not None:
            parts.append("its node affinity")
        return ", ".join(parts) or "its tolerations"

    def _tolerates(self, taint: Taint) -> bool:
        where = f"{self._where}: tolerations"
        for entry in self._tolerations:
            toleration = mapping(entry, where)
            if toleration.get("effect") not in (None, "", taint.effect):
                continue
            key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
            if operator == "Exists" and key in (None, "", taint.key):
                return True
            if operator == "Equal" and key == taint.key and (toleration.get("value") or "") == taint.value:
                return True
        return False

    def _selects(self, place: Place) -> bool:
        """Any term, and in a term every expression."""
        where = f"{self._where}: nodeAffinity"
        terms = items(mapping(self._affinity, where).get("nodeSelectorTerms"), where)
        return any(self._term(mapping(term, where), place, where) for term in terms)

    def _term(self, term: Mapping[str, Any], place: Place, where: str) -> bool:
        by_label, by_field = items(term.get("matchExpressions"), where), items(term.get("matchFields"), where)
        if not by_label and not by_field:
            return False
        fields = {"metadata.name": place.name}
        return all(_matches(mapping(each, where), place.labels) for each in by_label) and all(
            _matches(mapping(each, where), fields) for each in by_field
        )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    values = items(expression.get("values"), f"values of {key}")
    value = labels.get(key)
    if operator == "In":
        return key in labels and value in values
    if operator == "NotIn":
        return key not in labels or value not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator in ("Gt", "Lt") and len(values) == 1:
        try:
            have, bound = int(str(value)), int(str(values[0]))
        except ValueError:
            return False
        return have > bound if operator == "Gt" else have < bound
    return False


def unmodelled(spec: Mapping[str, Any], where: str) -> str:
    """Rules about other pods, which the audit knows nothing of; empty when there are none."""
    affinity = mapping(spec.get("affinity"), f"{where}: affinity")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for kind in ("podAffinity", "podAntiAffinity"):
        if mapping(affinity.get(kind), f"{where}: {kind}").get(required):
            return "pod affinity"
    for entry in items(spec.get("topologySpreadConstraints"), f"{where}: topologySpreadConstraints"):
        if mapping(entry, f"{where}: {shown(entry)}").get("whenUnsatisfiable") == "DoNotSchedule":
            return "topology spread"
    return ""
