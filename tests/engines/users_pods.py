"""Pods as users and the controllers of Jobs, JobSets and PyTorchJobs make them; and a controller that takes them in."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compass_abs.controller.book import JobEntry
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.own_jobs import OwnJobs
from compass_abs.controller.reconcile import Config
from compass_abs.controller.service import Service
from compass_abs.engines.kubernetes import KubernetesEngine, names
from compass_abs.engines.kubernetes.client import Client, Object, pod_path
from compass_abs.engines.kubernetes.intake import Intake
from compass_abs.model import NodeStatus

#: Counts steps; told to end, writes how far it is and leaves with the code that it was given; goes on from there.
COUNTING = """
import os, pathlib, signal, sys, time
folder, name, steps, code = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
state = folder / f"{name}.step"
step = int(state.read_text()) if state.exists() else 0
def leave(number, frame):
    state.write_text(str(step))
    sys.exit(code)
signal.signal(signal.SIGTERM, leave)
while step < steps:
    with open(folder / f"{name}.log", "a") as log:
        log.write(f"{step}\\n")
    step += 1
    time.sleep(0.05)
"""


def pod(
    name: str,
    command: list[str],
    gpus: int = 2,
    marks: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod of a user's."""
    container = {"name": "main", "image": "any", "command": command}
    container |= {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, "env": spec.pop("env", [])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(marks or {}), "labels": dict(labels or {})},
        "spec": {
            "schedulerName": names.SCHEDULER,
            "restartPolicy": "Never",
            "containers": [container],
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }


def counting(folder: Path, name: str, steps: int = 100_000, code: int = 0) -> list[str]:
    """Command of the program above."""
    return [sys.executable, "-c", COUNTING, str(folder), name, str(steps), str(code)]


def sleeping(seconds: float = 600) -> list[str]:
    """Command that does nothing, and ends when told to."""
    return [sys.executable, "-c", f"import time; time.sleep({seconds})"]


def job_of(name: str, command: list[str], pods: int, gpus: int = 4, **marks: str) -> Object:
    """A Job of a user's."""
    template = pod("x", command, gpus, marks)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 10,
            "template": {"metadata": {"annotations": dict(marks)}, "spec": template["spec"]},
        },
    }


class UsersCluster:
    """A controller that takes pods of a namespace in, and what is said on them."""

    def __init__(self, folder: Path, engine: KubernetesEngine, client: Client, namespace: str) -> None:
        self.engine, self.client, self.namespace = engine, client, namespace
        self._closed = False
        self.said: list[tuple[str, str, str]] = []
        self.service = Service(SqliteJournal(folder / "journal.sqlite"), engine, Config(scheduler="best-fit"))
        self.service.start()
        self.service.wait_until_ready(30.0)
        self.intake = Intake(engine, self._say)
        self._jobs = OwnJobs(self.service)

    def _say(self, pod: Object, reason: str, message: str) -> None:
        self.said.append((str(pod["metadata"]["name"]), reason, message))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.service.close()
            self.engine.close()

    # ---- what users do

    def create(self, pod: Object) -> Object:
        return self.client.create(pod_path(self.namespace), pod)

    def get(self, name: str) -> Object | None:
        return self.client.find(pod_path(self.namespace, name))

    def pods(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in self.client.list(pod_path(self.namespace)).items}

    def placed(self) -> dict[str, str]:
        """Pods that live and have a node."""
        return {
            name: each["spec"]["nodeName"]
            for name, each in self.pods().items()
            if each["spec"].get("nodeName")
            and not each["metadata"].get("deletionTimestamp")
            and each["status"]["phase"] in ("Pending", "Running")
        }

    # ---- what the controller does

    def look(self) -> None:
        self.intake.look(self._jobs)

    def until(self, what: Callable[[], object], seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"{self.placed()}, {self.phases()}, {self.said[-3:]}"
            self.look()
            time.sleep(0.1)

    def for_a_while(self, seconds: float) -> None:
        """Lets what should not happen have its chance."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            time.sleep(0.1)

    def entries(self) -> list[JobEntry]:
        found = self.service.ask(lambda c: list(c.book.jobs.values()))
        return [entry for entry in found if entry.spec.labels.get("kubernetes-namespace") == self.namespace]

    def phases(self) -> list[str]:
        return [entry.phase.value for entry in self.entries()]

    def drain(self, node: str) -> None:
        self.service.ask(lambda c: c.set_node(node, NodeStatus.DRAINING))
