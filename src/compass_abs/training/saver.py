"""Writes checkpoints, at once or in a thread, and turns every failure into an outcome the ranks can agree on."""

import threading
from dataclasses import dataclass
from typing import Any

from compass_abs.training.delta import Base
from compass_abs.training.payload import flatten, to_host
from compass_abs.training.store import CheckpointStore, FencedError, Manifest


@dataclass(frozen=True, slots=True)
class Outcome:
    """A checkpoint, or why there is none; neither when there was nothing to save."""

    manifest: Manifest | None = None
    error: str = ""
    fenced: bool = False


class Saver:
    """The one writer of a store."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._outcome = Outcome()

    def save(self, tree: Any, step: int, world_size: int) -> Outcome:
        """Writes before it returns; only what has changed since the last snapshot, when that is much less."""
        pending = self.latest(wait=True)
        if pending.fenced:
            return pending
        return self._attempt(lambda: self._store.save(tree, step, world_size))

    def start(self, tree: Any, step: int, world_size: int) -> None:
        """Copies the state to host memory and writes it in a thread."""
        self.latest(wait=True)
        skeleton, tensors = flatten(tree)
        # Before the copy: two snapshots and the live state would be three times the memory.
        self._store.base = None
        copies = to_host(tensors) if tensors else []

        def write() -> None:
            self._outcome = self._attempt(lambda: self._store.save_flat(skeleton, copies, step, world_size))
            manifest = self._outcome.manifest
            if manifest is not None:
                self._store.base = Base(manifest.payload, manifest.sha256, copies)

        self._thread = threading.Thread(target=write, name="compass-saver", daemon=True)
        self._thread.start()

    def latest(self, *, wait: bool = False) -> Outcome:
        """What came of the snapshot in the thread; nothing while it is being written, or once it was told."""
        if self._thread is None or (self._thread.is_alive() and not wait):
            return Outcome()
        self._thread.join()
        self._thread = None
        outcome, self._outcome = self._outcome, Outcome()
        return outcome

    def _attempt(self, write: Any) -> Outcome:
        try:
            return Outcome(write())
        except FencedError as error:
            return Outcome(error=str(error), fenced=True)
        except OSError as error:
            return Outcome(error=f"{self._store.directory}: {error.strerror or error}")
        except Exception as error:  # Whatever a state_dict raises: the other ranks wait for an answer.
            return Outcome(error=f"{type(error).__name__}: {error}")
