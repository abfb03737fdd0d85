"""PodDisruptionBudgets: what they allow now, and what they would never allow."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compass_abs.engines.kubernetes import names, pods
from compass_abs.engines.kubernetes.client import Client, Object
from compass_abs.engines.protocol import EngineRefusalError


def check_budgets(client: Client, gang: Sequence[Object]) -> None:
    """Refuses when evicting all of these pods would violate a budget now."""
    for budget, covered in _budgets(client, gang):
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed", 0))
        if covered > allowed:
            raise EngineRefusalError(f"{_name(budget)} lets {allowed} pods be disrupted now, a move takes {covered}")


def static_limit(client: Client, gang: Sequence[Object]) -> str:
    """Why a gang can never be moved under its budgets; empty when it can."""
    for budget, covered in _budgets(client, gang):
        spec = budget.get("spec") or {}
        if "maxUnavailable" in spec:
            most = _pods(spec["maxUnavailable"], covered)
        else:
            most = covered - _pods(spec.get("minAvailable", 1), covered)
        if covered > most:
            return f"{_name(budget)} lets at most {max(most, 0)} of its {covered} pods be disrupted at once"
    return ""


def _budgets(client: Client, gang: Sequence[Object]) -> list[tuple[Object, int]]:
    """Budgets that cover some of these pods, and how many."""
    if not gang:
        return []
    path = client.path("policy", "poddisruptionbudgets", pods.key_of(gang[0])[0])
    if path is None:
        return []
    found = []
    for budget in client.list(path).items:
        covered = sum(selects((budget.get("spec") or {}).get("selector"), pod) for pod in gang)
        if covered:
            found.append((budget, covered))
    return found


def _name(budget: Object) -> str:
    return "PodDisruptionBudget " + "/".join(pods.key_of(budget))


def _pods(value: object, total: int) -> int:
    """A number of pods, or a share of them, rounded up as Kubernetes does."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-names.count(value[:-1]) * total // 100)
    return names.count(value)


def selects(selector: Mapping[str, Any] | None, pod: Object) -> bool:
    """Whether a label selector of Kubernetes selects a pod; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    labels = pods.metadata(pod).get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches(each, labels) for each in _expressions(selector))


def _expressions(selector: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = selector.get("matchExpressions") or ()
    return found


def _matches(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = str(expression.get("key")), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
