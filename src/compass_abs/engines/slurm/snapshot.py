"""A Slurm cluster at one moment, and what of it is ours."""

from dataclasses import dataclass
from functools import cached_property

from compass_abs.engines.protocol import NodeHealth, NodeReport, RunId
from compass_abs.engines.slurm.reading import SlurmJob, SlurmNode
from compass_abs.engines.slurm.submission import comment_prefix


@dataclass(frozen=True)
class Snapshot:
    """All jobs and nodes."""

    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]

    @cached_property
    def _by_id(self) -> dict[int, SlurmJob]:
        return {job.id: job for job in self.jobs}

    def job(self, number: int, owner: str, run: RunId) -> SlurmJob | None:
        """The job of this number, if it still is the one of this run's instance: numbers start anew some day."""
        job = self._by_id.get(number)
        if job is None or not job.comment.startswith(f"{comment_prefix(owner)}{run.job_id}/{run.number}@"):
            return None
        return job

    def job_of(self, comment: str) -> SlurmJob | None:
        """The job with this comment."""
        return next((job for job in self.jobs if job.comment == comment), None)

    def of_partition(self, partition: str) -> list[SlurmNode]:
        """The partition's nodes that have GPUs."""
        return [node for node in self.nodes if partition in node.partitions and node.gpus]

    def foreign_gpus(self, owner: str) -> dict[str, dict[int, int]]:
        """GPUs that other people's jobs hold: job number → GPUs, by node."""
        found: dict[str, dict[int, int]] = {}
        for job in self.jobs:
            if not job.active or job.comment.startswith(comment_prefix(owner)):
                continue
            for name, gpus in zip(node_names(job.nodes), job.gpus, strict=False):
                if gpus:
                    found.setdefault(name, {})[job.id] = gpus
        return found


def node_names(text: str) -> list[str]:
    """Names in a host list like `n[1-3,07],gpu4`."""
    found: list[str] = []
    depth, start = 0, 0
    for position, character in enumerate(text + ","):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            found += _expand(text[start:position])
            start = position + 1
    return found


def _expand(text: str) -> list[str]:
    head, bracket, rest = text.partition("[")
    if not bracket:
        return [text] if text else []
    ranges, _, tail = rest.partition("]")
    found = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            found += [f"{head}{number:0{len(first)}d}{end}" for end in (_expand(tail) or [""])]
    return found


def node_report(node: SlurmNode, foreign: dict[int, int]) -> NodeReport:
    """What the controller is told of a node. Other people's jobs close it: what they hold is fixed and not ours."""
    if node.lost:
        health, detail = NodeHealth.LOST, node.reason or " ".join(sorted(node.flags))
    elif node.closed:
        health, detail = NodeHealth.CORDONED, node.reason or " ".join(sorted(node.flags))
    elif foreign:
        jobs = ", ".join(map(str, sorted(foreign)))
        health, detail = NodeHealth.CORDONED, f"{sum(foreign.values())} GPUs are held by Slurm jobs of others: {jobs}"
    else:
        health, detail = NodeHealth.READY, ""
    return NodeReport(node.name, node.gpus, node.gpu_type, health, detail)
