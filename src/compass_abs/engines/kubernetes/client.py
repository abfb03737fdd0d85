"""The Kubernetes API as plain JSON over HTTP: what a scheduler needs of it, with every server from 1.20 on.

Objects are the dictionaries that the server sent, nothing of them left out: a pod of tomorrow's API can be copied with
fields that this client has never heard of. Which version of an API is served is asked, not assumed.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from compass_abs.engines.kubernetes.access import Access, find_access
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError

Object = dict[str, Any]

#: Objects of one answer; a server holds that many in memory at once.
_PAGE = 500
#: An API server gives up on a request after 60 s.
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
#: How long a watch is asked to last. The server ends it earlier when it has to.
_WATCH_SECONDS = 290
#: A watch without a word for longer is taken for dead: bookmarks come about every minute.
_SILENCE = 120.0
#: Answers that say that somebody is too busy now, or restarting.
_NOT_NOW = (429, 500, 502, 503, 504)
_CONFLICT, _GONE, _NOT_FOUND = 409, 410, 404

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class ApiError(EngineRefusalError):
    """The server's no, with its code and its reason in one word (`NotFound`, `AlreadyExists`, `Forbidden`, ...)."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    @property
    def not_found(self) -> bool:
        """True when there is no such thing."""
        return self.code == _NOT_FOUND

    @property
    def conflict(self) -> bool:
        """True when it is there already, or has changed meanwhile."""
        return self.code == _CONFLICT


class GoneError(EngineRefusalError):
    """A watch can't go on from this version: list again."""


class DisruptionBudgetError(EngineRefusalError):
    """An eviction that a PodDisruptionBudget forbids now."""


class WatchEvent(NamedTuple):
    """A change: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`, and the object as it is now."""

    kind: str
    object: Object

    @property
    def version(self) -> str:
        """The version to go on from."""
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class Listing(NamedTuple):
    """Everything of a kind at one moment."""

    items: list[Object]
    #: What a watch goes on from.
    version: str


