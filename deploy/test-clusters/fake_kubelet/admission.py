"""What a node has, and which pods it refuses: the API server binds whatever it is told."""

from dataclasses import dataclass

UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: object) -> float:
    """A number as Kubernetes writes it: `500m`, `64Gi`."""
    digits = str(text).rstrip("mkMGTKi")
    return float(digits) * UNITS[str(text)[len(digits) :]]


@dataclass(frozen=True)
class Capacity:
    """The hardware of a node."""

    gpus: int
    product: str
    resource: str = "nvidia.com/gpu"
    cpus: int = 128
    memory: str = "1024Gi"
    pods: int = 250

    def resources(self) -> dict[str, str]:
        """As in a node's status."""
        own = {"cpu": str(self.cpus), "memory": self.memory, "pods": str(self.pods)}
        return {**own, self.resource: str(self.gpus)} if self.gpus else own

    def gpus_of(self, container: dict) -> int:
        """How many GPUs a container is to get."""
        resources = container.get("resources") or {}
        return int(quantity((resources.get("limits") or {}).get(self.resource, 0)))


def requested(manifest: dict, resource: str) -> float:
    """What a pod's containers request of a resource, together."""
    found = 0.0
    for container in manifest["spec"]["containers"]:
        resources = container.get("resources") or {}
        found += quantity((resources.get("requests") or {}).get(resource, 0))
    return found


def refusal(manifest: dict, others: list[dict], capacity: Capacity, free_gpus: int) -> tuple[str, str] | None:
    """Reason and message, where the node can't run the pod beside the others; in the words of a real kubelet."""
    wanted = sum(capacity.gpus_of(container) for container in manifest["spec"]["containers"])
    if wanted > free_gpus:
        return (
            "UnexpectedAdmissionError",
            f"Allocate failed due to requested number of devices unavailable for {capacity.resource}. "
            f"Requested: {wanted}, Available: {free_gpus}, which is unexpected",
        )
    if len(others) + 1 > capacity.pods:
        return "OutOfpods", f"Node didn't have enough resource: pods, requested: 1, capacity: {capacity.pods}"
    for resource, total in (("cpu", float(capacity.cpus)), ("memory", quantity(capacity.memory))):
        needed, used = requested(manifest, resource), sum(requested(other, resource) for other in others)
        if needed and needed + used > total:
            figures = f"requested: {needed:.15g}, used: {used:.15g}, capacity: {total:.15g}"
            return f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {figures}"
    return None
