"""Who made a pod, and how many pods its gang has: Jobs, JobSets, PyTorchJobs, TrainJobs, and plain pods.

A pod tells most by its labels, annotations and environment. What it can't tell (the parallelism of its Job) is read
from its owner; where that isn't allowed, or the owner's kind isn't served, the pod's own account has to do.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from compass_abs.engines.kubernetes import names, pods
from compass_abs.engines.kubernetes.client import ApiError, Client, Object

#: API groups of owners whose pods are a gang, by kind.
_GROUPS = {
    "Job": ("batch", "jobs"),
    "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "PyTorchJob": ("kubeflow.org", "pytorchjobs"),
    "TrainJob": ("trainer.kubeflow.org", "trainjobs"),
    "MPIJob": ("kubeflow.org", "mpijobs"),
    "StatefulSet": ("apps", "statefulsets"),
    "ReplicaSet": ("apps", "replicasets"),
}
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
_KUBEFLOW = "training.kubeflow.org/job-name"
_INDEX_MARKS = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "statefulset.kubernetes.io/pod-name",
)
#: What says how many pods there are, in pods that torchrun or an operator equipped.
_SIZE_VARIABLES = ("PET_NNODES", "NNODES")


class Membership(NamedTuple):
    """Which gang a pod belongs to."""

    namespace: str
    #: Name of the gang in its namespace.
    name: str
    #: Kind, name and uid of what makes its pods anew when they go; empty for plain pods.
    owner: tuple[str, str, str]
    #: What tells its members apart, in the order of their ranks.
    marks: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for members of one gang; of two gangs of one name the owner's uid tells which."""
        return self.namespace, self.name, self.owner[2] if self.owner else ""


def membership(pod: Object) -> Membership:
    """The gang that a pod's own marks put it into."""
    namespace, name = pods.key_of(pod)
    owner = controller_of(pod)
    jobset, kubeflow = pods.mark(pod, _JOBSET), pods.mark(pod, _KUBEFLOW)
    chosen = pods.mark(pod, names.JOB)
    if jobset:
        # Its pods belong to Jobs, which belong to the JobSet.
        owner = ("JobSet", jobset, pods.mark(pod, _JOBSET_UID))
        group = f"jobset-{jobset}"
    elif kubeflow:
        group = f"training-{kubeflow}"
    elif owner and owner[0] == "Job":
        group = f"job-{owner[1]}"
    else:
        group = name
    return Membership(namespace, chosen or group, owner or ("", "", ""), tuple(pods.mark(pod, k) for k in _INDEX_MARKS))


def order_of(pod: Object) -> tuple[Any, ...]:
    """Sorts the members of a gang as their ranks are: masters first, numbers as numbers."""
    _, name = pods.key_of(pod)
    parts = []
    for part in membership(pod).marks:
        parts.append((0 if part in ("master", "launcher") else 1, names.count(part, -1), part))
    return (*parts, len(name), name)


def controller_of(pod: Object) -> tuple[str, str, str] | None:
    """Kind, name and uid of the owner that replaces the pod when it goes."""
    for each in pods.metadata(pod).get("ownerReferences") or ():
        if each.get("controller"):
            return str(each.get("kind")), str(each.get("name")), str(each.get("uid"))
    return None


class Owners:
    """Reads owners."""

    def __init__(self, client: Client, resource: str) -> None:
        self._client, self._resource = client, resource

    def find(self, namespace: str, kind: str, name: str) -> Object | None:
        """An owner; None when it is gone, or can't be read."""
        group, plural = _GROUPS.get(kind, ("", ""))
        if not plural:
            return None
        try:
            path = self._client.path(group, plural, namespace)
            return self._client.find(f"{path}/{name}") if path is not None else None
        except ApiError:
            return None

    def is_gone(self, pod: Object) -> bool:
        """True when a pod's owner is gone, or going: nobody will make it anew."""
        owner = controller_of(pod)
        if owner is None or owner[0] not in _GROUPS:
            return owner is None
        group, plural = _GROUPS[owner[0]]
        path = self._client.path(group, plural, pods.key_of(pod)[0])
        if path is None:
            return False
        try:
            found = self._client.find(f"{path}/{owner[1]}")
        except ApiError:
            return False
        return found is None or pods.metadata(found).get("uid") != owner[2] or pods.is_deleted(found)

    def is_alone(self, pod: Object) -> bool:
        """True for a pod of a Job that works off a queue: more completions than pods at a time."""
        owner = controller_of(pod)
        if owner is None or owner[0] != "Job" or pods.mark(pod, names.JOB) or pods.mark(pod, _JOBSET):
            return False
        job = self.find(pods.key_of(pod)[0], *owner[:2])
        spec = (job or {}).get("spec") or {}
        return names.count(spec.get("completions")) > names.count(spec.get("parallelism"), 1)

    def size(self, pod: Object) -> int:
        """Pods of its gang; 1 for a pod on its own, 0 when nobody says."""
        said = pods.mark(pod, names.SIZE)
        if said:
            return names.count(said)
        namespace, _ = pods.key_of(pod)
        jobset, kubeflow = pods.mark(pod, _JOBSET), pods.mark(pod, _KUBEFLOW)
        owner = controller_of(pod)
        if jobset:
            return self._of_jobset(self.find(namespace, "JobSet", jobset)) or self._by_environment(pod)
        if kubeflow:
            kind = owner[0] if owner else "PyTorchJob"
            return self._of_replicas(self.find(namespace, kind, kubeflow)) or self._by_environment(pod)
        if owner and owner[0] == "Job":
            return _of_job(self.find(namespace, *owner[:2])) or self._by_environment(pod)
        return 0 if pods.mark(pod, names.JOB) else 1

    def _of_jobset(self, jobset: Object | None) -> int:
        total = 0
        for replicated in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or ():
            job = (replicated.get("template") or {}).get("spec") or {}
            if self._wants_gpus(job.get("template")):
                total += names.count(replicated.get("replicas"), 1) * names.count(job.get("parallelism"), 1)
        return total

    def _of_replicas(self, job: Object | None) -> int:
        """PyTorchJobs and their like: replica types with a template each."""
        spec = (job or {}).get("spec") or {}
        types: Mapping[str, Any] = next((value for key, value in spec.items() if key.endswith("ReplicaSpecs")), {})
        return sum(
            names.count(each.get("replicas"), 1)
            for each in types.values()
            if each and self._wants_gpus(each.get("template"))
        )

    def _wants_gpus(self, template: Mapping[str, Any] | None) -> bool:
        pod = {"metadata": {"name": "template", "namespace": ""}, "spec": (template or {}).get("spec") or {}}
        return pods.gpus_of(pod, self._resource) > 0

    def _by_environment(self, pod: Object) -> int:
        """What torchrun's variables say: pods, not processes."""
        variables = {
            str(each.get("name")): str(each.get("value", ""))
            for container in (pod.get("spec") or {}).get("containers") or ()
            for each in container.get("env") or ()
        }
        for name in _SIZE_VARIABLES:
            if size := names.count(variables.get(name)):
                return size
        # Processes on each may be "auto" or "gpu", too.
        return names.count(variables.get("WORLD_SIZE")) // max(names.count(variables.get("PET_NPROC_PER_NODE"), 1), 1)


def _of_job(job: Object | None) -> int:
    """A Job's pods that run together: all of them, or one by one where they share out a queue of work."""
    spec = (job or {}).get("spec") or {}
    if not job:
        return 0
    parallelism = names.count(spec.get("parallelism"), 1)
    completions = names.count(spec.get("completions"), parallelism)
    return completions if completions <= parallelism else 1
