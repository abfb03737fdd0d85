"""What the local engine keeps on disk, so that another one can take over: a folder a job, a folder a generation.

::

    ROOT/nodes/NAME.json                    a virtual node
    ROOT/jobs/JOB/checkpoints/
    ROOT/jobs/JOB/gGENERATION/control/      the checkpoint contract's files
    ROOT/jobs/JOB/gGENERATION/run-K.json    what was ordered
    ROOT/jobs/JOB/gGENERATION/process-K.json  what runs (written by the shim)
    ROOT/jobs/JOB/gGENERATION/end-K.json    how it ended (written by the shim)
    ROOT/jobs/JOB/gGENERATION/verdict-K.json  how it ended, where the engine knows better
    ROOT/jobs/JOB/gGENERATION/log-K.txt
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compass_abs.engines.contract_files import checked_job_id
from compass_abs.engines.protocol import RunId

_GENERATION = re.compile(r"g(\d+)")
_RUN = re.compile(r"run-(\d+)\.json")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replaces a small file as a whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """What a file holds; None when there is none, or nothing sensible in it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class RunFiles:
    """Paths under one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in (root, root / "nodes", root / "jobs"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def job(self, job_id: str) -> Path:
        """A job's folder."""
        return self.root / "jobs" / checked_job_id(job_id)

    def generation(self, run: RunId) -> Path:
        """The folder of a run's generation."""
        return self.job(run.job_id) / f"g{run.generation}"

    def control(self, run: RunId) -> Path:
        """The control directory of a run's generation."""
        return self.generation(run) / "control"

    def file(self, run: RunId, kind: str, suffix: str = "json") -> Path:
        """One of a run's files."""
        return self.generation(run) / f"{kind}-{run.number}.{suffix}"

    def fence(self, job_id: str) -> int:
        """The highest generation of a job that was ever started here."""
        found = [int(match[1]) for name in self._names(self.job(job_id)) if (match := _GENERATION.fullmatch(name))]
        return max(found, default=0)

    def runs(self) -> Iterator[RunId]:
        """Every run that isn't forgotten."""
        for job_id in self._names(self.root / "jobs"):
            for name in self._names(self.root / "jobs" / job_id):
                if generation := _GENERATION.fullmatch(name):
                    for file in self._names(self.root / "jobs" / job_id / name):
                        if number := _RUN.fullmatch(file):
                            yield RunId(job_id, int(number[1]), int(generation[1]))

    @staticmethod
    def _names(folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted
        except FileNotFoundError:
            return []
