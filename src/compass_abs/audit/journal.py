"""The file in which a watch keeps what it saw, one JSON object a line; it survives being killed at any byte.

An observation's lines end with a `seen` line. Lines after the last of these belong to one that was not written to its
end; they are cut off when the file is opened again.
"""

import fcntl
import json
import os
from io import FileIO
from pathlib import Path

from compass_abs.audit.history import VERSION, History, Line
from compass_abs.audit.observation import AuditError, Observation

#: How a file begins.
_FIRST = json.dumps({"kind": "watch", "version": VERSION}, separators=(",", ":"))[:-1].encode()


class Journal:
    """The file; what is in it is in `history`. One at a time writes to it."""

    def __init__(self, path: Path, source: str = "") -> None:
        self._path = path
        self.history = History()
        # Without a buffer: what a full disk refuses is not to be tried again behind our back.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        try:
            _alone(self._file, path)
            self._end = self._read()
            self._cut()
        except BaseException:
            self._file.close()
            raise
        self._source = source
        self._opened = False

    @staticmethod
    def read(path: Path) -> History:
        """What a file says; it isn't changed."""
        journal = object.__new__(Journal)
        journal._path, journal.history = path, History()
        journal._read()
        return journal.history

    def _read(self) -> int:
        """Reads what is complete, and says how long that is."""
        pending: list[Line] = []
        keep = at = 0
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                at += len(raw)
                try:
                    line = json.loads(raw)
                    if number == 1 and (line.get("kind"), line.get("version")) != ("watch", VERSION):
                        raise AuditError(f"{self._path}: is no file of compass shadow, or of another version")
                    pending.append(line)
                    if line["kind"] in ("seen", "watch") and raw.endswith(b"\n"):
                        for each in pending:
                            self.history.add(each)
                        pending, keep = [], at
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    if at == self._path.stat().st_size and (number > 1 or raw.startswith(_FIRST[: len(raw)])):
                        break  # torn off while it was being written
                    raise AuditError(f"{self._path}: line {number} can't be read: {error!r}") from None
        return keep

    def observe(self, observation: Observation, time: float) -> None:
        """Notes an observation, all of it or nothing."""
        lines = self.history.lines_for(observation, time)
        if not self._opened:
            lines.insert(0, {"kind": "watch", "version": VERSION, "time": time, "source": self._source})
        text = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            written = 0
            while written < len(text):
                written += self._file.write(text[written:]) or 0
            os.fsync(self._file.fileno())
        except OSError as error:
            self._cut()
            raise AuditError(f"{self._path}: can't be written: {error.strerror}") from None
        self._end += len(text)
        self._opened = True
        for line in lines:
            self.history.add(line)

    def _cut(self) -> None:
        """Does away with what isn't complete."""
        os.truncate(self._file.fileno(), self._end)
        self._file.seek(self._end)

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()


def _alone(file: FileIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AuditError(
            f"{path}: another `compass shadow` is writing to it; without --kubernetes or --slurm it reports"
        ) from None
    except OSError:  # a file system without locks
        return
