"""The port on which the API server asks for the logs of containers."""

import re
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

LOG_PATH = re.compile(r"/containerLogs/([^/]+)/([^/]+)/([^/]+)$")
LOOK_AGAIN = 0.05


class Logs(Protocol):
    """Who knows where logs are."""

    def log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None: ...
    def writing(self, namespace: str, pod: str, container: str) -> bool: ...


def serve(port: int, logs: Logs, certificate: str, key: str) -> ThreadingHTTPServer:
    """The server; its `serve_forever` is to be called in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            found = LOG_PATH.match(unquote(place.path))
            asked = {name: values[0] for name, values in parse_qs(place.query).items()}
            path = found and logs.log(found[1], found[2], found[3], asked.get("previous") == "true")
            if not path:
                self.send_error(404, f"no log at {place.path}")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            with path.open("rb") as log:
                self.wfile.write(tail(log.read(), asked))
                while asked.get("follow") == "true" and found:
                    alive = logs.writing(found[1], found[2], found[3])
                    if data := log.read():
                        self.wfile.write(data)
                    elif not alive:
                        return
                    time.sleep(LOOK_AGAIN)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def tail(data: bytes, asked: dict[str, str]) -> bytes:
    """The part that was asked for."""
    if "tailLines" in asked:
        lines = data.splitlines(keepends=True)
        data = b"".join(lines[len(lines) - min(len(lines), int(asked["tailLines"])) :])
    return data[: int(asked["limitBytes"])] if "limitBytes" in asked else data