class Client:
    """One API server. Thread-safe; every call blocks. Raises `ApiError` for a no, `EngineUnavailableError` for silence.

    `server.create("/api/v1/namespaces/default/pods", pod)`; paths of other groups come from `path`.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.namespace = access.namespace
        limits = httpx.Limits(max_connections=128, max_keepalive_connections=64)
        extensions = {"sni_hostname": access.tls_server_name} if access.tls_server_name else {}
        self._extensions = extensions
        self._http = httpx.Client(
            base_url=access.server,
            verify=access.tls,
            auth=access.auth,
            timeout=_TIMEOUT,
            limits=limits,
            proxy=access.proxy,
            headers={"Accept": "application/json", "User-Agent": "compass-abs"},
        )
        self._lock = threading.Lock()
        #: Sockets of watches that are under way.
        self._watching: set[socket.socket] = set()
        self._closing = False
        self._versions: dict[str, tuple[str, ...]] | None = None
        self._resources: dict[str, frozenset[str]] = {}
        #: Asked before anything is changed; raises when this process must not act (any more).
        self.guard: Callable[[], None] = lambda: None

    @classmethod
    def connect(cls, context: str | None = None, kubeconfig: Path | None = None) -> "Client":
        """A client of the cluster that kubectl would talk to."""
        return cls(find_access(context, kubeconfig))

    def end_watches(self) -> None:
        """Ends every watch, from whatever thread: those that follow one are told that it broke."""
        with self._lock:
            self._closing = True
            for found in self._watching:
                with contextlib.suppress(OSError):
                    # Not the TLS layer's own shutdown: another thread is reading from that.
                    socket.socket.shutdown(found, socket.SHUT_RDWR)

    def close(self) -> None:
        """Lets go of the connections. Only once nobody follows a watch any more: see `end_watches`."""
        self._http.close()

    # ---- requests

    def get(self, path: str, **parameters: Any) -> Object:
        """One object."""
        return self._json("GET", path, parameters)

    def find(self, path: str) -> Object | None:
        """One object; None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def list(self, path: str, **parameters: Any) -> Listing:
        """All objects of a collection, asked for in pieces."""
        items: list[Object] = []
        asked = dict(parameters, limit=_PAGE)
        while True:
            try:
                page = self._json("GET", path, asked)
            except ApiError as error:
                if error.code != _GONE or "continue" not in asked:
                    raise
                # It took so long that the server has dropped this version: begin again, with everything at once.
                items, asked = [], dict(parameters)
                continue
            items += page.get("items") or ()
            metadata = page.get("metadata", {})
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion", "")))
            asked["continue"] = metadata["continue"]

    def watch(self, path: str, version: str, **parameters: Any) -> Iterator[WatchEvent]:
        """Changes since a version, as they happen, until the server ends it; go on from the last event's version.

        Raises `GoneError` when the version is too old.
        """
        asked = {
            **parameters,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": _WATCH_SECONDS,
        }
        timeout = httpx.Timeout(30.0, connect=10.0, read=_SILENCE)
        try:
            with self._http.stream("GET", path, params=asked, timeout=timeout, extensions=self._extensions) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    self._check(answer, "GET", path)
                with self._interruptible(answer):
                    for line in answer.iter_lines():
                        if line:
                            yield self._event(json.loads(line), path)
        except ApiError as error:
            if error.code == _GONE:
                raise GoneError(str(error)) from None
            raise
        except (httpx.HTTPError, ValueError) as error:
            raise EngineUnavailableError(f"watch of {path}: {_said(error)}") from None

    @contextlib.contextmanager
    def _interruptible(self, answer: httpx.Response) -> Iterator[None]:
        """While this lasts, `end_watches` breaks the connection."""
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        with self._lock:
            if self._closing:
                raise EngineUnavailableError("the client is being closed")
            self._watching.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._watching.discard(connection)

    @staticmethod
    def _event(value: Object, path: str) -> WatchEvent:
        if value.get("type") != "ERROR":
            return WatchEvent(str(value["type"]), value["object"])
        status = value.get("object", {})
        if status.get("code") == _GONE:
            raise GoneError(f"watch of {path}: {status.get('message')}")
        raise EngineUnavailableError(f"watch of {path}: {status.get('message')}")

    def create(self, path: str, body: Object, **parameters: Any) -> Object:
        """Makes an object of this collection."""
        return self._json("POST", path, parameters, body)

    def replace(self, path: str, body: Object) -> Object:
        """Replaces an object; `ApiError.conflict` when it isn't the version that `body` carries."""
        return self._json("PUT", path, {}, body)

    def patch(self, path: str, body: Any, kind: str = MERGE_PATCH) -> Object:
        """Changes some fields of an object."""
        return self._json("PATCH", path, {}, body, kind)

    def patch_if_there(self, path: str, body: Any) -> Object | None:
        """The same; None when there is no such object any more."""
        try:
            return self.patch(path, body)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def delete(self, path: str, *, grace: float | None = None, uid: str = "") -> bool:
        """Asks for an object's end; False when it (or the one with this uid) is gone already."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = int(grace)
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._json("DELETE", path, {}, options)
        except ApiError as error:
            if error.not_found or error.conflict:
                return False
            raise
        return True

    def text(self, path: str, **parameters: Any) -> bytes:
        """What isn't JSON: a container's log."""
        return self._request("GET", path, parameters).content

    # ---- what a scheduler does

    def bind(self, namespace: str, pod: str, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Binds a pod to a node, and writes annotations into it in the same step. `ApiError.conflict` when it is bound
        already. The server doesn't check that the node exists, nor that the pod fits.
        """
        metadata: Object = {"name": pod, "namespace": namespace}
        if annotations:
            metadata["annotations"] = dict(annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._request("POST", f"{pod_path(namespace, pod)}/binding", {}, body)

    def evict(self, namespace: str, pod: str, *, grace: float | None = None, uid: str = "") -> bool:
        """Evicts a pod if its disruption budgets allow it; False when it is gone already."""
        options: Object = {}
        if grace is not None:
            options["gracePeriodSeconds"] = int(grace)
        if uid:
            options["preconditions"] = {"uid": uid}
        # Without apiVersion: 1.20 knows policy/v1beta1 only, later servers no longer do.
        body = {"kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}, "deleteOptions": options}
        path = f"{pod_path(namespace, pod)}/eviction"
        answer = self._send("POST", path, {}, body)
        if answer.status_code == 429:
            raise DisruptionBudgetError(f"eviction of {namespace}/{pod}: {_message(answer)}")
        try:
            self._check(answer, "POST", path)
        except ApiError as error:
            if error.not_found or error.conflict:
                return False
            raise
        return True

    # ---- discovery

    def version(self) -> tuple[int, int]:
        """Major and minor number of the server."""
        said = self.get("/version")
        return int(said["major"]), int("".join(c for c in str(said["minor"]) if c.isdigit()) or 0)

    def path(self, group: str, plural: str, namespace: str = "") -> str | None:
        """Path of a collection in the version that the server prefers; None when it doesn't have it."""
        for version in self._served(group):
            if plural in self._resources_of(version):
                root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
                return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
        return None

    def forget_discovery(self) -> None:
        """Asks again next time: a custom resource may have come."""
        with self._lock:
            self._versions = None
            self._resources.clear()

    def _served(self, group: str) -> tuple[str, ...]:
        if not group:
            return ("v1",)
        with self._lock:
            known = self._versions
        if known is None:
            groups = self.get("/apis").get("groups") or ()
            known = {
                str(each["name"]): (
                    str(each.get("preferredVersion", {}).get("groupVersion", "")),
                    *(str(version["groupVersion"]) for version in each.get("versions") or ()),
                )
                for each in groups
            }
            with self._lock:
                self._versions = known
        return tuple(dict.fromkeys(version for version in known.get(group, ()) if version))

    def _resources_of(self, version: str) -> frozenset[str]:
        with self._lock:
            known = self._resources.get(version)
        if known is None:
            found = self.get(f"/api/{version}" if version == "v1" else f"/apis/{version}")
            known = frozenset(str(each["name"]) for each in found.get("resources") or ())
            with self._lock:
                self._resources[version] = known
        return known

    # ---- underneath

    def _json(
        self, method: str, path: str, parameters: Mapping[str, Any], body: Any = None, kind: str = "application/json"
    ) -> Object:
        answer = self._request(method, path, parameters, body, kind)
        try:
            found = json.loads(answer.content)
        except ValueError as error:
            raise EngineUnavailableError(f"{method} {path}: the answer is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise EngineUnavailableError(f"{method} {path}: the answer is {type(found).__name__}, expected an object")
        return found

    def _request(
        self, method: str, path: str, parameters: Mapping[str, Any], body: Any = None, kind: str = "application/json"
    ) -> httpx.Response:
        answer = self._send(method, path, parameters, body, kind)
        self._check(answer, method, path)
        return answer

    def _send(
        self, method: str, path: str, parameters: Mapping[str, Any], body: Any = None, kind: str = "application/json"
    ) -> httpx.Response:
        if method != "GET":
            self.guard()
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": kind} if content is not None else None
        try:
            return self._http.request(
                method, path, params=parameters, content=content, headers=headers, extensions=self._extensions
            )
        except httpx.HTTPError as error:
            raise EngineUnavailableError(f"{method} {self.access.server}{path}: {_said(error)}") from None

    def _check(self, answer: httpx.Response, method: str, path: str) -> None:
        if answer.status_code < 400:
            return
        said = _message(answer)
        if answer.status_code in _NOT_NOW:
            raise EngineUnavailableError(f"{method} {path}: {answer.status_code} {said}")
        try:
            reason = str(answer.json().get("reason", ""))
        except (ValueError, AttributeError):
            reason = ""
        raise ApiError(answer.status_code, reason, f"{method} {path}: {answer.status_code} {said}")


def pod_path(namespace: str, name: str = "") -> str:
    """Path of a pod, or of all pods of a namespace, or of all there are."""
    if not namespace:
        return "/api/v1/pods"
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300].strip()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
