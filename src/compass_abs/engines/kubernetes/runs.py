"""One instance as a pod: what the API server says of it, beside what its files do."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from compass_abs.engines import contract_files
from compass_abs.engines.kubernetes import names, pods
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.local.run_files import RunFiles
from compass_abs.engines.protocol import CheckpointMode, End, EndCause, RunId
from compass_abs.engines.supervised_run import FILE_PATIENCE, SupervisedRun


@dataclass(slots=True)
class PodRun(SupervisedRun):
    """A run, as this engine knows it; everything that must outlive it is in its files or in its pod's annotations."""

    namespace: str = ""
    #: Name of its pod; empty while there is none.
    pod: str = ""
    uid: str = ""
    #: Which gang of users' own pods it belongs to; empty for pods that the engine made.
    gang: str = ""
    #: True once we have asked for its end.
    asked: bool = False
    bound: bool = False
    #: True when its pod's containers are gone, or it is.
    pod_over: bool = False

    def more(self) -> dict[str, Any]:
        """Its pod."""
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "uid": self.uid,
            "gang": self.gang,
            "asked": self.asked,
            "bound": self.bound,
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Its pod."""
        self.namespace, self.pod, self.uid = str(value["namespace"]), str(value["pod"]), str(value["uid"])
        self.gang, self.asked, self.bound = str(value["gang"]), bool(value["asked"]), bool(value["bound"])

    @classmethod
    def of_pod(cls, files: RunFiles, run: RunId, pod: Object) -> "Self | None":
        """The run that a pod says it is, for an engine that has lost its files; None when it makes no sense."""
        record = record_of(pod)
        try:
            found = cls(
                run,
                str(record["node"]),
                int(record["gpus"]),
                CheckpointMode(record["mode"]),
                str(record["signal"]),
                files,
                int(record["born"]),
            )
            found.gang = str(record["gang"])
        except (ValueError, KeyError, TypeError):
            return None
        found.namespace, found.pod = pods.key_of(pod)
        found.uid, found.bound = str(pods.metadata(pod).get("uid")), bool(pods.node_of(pod))
        return found

    @property
    def handle(self) -> str:
        """Its pod."""
        return f"pod {self.namespace}/{self.pod}" if self.pod else ""

    @property
    def supervised(self) -> bool:
        """True when our own supervisor is its pod's first process."""
        return not self.gang

    def read_end(self) -> None:
        """Learns how it ended. Its GPUs are free when its pod's containers are gone, not when its program says so."""
        if self.pod_over or self._place("verdict").exists():
            SupervisedRun.read_end(self)

    @property
    def expects_news(self) -> bool:
        """True while files may say something that is waited for; that a user's pod has started, its events say."""
        if self.gang and not self.running and self.overdue_at is None:
            return False
        return SupervisedRun.expects_news.fget(self)  # type: ignore[attr-defined,no-any-return]

    def refresh(self) -> None:
        """Reads its files."""
        SupervisedRun.refresh(self)
        if self.gang and self.acknowledgement is not None:
            # Its environment is its owner's: nobody can tell it where the next generation meets.
            self.acknowledgement = self.acknowledgement._replace(rejoins=False)

    def pod_says(self, pod: Object | None) -> None:
        """Takes into account what its pod says; None: there is none any more."""
        if not self.alive or not self.pod:
            return
        if pod is not None and pods.metadata(pod).get("uid") != self.uid:
            pod = None
        if pod is not None and not pods.is_over(pod):
            self.running = self.running or (bool(self.gang) and pods.is_running(pod))
            self._note_deletion(pod)
            return
        self.pod_over = True
        self.refresh()
        if self.end is None:
            self._judge(pod)

    def _note_deletion(self, pod: Object) -> None:
        if pods.is_deleted(pod) and not self.asked and not pods.is_disrupted(pod):
            self._withdraw()

    def _judge(self, pod: Object | None) -> None:
        """Its pod is over, and it has not said how it ended."""
        now = time.monotonic()
        self.gone_since = self.gone_since if self.gone_since is not None else now
        if self.supervised and self.running and now < self.gone_since + FILE_PATIENCE:
            # Its own account may be on its way.
            return
        self.finish(self._verdict(pod))

    def _withdraw(self) -> None:
        """Somebody took a pod of this job back: to be known for longer than this run is."""
        withdrawal(self.files, self.run.job_id).touch()

    def _verdict(self, pod: Object | None) -> End:
        if contract_files.finished(self.control, self.run.number):
            return End(EndCause.EXITED, 0, "by its own account")
        if pod is not None:
            self._note_deletion(pod)
            return pods.end_of(pod, asked=self.asked)
        if self.asked:
            saved = bool(self.gang) and self.mode is CheckpointMode.SIGNAL
            detail = "its pod is gone, as it was asked to"
            return End(EndCause.EXITED, 0, detail) if saved else End(EndCause.SIGNALLED, 9, detail)
        self._withdraw()
        return End(EndCause.EVICTED, detail="its pod was deleted by others")


def record_of(pod: Object) -> dict[str, Any]:
    """What was written into a pod of the run that it is; empty when nothing sensible was."""
    try:
        found = json.loads(pods.mark(pod, names.RECORD))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def withdrawal(files: RunFiles, job_id: str) -> Path:
    """The file that says that somebody else deleted a pod of a job."""
    return files.job(job_id) / "withdrawn"
