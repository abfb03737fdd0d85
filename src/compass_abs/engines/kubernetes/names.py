"""Labels, annotations and names: everything by which people, their tools and this engine recognise pods.

What users write is read from annotations and labels alike; what the engine writes are annotations.
"""

import re

from compass_abs.engines.protocol import RunId

#: The `schedulerName` of pods that are ours to place.
SCHEDULER = "compass-abs"

# ---- written by users

#: Name of the gang that a pod belongs to, in its namespace.
JOB = "compass-abs/job"
#: Pods of the gang. Nothing starts before that many are there.
SIZE = "compass-abs/size"
#: How it can be moved: `signal` (it saves and exits when it is told to end), `session`, `periodic`. Without it: not.
CHECKPOINT = "compass-abs/checkpoint"
#: Folder of the checkpoint contract, at the same path in the pod and for the controller; for `session`.
CONTROL_DIR = "compass-abs/control-dir"
#: On a node: the pool it belongs to. On a pod: the pool it wants.
POOL = "compass-abs/pool"
#: Starts again after failures of its own, for pods without an owner.
RETRIES = "compass-abs/retries"

# ---- written by the engine

#: Which run a pod is: `JOB/NUMBER@GENERATION`.
RUN = "compass-abs/run"
#: Runs that it was before it rejoined, the latest last.
PAST = "compass-abs/past-runs"
#: Which controller's it is.
OWNER = "compass-abs/owner"
#: What an engine that has lost its files needs to know of a run.
RECORD = "compass-abs/record"
#: Label of pods that the engine made, for people: `kubectl get pods -l compass-abs/job-id=...`
JOB_ID_LABEL = "compass-abs/job-id"

_RUN = re.compile(r"([a-z0-9-]+)/([0-9]{1,9})@([0-9]{1,9})")
_COUNT = re.compile(r"[0-9]{1,18}")
#: Longest name of a pod whose name is its host name, too.
_LONGEST_NAME = 63


def parse_run(text: str) -> RunId | None:
    """The run that an annotation names."""
    found = _RUN.fullmatch(text)
    return RunId(found[1], int(found[2]), int(found[3])) if found else None


def count(value: object, default: int = 0) -> int:
    """A whole number that somebody else wrote; the default for what isn't one, or is beyond reason."""
    return int(text) if _COUNT.fullmatch(text := str(value)) else default


def pod_name(run: RunId, owner: str) -> str:
    """Name of the pod that is made for a run; never used for two."""
    return f"{run.job_id}-{run.number}-g{run.generation}-{owner[:4]}"


def successor_name(name: str, run: RunId) -> str:
    """Name of the pod that succeeds a user's pod in a later generation."""
    stem, _, tail = name.rpartition("-g")
    stem = stem if tail.isdigit() and stem else name
    end = f"-g{run.generation}"
    return stem[: _LONGEST_NAME - len(end)].rstrip("-.") + end
