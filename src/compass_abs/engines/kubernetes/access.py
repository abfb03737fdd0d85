"""Where a cluster's API server is and how to be let in: a kubeconfig file with its contexts, or a pod's own account."""

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from compass_abs.model import CompassError

#: Where the kubelet puts a pod's own account.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: A credential plugin may open a browser; nobody waits for longer.
_PLUGIN_TIMEOUT = 120.0
#: A token of a plugin is renewed this long before it expires, one of a file is read again this often.
_RENEW_BEFORE, _READ_AGAIN = 60.0, 60.0


class AccessError(CompassError):
    """No way to the API server: what is missing, and where it was looked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server, and what proves who we are."""

    server: str
    tls: ssl.SSLContext | bool
    auth: httpx.Auth | None
    #: Namespace of the context, or of the pod that we are in.
    namespace: str = "default"
    #: What people call it.
    name: str = ""
    tls_server_name: str = ""
    proxy: str | None = field(default=None)


class _Token(httpx.Auth):
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = self._header
        yield request


class _TokenFile(httpx.Auth):
    """A token that somebody renews in its file."""

    def __init__(self, path: Path) -> None:
        self._path, self._token, self._read = path, "", -_READ_AGAIN

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if time.monotonic() >= self._read + _READ_AGAIN:
            self._token, self._read = self._path.read_text().strip(), time.monotonic()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._read = -_READ_AGAIN
            request.headers["Authorization"] = f"Bearer {self._path.read_text().strip()}"
            yield request


class _Plugin(httpx.Auth):
    """A credential plugin, as cloud providers' command line tools are."""

    def __init__(self, spec: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._command = [str(spec.get("command")), *map(str, spec.get("args") or ())]
        self._environment = {str(each["name"]): str(each["value"]) for each in spec.get("env") or ()}
        self._version = str(spec.get("apiVersion") or "client.authentication.k8s.io/v1")
        self._token, self._expires = "", 0.0

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if not self._token or time.time() >= self._expires - _RENEW_BEFORE:
            self._renew()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._renew()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _renew(self) -> None:
        asked = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        try:
            done = subprocess.run(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PLUGIN_TIMEOUT,
                check=True,
            )
            status = json.loads(done.stdout)["status"]
            self._token = str(status["token"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            said = getattr(error, "stderr", b"") or b""
            raise AccessError(
                f"{self._where}: {self._command[0]} gave no token: {error} {said.decode(errors='replace').strip()}; "
                "run it by hand to see why"
            ) from None
        expires = status.get("expirationTimestamp")
        self._expires = datetime.fromisoformat(expires).timestamp() if expires else float("inf")


# ---- finding it


def find_access(context: str | None = None, kubeconfig: Path | None = None) -> Access:
    """The given kubeconfig's, or `KUBECONFIG`'s, or the pod's own, or `~/.kube/config`'s; in this order."""
    if kubeconfig is not None:
        return from_kubeconfig([kubeconfig], context)
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return from_kubeconfig(named, context)
    if context is None and "KUBERNETES_SERVICE_HOST" in os.environ and (_ACCOUNT / "token").exists():
        return in_cluster()
    return from_kubeconfig([Path.home() / ".kube" / "config"], context)


def in_cluster(account: Path = _ACCOUNT) -> Access:
    """The API server of the cluster that this process runs in, as its pod's service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AccessError("KUBERNETES_SERVICE_HOST is not set: this process is not in a pod; give a kubeconfig")
    host = f"[{host}]" if ":" in host else host
    try:
        namespace = (account / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return Access(f"https://{host}:{port}", tls, _TokenFile(account / "token"), namespace, "in-cluster")


def from_kubeconfig(paths: list[Path], context: str | None = None) -> Access:
    """What the files say together; of two entries of one name the first counts, as for kubectl."""
    found: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise AccessError(f"there is no kubeconfig {' or '.join(map(str, paths))}; set KUBECONFIG, or run in a pod")
    for path in existing:
        document = _load(path)
        current = current or str(document.get("current-context") or "")
        for kind, known in found.items():
            for entry in document.get(kind) or ():
                known.setdefault(str(entry.get("name")), (entry.get(kind[:-1]) or {}, path))
    name = context or current
    if name not in found["contexts"]:
        known_names = ", ".join(sorted(found["contexts"])) or "none"
        raise AccessError(f"{existing[0]}: there is no context {name!r}; known: {known_names}")
    chosen, path = found["contexts"][name]
    cluster, cluster_path = _entry(found, "clusters", chosen.get("cluster"), path)
    user, user_path = _entry(found, "users", chosen.get("user"), path) if chosen.get("user") else ({}, path)
    return Access(
        server=str(cluster.get("server") or "").rstrip("/"),
        tls=_tls(cluster, cluster_path, user, user_path),
        auth=_auth(user, user_path),
        namespace=str(chosen.get("namespace") or "default"),
        name=name,
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy=cluster.get("proxy-url"),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise AccessError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise AccessError(f"{path}: expected a kubeconfig, with clusters, users and contexts")
    return document


def _entry(
    found: dict[str, dict[str, tuple[dict[str, Any], Path]]], kind: str, name: object, path: Path
) -> tuple[dict[str, Any], Path]:
    if str(name) not in found[kind]:
        raise AccessError(f"{path}: there is no {name!r} among its {kind}")
    return found[kind][str(name)]


def _bytes(entry: Mapping[str, Any], key: str, path: Path) -> bytes | None:
    """A certificate or key that is in the file itself, or in one beside it."""
    if entry.get(f"{key}-data"):
        return base64.b64decode(entry[f"{key}-data"])
    if entry.get(key):
        return (path.parent / str(entry[key])).read_bytes()
    return None


def _tls(
    cluster: Mapping[str, Any], cluster_path: Path, user: Mapping[str, Any], user_path: Path
) -> ssl.SSLContext | bool:
    if str(cluster.get("server", "")).startswith("http://"):
        return False
    try:
        authority = _bytes(cluster, "certificate-authority", cluster_path)
        certificate, key = (_bytes(user, f"client-{part}", user_path) for part in ("certificate", "key"))
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate and key:
            # OpenSSL reads them from a file only.
            with tempfile.NamedTemporaryFile() as file:
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
    except (OSError, ValueError) as error:
        raise AccessError(f"{cluster_path}: certificates: {error}") from None
    return context


def _auth(user: Mapping[str, Any], path: Path) -> httpx.Auth | None:
    if user.get("token"):
        return _Token(str(user["token"]))
    if user.get("tokenFile"):
        return _TokenFile(path.parent / str(user["tokenFile"]))
    if user.get("exec"):
        return _Plugin(user["exec"], str(path))
    if user.get("username"):
        return httpx.BasicAuth(str(user["username"]), str(user.get("password", "")))
    if user.get("auth-provider"):
        raise AccessError(f"{path}: auth-provider was removed from Kubernetes in 1.26; use an exec plugin")
    return None
