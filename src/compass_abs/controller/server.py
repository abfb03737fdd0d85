"""`compass serve`: a journal, an engine, a controller and its HTTP server, until somebody stops it."""

import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from compass_abs.controller.api import make_app
from compass_abs.controller.auth import is_loopback, load_token
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.reconcile import Conduct, Config
from compass_abs.controller.service import Service
from compass_abs.engines.protocol import Engine
from compass_abs.model import CompassError


@dataclass(frozen=True, slots=True)
class Settings:
    """What `compass serve` is told."""

    state: Path
    host: str = "127.0.0.1"
    port: int = 7077
    config: Config = field(default_factory=Config)
    #: None: needed exactly where others could reach it.
    token_file: Path | None = None
    #: True for no token even beyond loopback: something in front of it asks.
    open_to_all: bool = False
    log_json: bool = False


def configure_logging(as_json: bool, level: str = "info") -> None:
    """Structured logs on standard error: for people, or a JSON object a line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer()
            if as_json
            else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def serve(settings: Settings, open_engine: Callable[[], Engine]) -> None:
    """Runs until TERM or an interrupt. What it has started runs on.

    The engine is opened once the journal is ours: that of another controller is not to be disturbed.
    """
    configure_logging(settings.log_json)
    # The HTTP server raises the signal that ended it once more; everything else has to be let go of after that.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    token = token_of(settings)
    with _running(settings, open_engine) as service, _listening(settings) as listener:
        _announce(settings, token)
        server = _server(service, settings, token)

        def end_with_the_controller() -> None:
            service.join()
            server.should_exit = True

        threading.Thread(target=end_with_the_controller, name="watcher", daemon=True).start()
        server.run([listener])
        if service.failure is not None:
            raise CompassError(f"the controller failed: {service.failure}; started again, it goes on where it was")


@contextmanager
def in_background(settings: Settings, engine: Engine) -> Iterator[str]:
    """Runs beside the caller, on any free port when the port is 0; the URL."""
    with served(settings, engine) as (url, _):
        yield url


@contextmanager
def served(settings: Settings, engine: Engine) -> Iterator[tuple[str, Service]]:
    """The same, with the service itself."""
    with ExitStack() as refused:
        refused.callback(engine.close)

        def hand_over() -> Engine:
            refused.pop_all()
            return engine

        with _running(settings, hand_over) as service, _listening(settings) as listener:
            server = _server(service, settings, token_of(settings))
            thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
            thread.start()
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            try:
                yield f"http://{settings.host}:{listener.getsockname()[1]}", service
            finally:
                server.should_exit = True
                thread.join(10.0)


def token_of(settings: Settings) -> str | None:
    """What clients have to show; None where everybody may."""
    if settings.token_file is None and (is_loopback(settings.host) or settings.open_to_all):
        return None
    return load_token(settings.token_file or settings.state / "token")


@contextmanager
def _running(settings: Settings, open_engine: Callable[[], Engine]) -> Iterator[Service]:
    settings.config.check()
    with ExitStack() as opened:
        try:
            settings.state.mkdir(parents=True, exist_ok=True)
            journal = SqliteJournal(settings.state / "journal.sqlite")
        except OSError as error:
            raise CompassError(
                f"state folder {str(settings.state)!r}: {error.strerror}; name another with --state"
            ) from None
        opened.callback(journal.close)
        engine = open_engine()
        opened.callback(engine.close)
        service = Service(journal, engine, settings.config)
        opened.callback(service.close)
        service.start()
        service.wait_until_ready()
        yield service


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named as TCP: otherwise asyncio leaves Nagle's algorithm on, and answers wait 40 ms for an acknowledgement.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise CompassError(
                f"can't listen on {settings.host}:{settings.port}: {error.strerror}; use --port"
            ) from None
        yield listener


def _server(service: Service, settings: Settings, token: str | None) -> uvicorn.Server:
    app: Any = make_app(service, token=token, hosts=(settings.host,))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            limit_concurrency=1000,
            server_header=False,
        )
    )


def _announce(settings: Settings, token: str | None) -> None:
    log = structlog.get_logger("serve")
    where = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info(
        "listening",
        url=f"http://{where}:{settings.port}/",
        scheduler=settings.config.scheduler,
        mode=settings.config.conduct.value,
        token="none" if token is None else str(settings.token_file or settings.state / "token"),
    )
    if settings.config.conduct is Conduct.RECOMMEND:
        log.info("migrations are shown, not made; use --mode execute to make them")
