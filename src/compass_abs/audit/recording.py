"""Recorded observations: a folder of files whose names are times, or a file of JSON lines."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from compass_abs.audit.kubernetes import KubernetesOptions
from compass_abs.audit.observation import AuditError, Observation
from compass_abs.audit.reading import decoded, documents_of, observe_documents, read_observation
from compass_abs.audit.values import shown


def observations_of(path: Path, options: KubernetesOptions | None = None) -> Iterator[tuple[float, Observation]]:
    """Each observation with its time, in their order."""
    if path.is_dir():
        yield from _of_folder(path, options)
    else:
        yield from _of_lines(path, options)


def _of_folder(folder: Path, options: KubernetesOptions | None) -> Iterator[tuple[float, Observation]]:
    """Files such as 1763503200.json or 2026-11-18T22-00-00.json; those of one time, and a folder, belong together."""
    together: dict[float, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith("."):
            together.setdefault(_time_of(entry), []).append(entry)
    if not together:
        raise AuditError(f"{folder}: is empty, expected files named by their time, such as 2026-11-18T22-00-00.json")
    for time in sorted(together):
        files = [file for entry in together[time] for file in (sorted(entry.iterdir()) if entry.is_dir() else [entry])]
        yield time, read_observation([(str(file), file.read_bytes()) for file in files], options)


def _time_of(entry: Path) -> float:
    """The time that a name begins with: seconds since 1970, or a date and time of day in UTC."""
    stem = entry.name.split(".")[0]
    try:
        if stem.isascii() and stem.isdigit() and len(stem) <= 11:
            return float(stem)
        day, _, clock = stem.partition("T")
        clock = clock.partition("_")[0].removesuffix("Z").replace("-", ":")
        return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise AuditError(
            f"{entry}: its name is no time, expected one such as 1763503200.json or 2026-11-18T22-00-00.json"
        ) from None


def _of_lines(path: Path, options: KubernetesOptions | None) -> Iterator[tuple[float, Observation]]:
    """Lines of {"time": seconds, "snapshot": one document or a list of them that belong together}."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}: line {number}"
            text = decoded(raw, where)
            if not text.strip():
                continue
            documents = documents_of(text, where)
            line = documents[0]
            if len(documents) != 1 or not isinstance(line, dict) or "time" not in line or "snapshot" not in line:
                raise AuditError(f'{where}: expected an object with "time" and "snapshot"')
            time = line["time"]
            if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
                raise AuditError(f"{where}: time is {shown(time)}, expected seconds since 1970")
            found = line["snapshot"]
            several = isinstance(found, list) and all(isinstance(part, dict) and "node" not in part for part in found)
            parts = found if several else [found]
            yield float(time), observe_documents([(where, part) for part in parts], where, options, float(time))
