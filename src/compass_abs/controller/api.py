"""The HTTP API: reads, commands, a stream of events, the dashboard's files."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from compass_abs.controller import views
from compass_abs.controller.auth import Gate
from compass_abs.controller.client import API_HEADER
from compass_abs.controller.history import History
from compass_abs.controller.job_spec import check_job, job_schema, parse_job
from compass_abs.controller.metrics import Metrics
from compass_abs.controller.openapi import PHASES, description
from compass_abs.controller.reconcile import Controller, NotReadyError
from compass_abs.controller.records import Record, encode
from compass_abs.controller.sampling import Sampler
from compass_abs.controller.service import Event, Service, ServiceError
from compass_abs.controller.story import MOST_READ, story
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError, RunId
from compass_abs.model import CompassError, NodeStatus, UnknownJobError, UnknownNodeError

_DASHBOARD = Path(__file__).with_name("dashboard")
_MOST_LISTED = 1000
_MOST_LOG = 1 << 20
#: A stream that has nothing to say says so this often, so that both ends know the other lives.
_HEARTBEAT = 10.0
#: Events that wait for a reader before it counts as too slow.
_MOST_UNREAD = 5_000
#: A picture of the cluster is taken at most this often, however many look.
_PICTURE_SECONDS = 0.25

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    # By it the client tells a controller from whatever else may listen at an address.
    API_HEADER: "v1",
}

Handler = Callable[[Request], Awaitable[Response]]


class Api:
    """The routes, around one service."""

    def __init__(self, service: Service, metrics: Metrics, history: History) -> None:
        self._service = service
        self._metrics = metrics
        self._history = history
        self._picture: tuple[float, bytes] = (0.0, b"")
        self._taking = asyncio.Lock()

    def routes(self) -> list[Route | Mount]:
        """Every route."""
        v1 = "/api/v1"
        return [
            Route("/", self._index),
            Route("/healthz", self._health),
            Route("/metrics", self._prometheus),
            Route(f"{v1}/openapi.json", self._openapi),
            Route(f"{v1}/schema/job", self._schema),
            Route(f"{v1}/jobs", self._jobs, methods=["GET"]),
            Route(f"{v1}/jobs", self._submit, methods=["POST"]),
            Route(f"{v1}/jobs/{{job}}", self._job),
            Route(f"{v1}/jobs/{{job}}/cancel", self._cancel, methods=["POST"]),
            Route(f"{v1}/jobs/{{job}}/logs", self._logs),
            Route(f"{v1}/jobs/{{job}}/explain", self._explain),
            Route(f"{v1}/jobs/{{job}}/history", self._story),
            Route(f"{v1}/nodes", self._nodes),
            Route(f"{v1}/nodes/{{node}}/{{action}}", self._node, methods=["POST"]),
            Route(f"{v1}/plan", self._plan),
            Route(f"{v1}/migrations", self._migrations),
            Route(f"{v1}/migrations/{{action}}", self._switch, methods=["POST"]),
            Route(f"{v1}/overview", self._overview),
            Route(f"{v1}/history", self._samples),
            Route(f"{v1}/events", self._events),
            Mount("/static", StaticFiles(directory=_DASHBOARD)),
        ]

    async def _do(self, action: Callable[[Controller], Any]) -> Any:
        return await asyncio.wrap_future(self._service.do(action))

    # ---- pages

    async def _index(self, request: Request) -> Response:
        return FileResponse(_DASHBOARD / "index.html")

    async def _health(self, request: Request) -> Response:
        failure = self._service.failure
        return JSONResponse({"alive": failure is None}, 200 if failure is None else 503)

    async def _prometheus(self, request: Request) -> Response:
        body = await self._do(self._metrics.render)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description())

    async def _schema(self, request: Request) -> Response:
        return JSONResponse(job_schema())

    # ---- jobs

    async def _jobs(self, request: Request) -> Response:
        phase, limit, offset = (
            request.query_params.get("phase"),
            _number(request, "limit", 100),
            _number(request, "offset", 0),
        )
        limit, name = min(limit, _MOST_LISTED), request.query_params.get("name")
        if phase not in (None, *PHASES):
            raise HTTPException(400, f"phase is {phase!r}, expected one of: {', '.join(PHASES)}")

        def read(c: Controller) -> dict[str, Any]:
            entries = c.book.open_jobs if phase == "open" else c.book.jobs
            found = [entry for entry in entries.values() if phase in (None, "open", entry.phase.value)]
            found = [entry for entry in reversed(found) if name is None or entry.spec.name == name]
            return {
                "total": len(found),
                "jobs": [views.job_summary(c, entry) for entry in found[offset : offset + limit]],
            }

        return JSONResponse(await self._do(read))

    async def _submit(self, request: Request) -> Response:
        body = (await request.body()).decode("utf-8", errors="replace")
        if "json" in request.headers.get("content-type", ""):
            try:
                spec = check_job(json.loads(body))
            except (ValueError, RecursionError) as error:
                raise HTTPException(400, f"not JSON: {error}") from None
        else:
            spec = parse_job(body)
        job_id = await self._do(lambda c: c.submit(spec))
        return JSONResponse({"id": job_id}, 201, headers={"location": f"/api/v1/jobs/{job_id}"})

    async def _job(self, request: Request) -> Response:
        job = request.path_params["job"]
        return JSONResponse(await self._do(lambda c: views.job_detail(c, c.entry(job))))

    async def _cancel(self, request: Request) -> Response:
        job = request.path_params["job"]

        def act(c: Controller) -> dict[str, Any]:
            c.cancel(job, _who(request))
            return views.job_summary(c, c.entry(job))

        return JSONResponse(await self._do(act))

    async def _explain(self, request: Request) -> Response:
        job = request.path_params["job"]
        return JSONResponse(await self._do(lambda c: views.explain_job(c, c.entry(job))))

    async def _story(self, request: Request) -> Response:
        job = request.path_params["job"]
        return JSONResponse({"events": story(await self._do(lambda c: c.records_of(job, MOST_READ)))})

    async def _logs(self, request: Request) -> Response:
        job, number = request.path_params["job"], _number(request, "instance", 0)
        generation, offset = _number(request, "generation", 0), _number(request, "offset", 0, least=-_MOST_LOG)
        limit = min(_number(request, "limit", 64 * 1024), _MOST_LOG)

        def read(c: Controller) -> tuple[str, int, int]:
            entry = c.entry(job)
            latest = (entry.migration.generation if entry.migration is not None else 0) or entry.generation
            if number >= entry.job.instances:
                raise UnknownJobError(f"job {job!r} has instances 0 to {entry.job.instances - 1}, not {number}")
            wanted = generation or latest
            return entry.id, wanted, entry.log_begins(number, wanted)

        job_id, wanted, begins = await self._do(read)
        run = RunId(job_id, number, wanted)
        text = await asyncio.to_thread(self._service.engine.read_log, run, offset, limit)
        # As it was printed: a piece may end in the middle of a character.
        headers = {"x-compass-generation": str(wanted), "x-compass-log-begins": str(begins)}
        return PlainTextResponse(text, headers=headers)

    # ---- nodes and moves

    async def _nodes(self, request: Request) -> Response:
        return JSONResponse(await self._do(lambda c: {"nodes": [views.drain_view(c, name) for name in c.book.nodes]}))

    async def _node(self, request: Request) -> Response:
        name, action = request.path_params["node"], request.path_params["action"]
        statuses = {"drain": NodeStatus.DRAINING, "undrain": NodeStatus.UP, "cordon": NodeStatus.CORDONED}
        if action in ("kill", "restore"):
            return await self._break(name, action)
        if action not in statuses:
            raise HTTPException(404, f"nodes know {', '.join((*statuses, 'kill', 'restore'))}; not {action!r}")

        def act(c: Controller) -> dict[str, Any]:
            c.set_node(name, statuses[action], _who(request))
            return views.drain_view(c, name)

        return JSONResponse(await self._do(act))

    async def _break(self, name: str, action: str) -> Response:
        """Kills or restores a virtual node, where the engine can: for demonstrations."""
        method = getattr(self._service.engine, f"{action}_node", None)
        if method is None:
            raise HTTPException(409, f"engine {self._service.engine.name!r} has no nodes that could be killed")
        await self._do(lambda c: views.node_view(c, name) if name in c.book.nodes else _unknown_node(name))
        await asyncio.to_thread(method, name)
        return JSONResponse(await self._do(lambda c: views.drain_view(c, name)))

    async def _plan(self, request: Request) -> Response:
        return JSONResponse(await self._do(views.plan_view))

    async def _migrations(self, request: Request) -> Response:
        limit = min(_number(request, "limit", 100), _MOST_LISTED)

        def read(c: Controller) -> dict[str, Any]:
            past = [views.migration_view(entry.id, each) for entry in c.book.jobs.values() for each in entry.past]
            past.sort(key=lambda each: (-each["ended"], each["id"]))
            return {"total": len(past), "migrations": past[:limit]}

        return JSONResponse(await self._do(read))

    async def _switch(self, request: Request) -> Response:
        action = request.path_params["action"]
        if action not in ("pause", "resume"):
            raise HTTPException(404, f"migrations can be paused and resumed; not {action!r}")

        def act(c: Controller) -> dict[str, Any]:
            (c.pause_migrations if action == "pause" else c.resume_migrations)(_who(request))
            return {"migrations": c.book.settings.get("migrations", "on")}

        return JSONResponse(await self._do(act))

    # ---- the whole

    async def _overview(self, request: Request) -> Response:
        async with self._taking:
            taken, body = self._picture
            if time.monotonic() - taken >= _PICTURE_SECONDS:
                picture = await self._do(views.overview)
                body = json.dumps(picture, separators=(",", ":")).encode()
                self._picture = (time.monotonic(), body)
        return Response(body, media_type="application/json")

    async def _samples(self, request: Request) -> Response:
        since = float(_number(request, "since", 0))
        return JSONResponse({"samples": [sample._asdict() for sample in self._history.since(since)]})

    async def _events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
        return StreamingResponse(
            self._stream(request, after), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _stream(self, request: Request, after: int | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        mail: asyncio.Queue[Event] = asyncio.Queue(_MOST_UNREAD)
        behind = asyncio.Event()

        def deliver(event: Event) -> None:
            if behind.is_set() or mail.full():
                behind.set()
            else:
                mail.put_nowait(event)

        def pass_on(event: Event) -> None:
            loop.call_soon_threadsafe(deliver, event)

        end = self._service.subscribe(pass_on)
        try:
            missed = [] if after is None else [event for event in list(self._service.events) if event.number > after]
            yield b": hello\n\n"
            seen = after or 0
            for event in missed:
                seen = event.number
                yield _sse(event)
            # A reader that can't keep up is sent away rather than left with a gap: it comes back for what it missed.
            while not ((behind.is_set() and mail.empty()) or await request.is_disconnected()):
                try:
                    event = await asyncio.wait_for(mail.get(), _HEARTBEAT)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event.number > seen:
                    yield _sse(event)
        finally:
            end()


def _sse(event: Event) -> bytes:
    record: Record = event.record
    kind, _, body = encode(record)
    return f"id: {event.number}\nevent: {kind}\ndata: {body}\n\n".encode()


def _unknown_node(name: str) -> dict[str, Any]:
    raise UnknownNodeError(f"there is no node {name!r}")


def _number(request: Request, name: str, default: int, least: int = 0) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15 or int(text) < least:
        raise HTTPException(400, f"{name} is {text!r}, expected a whole number ≥ {least}")
    return int(text)


def _who(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        nothing = error.status_code == 404 and error.detail == "Not Found"
        text = f"nothing is served at {request.url.path}" if nothing else str(error.detail)
        return JSONResponse({"error": text}, error.status_code, headers=error.headers)
    status = 400
    if isinstance(error, UnknownJobError | UnknownNodeError | EngineRefusalError):
        status = 404
    elif isinstance(error, NotReadyError | ServiceError | EngineUnavailableError):
        status = 503
    return JSONResponse({"error": str(error)}, status)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request was too long, or ended early"}, 413)


def make_app(
    service: Service, *, token: str | None = None, hosts: tuple[str, ...] = (), metrics: Metrics | None = None
) -> Gate:
    """The application: serve it with uvicorn, or call it in a test."""
    metrics = metrics or Metrics()
    history = History()
    sampler = Sampler(service, history, metrics)
    api = Api(service, metrics, history)
    service.subscribe(lambda event: metrics.on_event(event, service.controller.book))

    async def secured(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in present]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await application(scope, receive, sending)

    application = Starlette(
        routes=api.routes(),
        exception_handlers={
            HTTPException: _on_error,
            CompassError: _on_error,
            ClientDisconnect: _on_disconnect,
        },
        lifespan=sampler.lifespan,
    )
    return Gate(secured, token, hosts)
