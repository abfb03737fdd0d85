"""A folder of checkpoints: versioned, atomic, verified, fenced.

A checkpoint is a payload and a small manifest that names it and its digest; the manifest's rename is the moment at
which the checkpoint exists. `fence.json` holds the highest generation that ever claimed the folder: a process of an
older one, still alive on a node that was cut off, can no longer publish anything.
"""

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compass_abs.model import CompassError
from compass_abs.training.contract import read_json, write_json
from compass_abs.training.delta import Base, difference, reassemble
from compass_abs.training.payload import CorruptCheckpointError, flatten, read_payload, unflatten, write_payload

_MANIFEST = re.compile(r"checkpoint-g(\d{6,})-s(\d{9,})\.json")
_PAYLOAD = re.compile(r"checkpoint-g\d{6,}-s\d{9,}\.[0-9a-f]+\.bin")
_HALF_MANIFEST = re.compile(r"\.checkpoint-g\d{6,}-s\d{9,}\.json\.\d+\.tmp")
_FENCE = "fence.json"


class FencedError(CompassError):
    """A newer generation of this job has taken the checkpoints over; this process must end."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of a checkpoint without reading it."""

    generation: int
    #: Steps completed.
    step: int
    payload: str
    sha256: str
    bytes: int
    world_size: int = 1
    job_id: str = ""
    time: float = 0.0
    #: Payload and digest of the snapshot that this one only lists changes against; empty for a whole one.
    base: str = ""
    base_sha256: str = ""

    @property
    def name(self) -> str:
        """Its file in the folder."""
        return f"checkpoint-g{self.generation:06d}-s{self.step:09d}.json"


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint that was read and verified, and the newer ones that were damaged."""

    manifest: Manifest
    tree: Any
    skipped: tuple[str, ...] = field(default=())


class CheckpointStore:
    """The checkpoints of one job, as one generation of it sees them. One process of a gang writes."""

    def __init__(self, directory: Path, generation: int = 0, job_id: str = "", keep: int = 2) -> None:
        if keep < 1:
            raise CompassError(f"keep is {keep}, expected ≥ 1: without a checkpoint a migration would lose the job")
        self.directory = directory
        self.generation = generation
        self.job_id = job_id
        self.keep = keep
        self.last: Manifest | None = None
        #: Snapshot in host memory that the next checkpoint may list its changes against.
        self.base: Base | None = None

    # ---- the fence

    def claim(self) -> None:
        """Shuts out every older generation from now on; raises `FencedError` when this one is the older."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self._fence() < self.generation:
                write_json(self.directory / _FENCE, {"generation": self.generation})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.directory / "fence.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._refuse_if_fenced()
            yield
        finally:
            os.close(descriptor)

    def _fence(self) -> int:
        value = read_json(self.directory / _FENCE)
        return -1 if value is None else int(value["generation"])

    def _refuse_if_fenced(self) -> None:
        newest = self._fence()
        if newest > self.generation:
            raise FencedError(
                f"{self.directory}: generation {newest} of job {self.job_id!r} has taken over; "
                f"this process is of generation {self.generation} and may not save"
            )

    # ---- writing

    def save(self, tree: object, step: int, world_size: int = 1) -> Manifest:
        """A new checkpoint, durable when this returns. Failing (a full disk, say) leaves the older ones as they were.

        The same step of the same generation is saved once: repeated requests get the same checkpoint.
        """
        if self.last is not None and (self.last.generation, self.last.step) == (self.generation, step):
            return self.last
        return self.save_flat(*flatten(tree), step, world_size)

    def save_flat(self, skeleton: bytes, tensors: list[Any], step: int, world_size: int = 1) -> Manifest:
        """Like `save`, of a tree that `flatten` has taken apart already."""
        base = self.base
        change = None if base is None else difference(base, skeleton, tensors)
        if change is None:
            manifest = self._write(skeleton, tensors, step, world_size)
        else:
            assert base is not None
            manifest = self._write(*flatten(change), step, world_size, base)
        self.last = manifest
        self._forget_old()
        return manifest

    def _write(
        self, skeleton: bytes, tensors: list[Any], step: int, world_size: int, base: Base | None = None
    ) -> Manifest:
        # A payload's name is never used twice, so a manifest can't come to describe another's bytes.
        token = f"{os.getpid():x}{time.time_ns():x}"
        name = f"checkpoint-g{self.generation:06d}-s{step:09d}.{token}.bin"
        temporary = self.directory / f".{name}.tmp"
        try:
            digest = write_payload(temporary, skeleton, tensors)
            manifest = Manifest(
                generation=self.generation,
                step=step,
                payload=name,
                sha256=digest,
                bytes=temporary.stat().st_size,
                world_size=world_size,
                job_id=self.job_id,
                time=time.time(),
                base=base.payload if base else "",
                base_sha256=base.sha256 if base else "",
            )
            with self._locked():
                temporary.replace(self.directory / name)
                self._publish(manifest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return manifest

    def _publish(self, manifest: Manifest) -> None:
        path = self.directory / manifest.name
        temporary = self.directory / f".{manifest.name}.{os.getpid()}.tmp"
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(asdict(manifest), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            (self.directory / manifest.payload).unlink(missing_ok=True)
            raise
        write_json(self.directory / "latest", {"manifest": manifest.name, "step": manifest.step})
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _forget_old(self) -> None:
        """Removes all but the newest `keep` checkpoints, and payloads that no manifest names."""
        kept = self.candidates()[: self.keep]
        needed = {m.payload for m in kept} | {m.base for m in kept} | {self.base.payload if self.base else ""}
        names = {m.name for m in kept}
        for path in sorted(self.directory.iterdir()):
            stale = _PAYLOAD.fullmatch(path.name.removeprefix(".").removesuffix(".tmp")) and path.name not in needed
            if (
                stale
                or _HALF_MANIFEST.fullmatch(path.name)
                or (_MANIFEST.fullmatch(path.name) and path.name not in names)
            ):
                path.unlink(missing_ok=True)

    # ---- reading

    def candidates(self) -> list[Manifest]:
        """Every checkpoint there is, newest generation and then newest step first; not verified."""
        found = []
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            if _MANIFEST.fullmatch(path.name):
                try:
                    found.append(self.manifest(path.name))
                except CorruptCheckpointError as error:
                    print(f"compass: {error}; passed over", file=sys.stderr)
        return sorted(found, key=lambda m: (m.generation, m.step), reverse=True)

    def manifest(self, name: str) -> Manifest:
        """The manifest in this file of the folder."""
        if not _MANIFEST.fullmatch(name):
            raise CorruptCheckpointError(f"{name!r} is no checkpoint's name; expected checkpoint-g…-s….json")
        try:
            value = read_json(self.directory / name)
            if value is None:
                raise CorruptCheckpointError(f"checkpoint {self.directory / name} does not exist")
            manifest = Manifest(**value)
        except (CompassError, TypeError) as error:
            raise CorruptCheckpointError(f"checkpoint {name}: {error}") from None
        for payload in filter(None, (manifest.payload, manifest.base)):
            if not _PAYLOAD.fullmatch(payload):
                raise CorruptCheckpointError(f"checkpoint {name} names {payload!r}, which is no payload of this folder")
        return manifest

    def load(self, manifest: Manifest) -> Any:
        """The saved tree, verified."""
        skeleton, tensors = read_payload(self.directory / manifest.payload, manifest.sha256)
        if manifest.base:
            base = read_payload(self.directory / manifest.base, manifest.base_sha256)
            skeleton, tensors = reassemble(unflatten(skeleton, tensors), base[1])
        return unflatten(skeleton, tensors)

    def newest(self, first: str = "") -> Restored | None:
        """The newest undamaged checkpoint, `first` (a manifest's path or name) before all others; None without any."""
        candidates = self.candidates()
        if first:
            wanted = Path(first).name
            candidates = [m for m in candidates if m.name == wanted] + [m for m in candidates if m.name != wanted]
        skipped: list[str] = []
        for manifest in candidates:
            try:
                return Restored(manifest, self.load(manifest), tuple(skipped))
            except CorruptCheckpointError as error:
                print(f"compass: {error}; falling back to the one before", file=sys.stderr)
                skipped.append(manifest.name)
        if skipped:
            raise CorruptCheckpointError(f"{self.directory}: all {len(skipped)} checkpoints are damaged")
        return None

    def advance(self, generation: int) -> None:
        """This process goes on as a newer generation, and claims the folder for it."""
        self.generation = generation
        self.claim()
