"""The API server, asked from worker threads and watched from one."""

import asyncio
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

type_of_patch = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server's answer was an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One connection a thread, kept open."""

    def __init__(self, server: str, token: str, authority: str, threads: int = 8) -> None:
        place = urlsplit(server)
        self.host, self.port = place.hostname or "", place.port or 443
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._context = ssl.create_default_context(cafile=authority)
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(threads, "api")

    async def call(self, method: str, path: str, body: object = None) -> dict:
        """The answer, tried again while the server can't be reached; raises ApiError."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.call_now, method, path, body)

    def call_now(self, method: str, path: str, body: object = None) -> dict:
        """The same, blocking."""
        patience = time.monotonic() + 60
        while True:
            try:
                return self._once(method, path, body)
            except (OSError, http.client.HTTPException):
                self._local.connection = None
                if time.monotonic() > patience:
                    raise
                time.sleep(0.05)
            except ApiError as error:
                if error.status not in (429, 500, 503, 504) or time.monotonic() > patience:
                    raise
                time.sleep(0.1)

    def _once(self, method: str, path: str, body: object) -> dict:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(30)
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = type_of_patch if method == "PATCH" else "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise ApiError(answer.status, data.decode(errors="replace")[:500])
        return json.loads(data)

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self._context)

    def follow(self, path: str, query: dict[str, str], changed: Callable[[str, dict], None]) -> None:
        """Lists and watches for ever: `changed(kind, object)`, with kind LISTED at the end of each list."""
        while True:
            try:
                listed = self.call_now("GET", f"{path}?{urlencode(query)}")
                for item in listed.get("items") or ():
                    changed("ADDED", item)
                changed("LISTED", listed)
                self._watch(path, query, listed["metadata"]["resourceVersion"], changed)
            except (OSError, http.client.HTTPException, ApiError, ValueError):
                time.sleep(0.2)

    def _watch(self, path: str, query: dict[str, str], version: str, changed: Callable[[str, dict], None]) -> None:
        connection = self._connect(3600)
        asked = urlencode({**query, "watch": "1", "resourceVersion": version})
        connection.request("GET", f"{path}?{asked}", headers=self._headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ApiError(answer.status, answer.read().decode(errors="replace"))
        while line := answer.readline():
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            changed(event["type"], event["object"])
