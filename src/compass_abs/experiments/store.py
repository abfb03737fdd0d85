"""Results that outlive an interruption: a file for each run, whole or not there at all."""

import json
import os
from pathlib import Path
from typing import Any


class ResultStore:
    """Runs by the fingerprint of their inputs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        return self.root / "cells" / key[:2] / f"{key}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """What a run gave, or None; a file that a power cut left half written counts as none."""
        try:
            found = json.loads(self._path(key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) and "summary" in found else None

    def put(self, key: str, result: dict[str, Any]) -> None:
        """Keeps a result; readers see all of it or nothing."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(result), encoding="utf-8")
        partial.replace(path)
