"""What a kubelet says of a pod, from what its containers do."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from .container import Process, now

if TYPE_CHECKING:
    from .pod import Pod


class ContainerRecord:
    """What became of one container, through all its starts."""

    def __init__(self, spec: dict, folder: Path) -> None:
        self.spec = spec
        self.folder = folder  # where its logs are
        self.name: str = spec["name"]
        self.process: Process | None = None
        self.over = asyncio.Event()
        self.restarts = 0
        self.exit_code: int | None = None
        self.message = ""
        self.state: dict = {"waiting": {"reason": "ContainerCreating"}}
        self.last: dict = {}

    @property
    def running(self) -> bool:
        """It has a process that hasn't ended."""
        return self.process is not None and not self.over.is_set()

    def begin(self, process: Process) -> None:
        """It runs."""
        self.process, self.exit_code = process, None
        self.over.clear()
        self.state = {"running": {"startedAt": process.started}}

    def wait(self, reason: str, message: str) -> None:
        """It is to start, later."""
        if "terminated" in self.state:
            self.last = self.state
            self.restarts += 1
        self.state = {"waiting": {"reason": reason, "message": message}}

    def end(self, code: int) -> None:
        """It ended."""
        started = self.process.started if self.process else now()
        ended: dict = {"exitCode": code, "startedAt": started, "finishedAt": now()}
        ended["reason"] = "Completed" if code == 0 else "ContainerCannotRun" if self.message else "Error"
        if self.message:
            ended["message"] = self.message
        # as containerd and not as Docker says it: a death by signal shows in the exit code alone
        if code > 128 and code - 128 in set(signal.Signals) and self.message == "":
            ended["signal"] = code - 128
        self.exit_code = code
        self.state = {"terminated": ended}
        self.over.set()

    def exit_unstarted(self) -> None:
        """It was never started, and won't be."""
        self.exit_code = 137
        self.state = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now()}}

    def document(self) -> dict:
        """As in the pod's status."""
        running = "running" in self.state
        image = self.spec.get("image", "")
        found = {
            "name": self.name,
            "image": image,
            "imageID": image,
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }
        if self.process is not None:
            found["containerID"] = f"process://{self.process.popen.pid if self.process.popen else 0}"
        return found


def phase_of(pod: "Pod") -> str:
    """Pending, Running, Succeeded or Failed."""
    if pod.failure:
        return "Failed"
    if any(record.exit_code is None for record in pod.inits):
        return "Pending"
    policy = pod.manifest["spec"].get("restartPolicy", "Always")
    if policy == "Never" and any(record.exit_code for record in pod.inits):
        return "Failed"
    if all("terminated" in record.state for record in pod.containers):
        return "Failed" if any(record.exit_code for record in pod.containers) else "Succeeded"
    return "Running" if any(record.process is not None for record in pod.containers) else "Pending"


def pod_status(pod: "Pod") -> dict:
    """All that the kubelet owns of a pod's status."""
    phase = phase_of(pod)
    ready = phase == "Running" and all("running" in record.state for record in pod.containers)
    begun = all(record.exit_code == 0 for record in pod.inits)
    reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    status = {
        "phase": phase,
        "hostIP": pod.home.address,
        "podIP": pod.home.address,
        "podIPs": [{"ip": pod.home.address}],
        "startTime": pod.started,
        "conditions": [
            condition("Initialized", begun, "ContainersNotInitialized"),
            condition("Ready", ready, reason),
            condition("ContainersReady", ready, reason),
        ],
    }
    if pod.begun:
        status["containerStatuses"] = [record.document() for record in pod.containers]
    if pod.inits and pod.begun:
        status["initContainerStatuses"] = [record.document() for record in pod.inits]
    if pod.failure:
        status["reason"], status["message"] = pod.failure
    return status


def condition(kind: str, holds: bool, otherwise: str) -> dict:
    """One entry of a list of conditions."""
    entry = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": now()}
    return entry if holds else {**entry, "reason": otherwise}
