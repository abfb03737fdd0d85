"""From text, files or standard input to an observation, whichever of the known formats it is."""

import codecs
import gc
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compass_abs.audit.kubernetes import KubernetesOptions, is_kubernetes, objects_of, observe_kubernetes
from compass_abs.audit.observation import AuditError, Observation
from compass_abs.audit.own_format import observe_own, observe_rows
from compass_abs.audit.slurm import is_slurm, observe_slurm
from compass_abs.audit.values import shown
from compass_abs.snapshots import snapshot_rows


def load_observation(paths: Sequence[str | Path], options: KubernetesOptions | None = None) -> Observation:
    """What files say together; `-` is standard input."""
    with nothing_collected():
        return read_observation([(name_of(path), _bytes(path)) for path in paths], options)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """No garbage collection meanwhile: millions of new objects, none of them garbage, make it most of the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_observation(
    sources: Iterable[tuple[str, bytes | str]], options: KubernetesOptions | None = None
) -> Observation:
    """What named texts say together: of Kubernetes or of Slurm any number of documents, else one snapshot."""
    documents: list[tuple[str, Any]] = []
    names = []
    for name, content in sources:
        names.append(name)
        words = decoded(content, name)
        if words.lstrip()[:1] in ("{", "["):
            documents.extend((name, document) for document in documents_of(words, name))
        elif documents or len(names) > 1:
            raise AuditError(f"{name}: is no JSON, which files that are read together have to be")
        elif remedy := _remedy(words):
            raise AuditError(f"{name}: {remedy}")
        else:
            return observe_rows(snapshot_rows(words, name), name)
    return observe_documents(documents, ", ".join(dict.fromkeys(names)), options)


def observe_documents(
    documents: Sequence[tuple[str, Any]],
    source: str,
    options: KubernetesOptions | None = None,
    time: float | None = None,
) -> Observation:
    """What parsed documents say together."""
    kinds = list(dict.fromkeys(_kind(document) for _, document in documents))
    if len(kinds) > 1:
        raise AuditError(f"{source}: this is {' and '.join(kinds)} together; give one at a time")
    if not documents:
        raise AuditError(f"{source}: is empty, expected JSON of kubectl or of Slurm, or a snapshot (docs/snapshots.md)")
    if kinds == ["Kubernetes"]:
        objects = [found for name, document in documents for found in objects_of(document, name)]
        observation = observe_kubernetes(objects, source, options, time)
        if not observation.rows and not observation.left_out:
            raise AuditError(
                f"{source}: there is no node in it with {' or '.join((options or KubernetesOptions()).resources)}; "
                "give nodes and pods, or name the resource"
            )
        return observation
    if kinds == ["Slurm"]:
        observation = observe_slurm([document for _, document in documents], source, time)
        if not observation.rows and not observation.left_out:
            raise AuditError(f"{source}: there is no node with GPUs (gres gpu) in it")
        return observation
    if len(documents) > 1:
        raise AuditError(f"{source}: there are {len(documents)} snapshots, expected one")
    return observe_own(documents[0][1], source, time)


def _remedy(words: str) -> str:
    """What to do about text that other formats of the same commands begin with; empty for what may be CSV."""
    first = next((line for line in words.splitlines() if line.strip() and not line.startswith("#")), "")
    if re.match(r"(---|apiVersion:|items:|kind:|meta:|nodes:|jobs:)", first):
        return "this is YAML; give JSON: `kubectl get ... -o json`, or --json for Slurm's commands"
    if re.match(r"(NAME|NAMESPACE)\s+[A-Z]|\s*JOBID\s|PARTITION\s+AVAIL|NodeName=|JobId=", first):
        return "this is a table for people; give JSON: `kubectl get ... -o json`, or --json for Slurm's commands"
    return ""


def _kind(document: object) -> str:
    if isinstance(document, dict):
        if is_kubernetes(document):
            return "Kubernetes"
        if is_slurm(document):
            return "Slurm"
    return "a snapshot"


def documents_of(content: str, source: str) -> list[Any]:
    """The JSON documents of a text, one after the other."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Any] = []
    while True:
        while at < len(content) and content[at] in " \t\r\n":
            at += 1
        if at == len(content):
            return found
        try:
            document, at = decoder.raw_decode(content, at)
        except json.JSONDecodeError as error:
            raise AuditError(f"{source}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
        except (RecursionError, ValueError) as error:
            raise AuditError(f"{source}: can't be read as JSON: {error}") from None
        if not isinstance(document, dict | list):
            raise AuditError(f"{source}: {shown(document)} is no description of a cluster")
        found.append(document)


def decoded(content: bytes | str, source: str) -> str:
    """The text."""
    if isinstance(content, str):
        return content
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what `>` writes in PowerShell
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    if content.startswith(b"\x1f\x8b"):
        raise AuditError(f"{source}: is compressed; unpack it first: gunzip --stdout ... | compass audit")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise AuditError(
            f"{source}: byte {error.start} is not {error.encoding} text; expected JSON or CSV in UTF-8"
        ) from None


def name_of(path: str | Path) -> str:
    """What a file is called in messages."""
    return "standard input" if str(path) == "-" else str(path)


def _bytes(path: str | Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
