"""Talks to a running controller, for the command line and for programs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

from compass_abs.engines.submitting import JobsAwayError
from compass_abs.model import CompassError

#: Where `compass serve` listens unless told.
DEFAULT_URL = "http://127.0.0.1:7077"
URL_VARIABLE = "COMPASS_URL"
TOKEN_VARIABLE = "COMPASS_TOKEN"
TOKEN_FILE_VARIABLE = "COMPASS_TOKEN_FILE"
#: Every answer of a controller has it.
API_HEADER = "x-compass-api"

#: As many as one answer lists.
_PAGE = 1000


class ControllerError(CompassError):
    """The controller can't be reached, or refused."""


class ControllerAwayError(ControllerError, JobsAwayError):
    """Nobody answers, or the answer is that it isn't ready."""


def path_of_job(job: str, part: str = "") -> str:
    """Where the API has a job, or a part of it."""
    return _path("job", job, part)


def path_of_node(node: str, part: str = "") -> str:
    """Where the API has a node, or what can be done with it."""
    return _path("node", node, part)


def _path(kind: str, name: str, part: str) -> str:
    # What people typed as a name must not lead to another address.
    if not name or "/" in name or name in (".", "..") or not _is_text(name):
        raise ControllerError(f"there is no {kind} {name!r}")
    return f"/{kind}s/{quote(name)}" + (f"/{part}" if part else "")


def _is_text(word: str) -> bool:
    """False for bytes of a command line that are no UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


class Client:
    """A connection to one controller; URL and token from the environment unless given."""

    def __init__(self, url: str | None = None, token: str | None = None, seconds: float = 30.0) -> None:
        self.url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        token = token or os.environ.get(TOKEN_VARIABLE) or _token_from_file()
        if not (token.isascii() and token.isprintable()):
            raise ControllerError(
                f"the token in {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE} has characters that none has; "
                "copy it as `compass serve` wrote it"
            )
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            # Proxies are for the world outside; a controller is one's own.
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=seconds, trust_env=False)
        except httpx.InvalidURL as error:
            raise ControllerError(f"{self.url!r} is no address: {error}; expected one like {DEFAULT_URL}") from None

    def get(self, path: str, **query: Any) -> Any:
        """What a read answers."""
        return self._answered("GET", path, params=query)

    def jobs(self, phase: str = "open") -> list[dict[str, Any]]:
        """All jobs in a phase (`open`: not over; empty: whatever), the latest first; page by page."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.get("/jobs", limit=_PAGE, offset=len(found), **({"phase": phase} if phase else {}))["jobs"]
            found += page
            if len(page) < _PAGE:
                return found

    def post(self, path: str) -> Any:
        """What a command answers."""
        return self._answered("POST", path)

    def submit(self, text: str) -> str:
        """Submits a job file's text; its id."""
        headers = {"content-type": "application/yaml"}
        return str(self._answered("POST", "/jobs", content=text.encode(), headers=headers)["id"])

    def submit_fields(self, fields: dict[str, Any]) -> str:
        """Submits a job; its id."""
        return str(self._answered("POST", "/jobs", json=fields)["id"])

    def log(self, job: str, **query: Any) -> tuple[bytes, int]:
        """A piece of a log, and the generation with which that log begins."""
        response = self._answer(self._send("GET", path_of_job(job, "logs"), params=query))
        return response.content, int(response.headers["x-compass-log-begins"])

    def events(self) -> Iterator[str]:
        """Lines of the event stream, for ever."""
        with self._http.stream("GET", "/api/v1/events", timeout=None) as response:
            if not response.is_success:
                response.read()
            self._answer(response)
            yield from response.iter_lines()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        strange = [value for value in options.get("params", {}).values() if not _is_text(str(value))]
        if strange:
            raise ControllerError(f"{strange[0]!r} is not UTF-8 text")
        try:
            return self._http.request(method, f"/api/v1{path}", **options)
        except httpx.HTTPError as error:
            raise ControllerAwayError(
                f"no controller answers at {self.url}: {error}; start one with `compass serve`, or name another with "
                f"--url or {URL_VARIABLE}"
            ) from None

    def _answered(self, method: str, path: str, **options: Any) -> Any:
        return self._answer(self._send(method, path, **options)).json()

    def _answer(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            if API_HEADER not in response.headers:
                raise ControllerError(self._stranger(response))
            return response
        try:
            text = str(response.json()["error"])
        except (ValueError, KeyError, TypeError):
            text = self._stranger(response)
        if response.status_code == 401:
            text += f"; set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
        raise (ControllerAwayError if response.status_code == 503 else ControllerError)(text)

    def _stranger(self, response: httpx.Response) -> str:
        return (
            f"what answers at {self.url} is no controller (status {response.status_code}); "
            f"name another with --url or {URL_VARIABLE}"
        )

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Submitter:
    """The controller, for what takes jobs in that users submitted to Slurm or Kubernetes: see `engines.submitting`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, fields: dict[str, Any]) -> str:
        """Submits a job; its id."""
        return self._client.submit_fields(fields)

    def find(self, name: str) -> str | None:
        """Id of the job with this name."""
        return next((job["id"] for job in self._client.get("/jobs", name=name, limit=1)["jobs"]), None)

    def is_over(self, job_id: str) -> bool:
        """True when the job has ended, however."""
        return self._client.get(f"/jobs/{job_id}")["ended"] is not None

    def open(self) -> dict[str, str]:
        """Jobs that are not over: why each waits; empty for one that doesn't."""
        jobs = self._client.jobs()
        return {job["id"]: str(job["reason"] or "") if job["phase"] == "queued" else "" for job in jobs}

    def cancel(self, job_id: str) -> None:
        """Ends a job."""
        self._client.post(f"/jobs/{job_id}/cancel")


def _token_from_file() -> str:
    name = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(name).read_text(encoding="utf-8", errors="replace").strip() if name else ""
