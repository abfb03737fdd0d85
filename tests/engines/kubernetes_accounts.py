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


def kubeconfig_of(kubernetes: KubernetesCluster, account: str, path: Path) -> Path:
    """A kubeconfig with this service account's token, as its pods get it."""
    client = kubernetes.client()
    wanted = {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted}
    answer = client.create(f"/api/v1/namespaces/compass-abs/serviceaccounts/{account}/token", asked)
    client.close()
    document = yaml.safe_load(kubernetes.kubeconfig.read_text())
    document["users"] = [{"name": "admin", "user": {"token": answer["status"]["token"]}}]
    document["contexts"][0]["context"]["namespace"] = "compass-abs"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@contextmanager
def recorded(account: Path) -> Iterator[tuple[Path, list[str]]]:
    """A way to the API server, as an account, that notes every request: a kubeconfig, and what was asked."""
    upstream = Client.connect(kubeconfig=account).access
    http = httpx.Client(base_url=upstream.server, verify=upstream.tls, auth=upstream.auth, timeout=60)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Passes on, and notes."""

        def _pass_on(self) -> None:
            asked.append(f"{self.command} {self.path}")
            size = int(self.headers.get("Content-Length") or 0)
            kept = {key: self.headers[key] for key in ("Accept", "Content-Type") if self.headers[key]}
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
    document = yaml.safe_load(account.read_text())
    document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    way = account.with_name("recorded")
    way.write_text(yaml.safe_dump(document))
    try:
        yield way, asked
    finally:
        server.shutdown()
        http.close()


def pod(name: str, gpus: int, node: str = "", **labels: str) -> dict[str, object]:
    """A pod of somebody else's scheduler, on a node where one is given; it does nothing for long."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "resources": resources}
    spec: dict[str, object] = {"schedulerName": "other", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    return json.loads(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))  # type: ignore[no-any-return]
