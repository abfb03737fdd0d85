"""A copy of all objects of a kind that follows the server: one list, then a watch that is taken up where it broke."""

import threading
import time
import traceback
from collections.abc import Callable

from compass_abs.engines.kubernetes.client import Client, GoneError, Object
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError
from compass_abs.model import CompassError

#: First and longest pause before a server that doesn't answer is asked again.
_RETRY_FIRST, _RETRY_MOST = 0.1, 5.0
#: A watch that breaks and is taken up again at once loses nothing; only later is what we have called stale.
_PATIENCE = 2.0


class Collection:
    """Objects by namespace and name. `changed` is called without the lock, from the collection's own thread."""

    def __init__(self, client: Client, path: str, changed: Callable[[str, Object], None]) -> None:
        self._client = client
        self._path = path
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        #: Version of the latest event.
        self._seen = 0
        self._listed = threading.Event()
        #: Since when the server is silent, by the monotonic clock; None while it talks.
        self._silent_since: float | None = time.monotonic()
        self._why = "it has not answered yet"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"watch {path}", daemon=True)
        self._thread.start()

    def objects(self) -> list[Object]:
        """All of them, as far as is known; they must not be changed."""
        with self._lock:
            return list(self._objects.values())

    def get(self, namespace: str, name: str) -> Object | None:
        """One of them."""
        with self._lock:
            return self._objects.get((namespace, name))

    @property
    def listed(self) -> bool:
        """True once everything was seen."""
        return self._listed.is_set()

    def check(self, seconds: float = 30.0) -> None:
        """Waits for the first list. Raises `EngineUnavailableError` when what we have is stale."""
        if not self._listed.wait(seconds):
            raise EngineUnavailableError(f"{self._path}: {self._why}")
        since = self._silent_since
        if since is not None and time.monotonic() > since + _PATIENCE:
            raise EngineUnavailableError(f"{self._path}: {self._why}")

    def put(self, obj: Object) -> None:
        """An answer to one of our own requests: known before the watch tells."""
        with self._lock:
            if _version(obj) <= self._seen:
                return
            self._objects[_key(obj)] = obj
        self._tell("MODIFIED", obj)

    def close(self) -> None:
        """Stops following. The client's watches must have been ended."""
        self._closing.set()
        self._thread.join(60.0)

    # ---- following

    def _follow(self) -> None:
        version, pause = "", _RETRY_FIRST
        while not self._closing.is_set():
            try:
                if not version:
                    version = self._list()
                for event in self._client.watch(self._path, version):
                    if self._closing.is_set():
                        return
                    self._silent_since, pause = None, _RETRY_FIRST
                    version = event.version or version
                    self._take(event.kind, event.object)
            except GoneError:
                version = ""
            except (EngineUnavailableError, EngineRefusalError) as error:
                if self._silent_since is None:
                    self._silent_since = time.monotonic()
                self._why = str(error)
                self._closing.wait(pause)
                pause = min(pause * 2, _RETRY_MOST)
                if pause >= _RETRY_MOST / 2:
                    # A server that was restored from a backup counts versions anew.
                    version = ""

    def _list(self) -> str:
        listing = self._client.list(self._path)
        found = {_key(each): each for each in listing.items}
        with self._lock:
            before, self._objects = self._objects, found
            self._seen = int(listing.version) if listing.version.isdigit() else 0
        for key, obj in before.items():
            if key not in found:
                self._tell("DELETED", obj)
        for obj in listing.items:
            self._tell("MODIFIED", obj)
        # Not before everything was told: whoever waits for the list counts on what follows from it.
        self._silent_since = None
        self._listed.set()
        return listing.version

    def _take(self, kind: str, obj: Object) -> None:
        if kind == "BOOKMARK":
            return
        with self._lock:
            self._seen = max(self._seen, _version(obj))
            if kind == "DELETED":
                self._objects.pop(_key(obj), None)
            else:
                self._objects[_key(obj)] = obj
        self._tell(kind, obj)

    def _tell(self, kind: str, obj: Object) -> None:
        # An object that makes no sense must not keep the others from being seen.
        try:
            self._changed(kind, obj)
        except CompassError:
            return
        except Exception:
            # A defect, told with where it is; but one pod that somebody made up must not blind us to all others.
            traceback.print_exc()


def _key(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _version(obj: Object) -> int:
    """Versions are opaque, but every server that there is counts."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
