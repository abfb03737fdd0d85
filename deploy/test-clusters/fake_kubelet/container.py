"""One container, which is a process here: its environment, its start, its end."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

#: What a process finds beside its pod's environment: enough to find programs.
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "COMPASS_TEST_CLUSTER")
VARIABLE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


def now() -> str:
    """The time, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced as the kubelet does: unknown names stay, `$$` is a `$`."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return values.get(match[2], match[0])

    return VARIABLE.sub(value, text)


def at_path(pod: dict, path: str) -> str:
    """A field of the downward API, as `metadata.labels['job']` or `spec.nodeName`."""
    if keyed := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return (pod["metadata"].get(keyed[1]) or {}).get(keyed[2], "")
    found: object = pod
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found)


class MissingError(Exception):
    """The pod refers to something that isn't there; it waits for it."""


#: (kind, name) -> the data of a ConfigMap or Secret; raises MissingError.
Sources = Callable[[str, str], dict[str, str]]


def environment(pod: dict, container: dict, given: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """What the container's process finds in its environment."""
    values = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(given)
    for source in container.get("envFrom") or ():
        for kind, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference := source.get(key):
                data = optional(sources, kind, reference)
                values |= {source.get("prefix", "") + name: value for name, value in data.items()}
    for entry in container.get("env") or ():
        value = entry_value(pod, container, entry, values, sources)
        if value is not None:
            values[entry["name"]] = value
    return values


def entry_value(pod: dict, container: dict, entry: dict, values: Mapping[str, str], sources: Sources) -> str | None:
    """The value of one entry of `env`; None leaves it unset."""
    origin = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value") or "", values)
    if field_reference := origin.get("fieldRef"):
        return at_path(pod, field_reference["fieldPath"])
    if resource := origin.get("resourceFieldRef"):
        part, _, name = resource["resource"].partition(".")
        return str((container.get("resources", {}).get(part) or {}).get(name, 0))
    for kind, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if reference := origin.get(key):
            data = optional(sources, kind, reference)
            if reference["key"] in data:
                return data[reference["key"]]
            if not reference.get("optional"):
                raise MissingError(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    return None


def optional(sources: Sources, kind: str, reference: dict) -> dict[str, str]:
    """The data referred to; empty when it may be missing and is."""
    try:
        return sources(kind, reference["name"])
    except MissingError:
        if reference.get("optional"):
            return {}
        raise


@dataclass
class Process:
    """A started container. Without a command it is only pretended, as an image's own entry point would run for ever."""

    command: list[str]
    values: dict[str, str]
    log: Path
    folder: str = ""
    started: str = field(default_factory=now)
    popen: subprocess.Popen[bytes] | None = None
    _pretended: asyncio.Future[int] | None = None

    def start(self) -> None:
        """Starts it; OSError where the command can't run."""
        if not self.command:
            self._pretended = asyncio.get_running_loop().create_future()
            return
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(
                self.command,
                env=self.values,
                cwd=self.folder or "/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def ended(self) -> int:
        """The exit code, as a container reports it: 128 + signal for a death by signal."""
        if self.popen is None:
            assert self._pretended is not None
            return await asyncio.shield(self._pretended)
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        handle = os.pidfd_open(self.popen.pid)
        loop.add_reader(handle, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self._signal_group(signal.SIGKILL)  # what process 1 of a container leaves ends with it
        code = self.popen.wait()
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """TERM, to the first process only, as container runtimes do."""
        if self.popen is None:
            self._pretend_end(0)
        elif self.popen.returncode is None:
            self.popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """KILL, to everything."""
        if self.popen is None:
            self._pretend_end(137)
        else:
            self._signal_group(signal.SIGKILL)

    def _pretend_end(self, code: int) -> None:
        if self._pretended is not None and not self._pretended.done():
            self._pretended.set_result(code)

    def _signal_group(self, number: int) -> None:
        assert self.popen is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)
