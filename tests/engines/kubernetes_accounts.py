"""Service accounts of the manifests, and an API server that one watches being talked to."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import yaml

from compass_abs.engines.kubernetes.client import Client
from tests.engines.kubernetes_cluster import KubernetesCluster, binaries

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def apply(kubernetes: KubernetesCluster, overlay: str) -> None:
    """What the documentation says: kubectl apply -k."""
    kubernetes.kubectl("apply", "-k", str(MANIFESTS / overlay))


def rendered(overlay: str) -> list[dict[str, object]]:
    """The objects of an overlay."""
    done = subprocess.run(
        [str(binaries() / "kubectl"), "kustomize", str(MANIFESTS / overlay)], capture_output=True, text=True, check=True
    )
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def kubeconfig_of(kubernetes: KubernetesCluster, account: str, path: Path, server: str = "") -> Path:
    """A kubeconfig with this service account's token, as its pods get it; `server` for another way there."""
    client = kubernetes.client()
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    asked["spec"]["audiences"] = ["https://kubernetes.default.svc"]  # type: ignore[index]
    answer = client.create(f"/api/v1/namespaces/compass-abs/serviceaccounts/{account}/token", asked)
    client.close()
    document = yaml.safe_load(kubernetes.kubeconfig.read_text())
    document["users"] = [{"name": "admin", "user": {"token": answer["status"]["token"]}}]
    document["contexts"][0]["context"]["namespace"] = "compass-abs"
    if server:
        document["clusters"][0]["cluster"] = {"server": server}
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@contextmanager
def recorded(kubernetes: KubernetesCluster) -> Iterator[tuple[str, list[str]]]:
    """A way to the API server that notes every request; its URL, and what was asked."""
    upstream = Client.connect(kubeconfig=kubernetes.kubeconfig)
    http = httpx.Client(base_url=upstream.access.server, verify=upstream.access.tls, timeout=60)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Passes on, and notes."""

        def _pass_on(self) -> None:
            asked.append(f"{self.command} {self.path}")
            size = int(self.headers.get("Content-Length") or 0)
            kept = {key: self.headers[key] for key in ("Accept", "Content-Type", "Authorization") if self.headers[key]}
            body = self.rfile.read(size)
            answer = http.request(self.command, self.path, headers=kept, content=body)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        http.close()
        upstream.close()


def pod(name: str, gpus: int, node: str = "", **labels: str) -> dict[str, object]:
    """A pod of somebody else's scheduler, on a node where one is given; it does nothing for long."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "resources": resources}
    spec: dict[str, object] = {"schedulerName": "other", "terminationGracePeriodSeconds": 0, "containers": [container]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    return json.loads(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))  # type: ignore[no-any-return]
