"""Who may talk to the controller: whoever has the token, and on loopback alone everybody on this machine."""

import hmac
import ipaddress
import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compass_abs.model import CompassError

#: Far above any job file.
LARGEST_BODY = 512 * 1024
#: What anybody may see: the page that asks for the token, whether the service lives.
_OPEN = ("/", "/healthz")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1", "testserver")


def is_loopback(host: str) -> bool:
    """True for an address that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_token(path: Path) -> str:
    """The token in a file that only its owner can read; a new one when there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        text = secrets.token_urlsafe(32)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
    if not (text.isascii() and text.isprintable()):
        raise CompassError(f"token file {str(path)!r} holds more than one line of plain ASCII; nobody could send that")
    if len(text) < 16:
        raise CompassError(f"token file {str(path)!r} holds {len(text)} characters; a token has 16 or more")
    return text


class Gate:
    """Refuses requests without the token, from other sites, or too large. Pure ASGI, so that streams stay streams."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._hosts = (*_LOCAL_NAMES, *hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        path: str = scope["path"]
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_BODY:
            return _error(413, f"a request may have {LARGEST_BODY} bytes at most")
        if self._token is None:
            # Nothing but the network keeps others out, so a name that was pointed here by others is not served,
            # and a page of another site can't act through a user's browser.
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
            if name not in self._hosts:
                return _error(421, f"host {name!r} is not served without a token")
        elif path not in _OPEN and not path.startswith("/static/"):
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
                response = _error(401, "a token is needed: Authorization: Bearer TOKEN")
                response.headers["www-authenticate"] = "Bearer"
                return response
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin and urlsplit(origin).netloc != headers.get("host"):
            return _error(403, "requests of other sites are refused")
        return None

    @staticmethod
    def _limited(receive: Receive) -> Receive:
        """Bodies that don't say how long they are end the request when they get too long."""
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > LARGEST_BODY:
                    return {"type": "http.disconnect"}
            return message

        return limited


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)
