"""A cluster as the audit reads it, asked of the API server itself: where there is no kubectl, as in a pod."""

from compass_abs.audit.kubernetes import KubernetesOptions
from compass_abs.audit.observation import Observation
from compass_abs.audit.reading import observe_documents
from compass_abs.engines.kubernetes.client import Client


def look(client: Client, options: KubernetesOptions | None = None, time: float | None = None) -> Observation:
    """Nodes and pods of all namespaces. Reads, and nothing else."""
    documents = [
        (kind, {"kind": kind, "apiVersion": "v1", "items": client.list(path).items})
        for kind, path in (("NodeList", "/api/v1/nodes"), ("PodList", "/api/v1/pods"))
    ]
    return observe_documents(documents, client.access.name or client.access.server, options, time)
