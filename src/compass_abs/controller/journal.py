"""The controller's memory: an append-only table in SQLite, and the lock that only one controller may hold."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from compass_abs.controller.records import Record, decode, encode
from compass_abs.model import CompassError

#: Written into the file, checked on opening.
FORMAT = 1


class JournalLockedError(CompassError):
    """Another controller holds this journal."""


class JournalError(CompassError):
    """A journal that can't be opened or written."""


class Journal(Protocol):
    """Where records go: `append` returns when they are durable, all of them or none."""

    def append(self, records: Sequence[Record]) -> None:
        """Makes these records durable, in order, in one transaction."""

    def replay(self) -> Iterator[Record]:
        """Every record since the beginning, in order."""

    def of_job(self, job_id: str, most: int) -> list[Record]:
        """The latest records of a job, in order."""

    def close(self) -> None:
        """Lets go of the file and the lock."""


class SqliteJournal:
    """A journal in one SQLite file (write-ahead log, a full sync at each commit).

    The lock is an advisory one of the operating system on a file beside it: it goes with the process that held it,
    however that died.
    """

    def __init__(self, path: Path, synchronous: str = "FULL") -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise JournalLockedError(
                f"journal {str(path)!r} is held by another controller (process {holder}): stop that one first, "
                "or give this one a journal of its own"
            ) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
            self._database = self._open(path, synchronous)
        except BaseException:
            os.close(self._lock)
            raise

    @staticmethod
    def _open(path: Path, synchronous: str) -> sqlite3.Connection:
        try:
            # One thread at a time uses it (the controller's loop), not always the one that opened it.
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"PRAGMA synchronous={synchronous}")
            found = database.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, FORMAT):
                raise JournalError(f"journal {str(path)!r} has format {found}, this version writes format {FORMAT}")
            database.execute(f"PRAGMA user_version={FORMAT}")
            database.execute(
                "CREATE TABLE IF NOT EXISTS journal"
                "(sequence INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, job TEXT NOT NULL, "
                "body TEXT NOT NULL)"
            )
            database.execute("CREATE INDEX IF NOT EXISTS by_job ON journal(job) WHERE job != ''")
            # History can't be rewritten, not even by mistake.
            for verb in ("UPDATE", "DELETE"):
                database.execute(
                    f"CREATE TRIGGER IF NOT EXISTS no_{verb.lower()} BEFORE {verb} ON journal "
                    "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
                )
        except sqlite3.DatabaseError as error:
            raise JournalError(f"journal {str(path)!r} can't be opened: {error}") from error
        return database

    def append(self, records: Sequence[Record]) -> None:
        """Makes these records durable, in order, in one transaction."""
        if not records:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._database.executemany(
                    "INSERT INTO journal(kind, job, body) VALUES (?, ?, ?)", [encode(record) for record in records]
                )
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            raise JournalError(f"journal {str(self.path)!r} can't be written: {error}") from error

    def replay(self) -> Iterator[Record]:
        """Every record since the beginning, in order."""
        for sequence, kind, body in self._database.execute(
            "SELECT sequence, kind, body FROM journal ORDER BY sequence"
        ):
            yield decode(kind, body, sequence)

    def of_job(self, job_id: str, most: int) -> list[Record]:
        """The latest records of a job, in order."""
        rows = self._database.execute(
            "SELECT sequence, kind, body FROM journal WHERE job = ? AND job != '' ORDER BY sequence DESC LIMIT ?",
            (job_id, most),
        ).fetchall()
        return [decode(kind, body, sequence) for sequence, kind, body in reversed(rows)]

    def close(self) -> None:
        """Lets go of the file and the lock; a second time does nothing."""
        self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemoryJournal:
    """A journal that outlives a controller object but not the process: for tests and dry runs."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def append(self, records: Sequence[Record]) -> None:
        """Keeps these records."""
        self.rows.extend(encode(record) for record in records)

    def replay(self) -> Iterator[Record]:
        """Every record since the beginning, in order."""
        for sequence, (kind, _, body) in enumerate(self.rows, 1):
            yield decode(kind, body, sequence)

    def of_job(self, job_id: str, most: int) -> list[Record]:
        """The latest records of a job, in order."""
        return [decode(kind, body) for kind, job, body in self.rows if job == job_id][-most:]

    def close(self) -> None:
        """Nothing to let go of."""
