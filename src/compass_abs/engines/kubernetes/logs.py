"""What containers print: asked of the server while the pod is there, kept in a file when it goes."""

import contextlib
from pathlib import Path

from compass_abs.engines.kubernetes import pods
from compass_abs.engines.kubernetes.client import ApiError, Client, Object, pod_path
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError, RunId

#: Of a log that is kept when its pod is removed.
_MOST_LOG = 16 << 20


def keep_log(client: Client, path: Path, pod: Object | None, namespace: str, name: str) -> None:
    """Writes a pod's log into a file, if it still has one and there is none."""
    if not path.exists():
        with contextlib.suppress(EngineRefusalError, EngineUnavailableError):
            path.write_bytes(_log(client, pod, namespace, name, limitBytes=_MOST_LOG))


def read_log(
    client: Client, run: RunId, pod: Object | None, namespace: str, name: str, offset: int, limit: int
) -> bytes:
    """Up to `limit` bytes of a pod's log from `offset`; negative offsets count from the end."""
    try:
        if offset >= 0:
            return _log(client, pod, namespace, name, limitBytes=max(1, offset + limit))[offset : offset + limit]
        # That many lines have that many bytes at least.
        return _log(client, pod, namespace, name, tailLines=-offset)[offset:][:limit]
    except ApiError as error:
        raise EngineRefusalError(f"{run} has no log: {error}") from None


def _log(client: Client, pod: Object | None, namespace: str, name: str, **parameters: int) -> bytes:
    containers = pods.containers_of(pod) if pod is not None else ()
    chosen = {"container": str(containers[0]["name"])} if containers else {}
    return client.text(f"{pod_path(namespace, name)}/log", **chosen, **parameters)
