"""What the engine makes of a Pod object: what it holds, whether it runs, and how it ended."""

from collections.abc import Mapping, Sequence
from typing import Any

from compass_abs.audit.kubernetes_pods import read_pod
from compass_abs.engines.kubernetes import names
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.protocol import End, EndCause, RunId

#: Why a pod is over that its program has no part in. What isn't known counts as somebody else's doing, too.
_LIMITS = ("DeadlineExceeded",)
_OUT_OF_MEMORY = "OOMKilled"
#: Exit codes of a program that ended on TERM: by itself with 0, or as the shell counts signals.
TERMINATED = (0, 143)


def metadata(pod: Object) -> Mapping[str, Any]:
    """Its metadata."""
    found: Mapping[str, Any] = pod["metadata"]
    return found


def key_of(pod: Object) -> tuple[str, str]:
    """Namespace and name."""
    return str(metadata(pod).get("namespace", "")), str(metadata(pod)["name"])


def mark(pod: Object, name: str) -> str:
    """What an annotation, or else a label, says; empty when neither does."""
    found = metadata(pod)
    value = (found.get("annotations") or {}).get(name) or (found.get("labels") or {}).get(name)
    return str(value) if value is not None else ""


def run_of(pod: Object, owner: str) -> RunId | None:
    """Which run of this controller's it is; None for a pod of somebody else."""
    annotations = metadata(pod).get("annotations") or {}
    if annotations.get(names.OWNER) != owner:
        return None
    return names.parse_run(str(annotations.get(names.RUN, "")))


def created(pod: Object) -> str:
    """When it was made, as the server writes it: comparable as text."""
    return str(metadata(pod).get("creationTimestamp") or "")


def order_of_creation(pod: Object) -> tuple[str, int]:
    """Sorts pods as they were made; those of one second by version, which says so until somebody changes them."""
    return created(pod), names.count(metadata(pod).get("resourceVersion"))


def node_of(pod: Object) -> str:
    """The node that it is bound to; empty when it isn't."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def gpus_of(pod: Object, resource: str) -> int:
    """GPUs that it holds, or wants; counted as the audit counts them."""
    namespace, name = key_of(pod)
    # One that has ended counts for nothing there.
    read = read_pod({**pod, "status": {}}, (resource,), f"pod {namespace}/{name}")
    return read.gpus if read is not None else 0


def phase_of(pod: Object) -> str:
    """`Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_deleted(pod: Object) -> bool:
    """True when somebody has asked for its end."""
    return bool(metadata(pod).get("deletionTimestamp"))


def containers_of(pod: Object) -> Sequence[Mapping[str, Any]]:
    """Its containers, as it asks for them."""
    found: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    return found


def _statuses(pod: Object) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    return found


def is_disrupted(pod: Object) -> bool:
    """True for a pod that was evicted or preempted for the cluster's reasons, as servers from 1.26 on tell."""
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "DisruptionTarget" and each.get("status") == "True" for each in conditions)


def is_running(pod: Object) -> bool:
    """True when all of its containers have been started."""
    return phase_of(pod) == "Running" and any((each.get("state") or {}).get("running") for each in _statuses(pod))


def is_over(pod: Object) -> bool:
    """True when its processes are gone: then its GPUs are free, however long the object stays."""
    if phase_of(pod) in ("Succeeded", "Failed"):
        return True
    states = [each.get("state") or {} for each in _statuses(pod)]
    return is_deleted(pod) and bool(states) and all("terminated" in state for state in states)


def waits_for_a_gate(pod: Object) -> str:
    """Names of gates that keep it from being scheduled, whatever room there is."""
    return ", ".join(str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def end_of(pod: Object, *, asked: bool) -> End:
    """How a pod that is over ended; `asked` when we wanted it to."""
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    worst = _worst(pod)
    if reason:
        cause = EndCause.LIMIT if reason in _LIMITS else EndCause.EVICTED
        return End(cause, 0, f"{reason}: {message}".rstrip(": "))
    if worst is None:
        if phase_of(pod) == "Succeeded":
            return End(EndCause.EXITED, 0)
        return End(EndCause.UNKNOWN, detail=message or "its pod says nothing of its containers")
    code, why = int(worst.get("exitCode", 0)), str(worst.get("reason") or "")
    if why == _OUT_OF_MEMORY:
        return End(EndCause.LIMIT, code, "out of memory")
    if asked:
        return End(EndCause.EXITED, 0) if code in TERMINATED else End(EndCause.SIGNALLED, max(code - 128, 0), why)
    if is_deleted(pod):
        # It may well have saved and left with 0: that doesn't make it a job that has done its work.
        return End(EndCause.EVICTED, code, "its pod was deleted or evicted by others")
    return End(EndCause.EXITED, code, "" if why in ("Completed", "Error") else why)


def _worst(pod: Object) -> Mapping[str, Any] | None:
    """The state of the container that failed, or of the first that ended."""
    ends = [end for each in _statuses(pod) if (end := (each.get("state") or {}).get("terminated"))]
    failed = [end for end in ends if int(end.get("exitCode", 0))]
    return next(iter(failed or ends), None)
