"""CSV files, row by row and never whole in memory."""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, FileIO, TextIOWrapper
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.gathering import Clock, Gatherer, JobRow, LeftOut, Place, RowOrder
from compass_abs.traces.trace import Trace

#: A header longer than this is no header.
_LONGEST_HEADER = 65_536
_LONGEST_LINE = 1 << 20
#: Read from the disk at once.
_BUFFER = 1 << 16

#: What a format makes of the values of its columns.
ParseRow = Callable[[Sequence[str], int], JobRow | LeftOut]


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A CSV layout: recognised by its columns, parsed row by row."""

    name: str
    title: str
    columns: tuple[str, ...]
    """Columns that must be there, in the order in which `parse` gets them."""
    parse: ParseRow
    """(values, GPUs of a node) → a job, or why it is left out."""
    clock: Clock
    order: RowOrder
    optional: tuple[str, ...] = ()
    """Columns that `parse` gets after the others, "" where absent."""
    companion: Callable[[Trace, Path], Trace] | None = None
    """Adds what files beside this one say."""

    def matches(self, path: Path) -> bool:
        """True when the header has every column that this format needs."""
        return not self.missing(path)

    def missing(self, path: Path) -> list[str]:
        """Columns that the file lacks for this format."""
        with open_text(path) as stream:
            header = read_header(stream, path)[0]
        return [column for column in self.columns if column not in header]

    def declared_capacity(self, path: Path) -> int | None:
        """None: published layouts don't say how many GPUs a node has."""
        return None

    def finish(self, trace: Trace, path: Path) -> Trace:
        """The trace, with what a companion file adds."""
        return trace if self.companion is None else self.companion(trace, path)

    def gather(self, path: Path, capacity: int, gatherer: Gatherer) -> None:
        """Reads every row of the file into the gatherer."""
        with open_text(path, gatherer.progress) as stream:
            header, line = read_header(stream, path)
            missing = [c for c in self.columns if c not in header]
            if missing:
                raise TraceError(
                    f"{path}: column {missing[0]!r} is missing from the header; {self.title} has "
                    f"{', '.join(self.columns)}"
                )
            pick = _picker(header, self.columns, self.optional)
            parse, add = self.parse, gatherer.add
            for place, values in _rows(stream, line, len(header), gatherer):
                try:
                    row = parse(pick(values), capacity)
                except BadValueError as error:
                    gatherer.refuse(place, error)
                    continue
                if type(row) is JobRow:
                    add(place, row)
                else:
                    gatherer.leave_out(row)  # type: ignore[arg-type]


class _Watched(FileIO):
    """A file that says how far it has been read."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        found = super().readinto(buffer) or 0
        self._progress(self.tell())
        return found


@contextmanager
def open_text(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[TextIO]:
    """The file as text, unpacked when its name ends in .gz.

    Bytes that are not UTF-8 become U+FFFD, which no value accepts: a bad row, not the end of the file. `progress` is
    called with the bytes of the file that have been read, packed ones if it is packed.
    """
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.is_file())[:5]
        raise TraceError(f"{path} is a folder; name a file in it" + (f", such as {inside[0]}" if inside else ""))
    try:
        raw = FileIO(path) if progress is None else _Watched(path, progress)
        with BufferedReader(raw, _BUFFER) as stored:
            unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=stored)) if path.suffix == ".gz" else stored
            yield TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace", newline="")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def read_header(stream: TextIO, path: Path) -> tuple[list[str], int]:
    """The names of the columns, and the line they are in: the first that is no `# comment`."""
    number, line = 1, stream.readline(_LONGEST_HEADER)
    # Philly's flat file has a column named "#job id": a comment is a # and a space.
    while line.startswith("# "):
        number, line = number + 1, stream.readline(_LONGEST_HEADER)
    if not line:
        raise TraceError(f"{path}: the file is empty; expected a header line")
    if len(line) == _LONGEST_HEADER or "\0" in line or "\ufffd" in line:
        raise TraceError(f"{path}: the first line is no header of column names; this is not a CSV file")
    try:
        fields = next(csv.reader([line]), [])
    except csv.Error as error:
        raise TraceError(f"{path}: the first line is no header of column names ({error})") from None
    return [field.strip() for field in fields], number


def _rows(stream: TextIO, header_line: int, width: int, gatherer: Gatherer) -> Iterator[tuple[Place, list[str]]]:
    reader = csv.reader(_lines(stream))
    number = 0
    while True:
        # Quoted fields may hold line breaks, so rows and lines are counted apart.
        line = header_line + reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            gatherer.refuse(Place(number, line), f"unreadable ({error})", "unreadable")
            continue
        if not values:
            continue
        number += 1
        if len(values) != width:
            gatherer.refuse(Place(number, line), f"{len(values)} values under a header of {width}", "number of values")
            continue
        yield Place(number, line), values


def _lines(stream: TextIO) -> Iterator[str]:
    """Lines, an endless one in pieces, so that a file without line breaks is not read whole."""
    while line := stream.readline(_LONGEST_LINE):
        yield line


def _picker(header: list[str], columns: Sequence[str], optional: Sequence[str]) -> Callable[[list[str]], Sequence[str]]:
    """A function that takes the named values out of a row."""
    indices = [header.index(c) for c in columns]
    if not optional:
        # itemgetter of one index returns the bare value; every format has several columns.
        return itemgetter(*indices)
    extra = [header.index(c) if c in header else -1 for c in optional]
    present = [i for i in extra if i >= 0]
    pick = itemgetter(*indices, *present)
    if len(present) == len(extra):
        return pick
    slots = [present.index(i) + len(indices) if i >= 0 else -1 for i in extra]

    def padded(values: list[str]) -> Sequence[str]:
        some = pick(values)
        return (*some[: len(indices)], *("" if s < 0 else some[s] for s in slots))

    return padded
