"""The log of an instance as it is printed: across migrations, and while its controller is away."""

import codecs
import time
from collections.abc import Iterator

import typer

from compass_abs.controller.client import Client, ControllerAwayError, ControllerError, path_of_job

_PAUSE, _PAUSE_WHILE_AWAY = 0.3, 1.0
_PIECE = 1 << 18


def followed(client: Client, job: str, instance: int) -> Iterator[str]:
    """Pieces of a log until the job is over. A controller that is restarted meanwhile is waited for."""
    reader = _Reader(client, job, instance)
    # The first question is one that a wrong name, or no controller at all, fails at once.
    client.get(path_of_job(job))
    away = False
    while True:
        try:
            over = client.get(path_of_job(job))["ended"] is not None
            text, more = reader.next()
        except ControllerAwayError:
            if not away:
                typer.echo("compass: the controller does not answer; still waiting for it", err=True)
            away = True
            time.sleep(_PAUSE_WHILE_AWAY)
            continue
        away = False
        if text:
            yield text
        if over and not more:
            return
        if not more:
            time.sleep(_PAUSE)


class _Reader:
    """Where in which log we are: that of an instance that stays in place during a migration goes on."""

    def __init__(self, client: Client, job: str, instance: int) -> None:
        self._client, self._job, self._instance = client, job, instance
        self._generation = self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def next(self) -> tuple[str, bool]:
        """What has been printed since, and whether there may be more at once."""
        if not self._generation:
            data, self._generation = self._read()
            return self._taken(data)
        data, _ = self._read(self._generation)
        if data:
            return self._taken(data)
        latest = self._latest()
        if latest <= self._generation:
            return "", False
        # The old one may have printed its last between the two questions.
        data, _ = self._read(self._generation)
        self._generation, self._offset = latest, 0
        return self._decoder.decode(data, final=True), True

    def _taken(self, data: bytes) -> tuple[str, bool]:
        self._offset += len(data)
        return self._decoder.decode(data), bool(data)

    def _latest(self) -> int:
        return self._read(limit=0)[1]

    def _read(self, generation: int = 0, limit: int = _PIECE) -> tuple[bytes, int]:
        try:
            return self._client.log(
                self._job, instance=self._instance, generation=generation, offset=self._offset, limit=limit
            )
        except ControllerAwayError:
            raise
        except ControllerError:
            # It hasn't printed anything yet.
            return b"", self._generation
