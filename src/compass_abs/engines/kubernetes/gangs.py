"""Gangs of users' own pods that were taken in: their templates, kept so that a plain pod can be made once more."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.local.run_files import read_json, write_json

#: First word of the command of a job that is a gang of users' pods; the second is the gang's key.
COMMAND = "kubernetes-pods"


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of a user's that became one job."""

    key: str
    namespace: str
    name: str
    #: Namespace, name and owner's uid, as its pods show them.
    membership: tuple[str, str, str]
    #: Kind, name and uid of who makes its pods anew; empty kind for plain pods.
    owner: tuple[str, str, str]
    #: Its pods as they were, in the order of their ranks.
    members: tuple[Object, ...]
    uids: tuple[str, ...]
    #: What tells the members apart, in the same order; all empty where nothing does.
    indices: tuple[tuple[str, ...], ...]
    control_dir: str = ""
    #: A pod of a Job that works off a queue: the pod that follows it is a job of its own.
    alone: bool = False
    #: Its job is over, and some of its pods still wait.
    over: bool = False
    #: Id of its job; empty until it is submitted.
    job: str = ""

    @property
    def owned(self) -> bool:
        """True when somebody makes its pods anew."""
        return bool(self.owner[0])


def key_of(membership: tuple[str, str, str], first: str) -> str:
    """Key of a gang; `first` is the uid of its first pod, which tells a gang from an earlier one of its name."""
    text = "\0".join((*membership, first))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class GangStore:
    """Gangs, a file each, read once: nobody else writes into the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = (name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
        found = (self._read(key) for key in sorted(names))
        self._known = {gang.key: gang for gang in found if gang is not None}

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def save(self, gang: Gang) -> None:
        """Keeps a gang."""
        value: dict[str, Any] = {
            "namespace": gang.namespace,
            "name": gang.name,
            "membership": gang.membership,
            "owner": gang.owner,
            "members": gang.members,
            "uids": gang.uids,
            "indices": gang.indices,
            "control_dir": gang.control_dir,
            "alone": gang.alone,
            "over": gang.over,
            "job": gang.job,
        }
        write_json(self._path(gang.key), value)
        self._known[gang.key] = gang

    def load(self, key: str) -> Gang | None:
        """A gang; None when there is none of this key."""
        return self._known.get(key)

    def _read(self, key: str) -> Gang | None:
        if not key.isalnum():
            return None
        value = read_json(self._path(key))
        if value is None:
            return None
        return Gang(
            key=key,
            namespace=value["namespace"],
            name=value["name"],
            membership=tuple(value["membership"]),
            owner=tuple(value["owner"]),
            members=tuple(value["members"]),
            uids=tuple(value["uids"]),
            indices=tuple(tuple(each) for each in value["indices"]),
            control_dir=value["control_dir"],
            alone=value["alone"],
            over=value["over"],
            job=value["job"],
        )

    def drop(self, key: str) -> None:
        """Forgets a gang."""
        self._known.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Gang]:
        """All of them, in the order of their keys; from any thread."""
        return iter([gang for _, gang in sorted(self._known.copy().items())])
