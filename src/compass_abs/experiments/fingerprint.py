"""What a run depends on, in a few hexadecimal digits: its settings, its trace's bytes, and the code that runs it."""

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

#: Rooms whose code decides what comes out of a run.
_ROOMS = ("model", "topology", "fragmentation", "planner", "schedulers", "queues", "simulation", "traces")
#: Libraries whose releases could change a result: exact programs, and random numbers.
_LIBRARIES = ("highspy", "numpy")


@cache
def code_version() -> str:
    """Changes whenever a file or a library does that could change a result."""
    root = Path(str(files("compass_abs")))
    digest = sha256()
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(sha256(path.read_bytes()).digest())
    for path in (root / "experiments" / name for name in ("cell.py", "workloads.py", "window.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def file_version(path: Path) -> str:
    """Changes with the bytes of a file, or of all files in a folder."""
    digest = sha256()
    for part in sorted(path.rglob("*")) if path.is_dir() else (path,):
        if part.is_file():
            with part.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()[:16]


def fingerprint(content: Mapping[str, Any]) -> str:
    """Equal for equal content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return sha256(text.encode("utf-8")).hexdigest()[:24]
