"""Takes batch jobs that users `sbatch` into a partition where nothing starts, and has COMPASS run their scripts.

The partition is a letter box: `State=DOWN`, so that Slurm itself holds every job at submission, without a plugin and
without a flag of the user's. A user's job becomes one COMPASS job: one instance for each of its nodes (or tasks of its
array), each run as a Slurm job of its own. The user's job stays in the box as the receipt: its comment says what became
of it, cancelling it cancels the COMPASS job, and it leaves the box when that is over.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compass_abs.engines.local.run_files import read_json, write_json
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError
from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.reading import SlurmJob, arguments, gpu_counts, number, output_pattern, text
from compass_abs.engines.slurm.submission import BILLING
from compass_abs.engines.submitting import Jobs
from compass_abs.model import CompassError

_BATCH = Path(__file__).with_name("batch.py")
_TASKS = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+)(?::(?P<step>\d+))?)?")
_OPTION = re.compile(r"compass:(?P<words>[^;]*)")
#: Slurm's "no limit", a year in minutes.
_UNLIMITED = 525_600


class Intake:
    """Empties the letter box, one `look` at a time."""

    def __init__(
        self, commands: SlurmCommands, partition: str, folder: Path, user: str, log: Callable[[str], None]
    ) -> None:
        self._commands = commands
        self._partition = partition
        self._folder = folder
        self._user = user
        self._log = log
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def look(self, jobs: Jobs) -> None:
        """Takes what is new, and settles what is over or was cancelled."""
        receipts = {
            int(path.stem): str((read_json(path) or {}).get("job", ""))
            for path in sorted(self._folder.glob("*.json"))
            if path.stem.isdigit()
        }
        present = {job.id: job for job in self._commands.jobs() if job.partition == self._partition}
        for slurm_id, job in sorted(present.items()):
            if job.state == "PENDING" and not receipts.get(slurm_id):
                self._take(job, jobs)
        for slurm_id, job_id in receipts.items():
            if not job_id or job_id == "refused":
                continue
            receipt = present.get(slurm_id)
            if jobs.is_over(job_id):
                if receipt is not None and receipt.state == "PENDING":
                    self._commands.cancel([slurm_id])
                self._receipt(slurm_id).unlink(missing_ok=True)
            elif receipt is None or receipt.ended:
                jobs.cancel(job_id)

    def _receipt(self, slurm_id: int) -> Path:
        return self._folder / f"{slurm_id}.json"

    def _take(self, job: SlurmJob, jobs: Jobs) -> None:
        try:
            fields = self._fields(job)
            # A controller or an intake that died in between has submitted it already.
            job_id = jobs.find(fields["name"]) or jobs.submit(fields)
        except EngineUnavailableError:
            raise
        except CompassError as error:
            self._refuse(job, str(error))
            return
        write_json(self._receipt(job.id), {"job": job_id})
        self._log(f"Slurm job {job.id} runs as {job_id}")
        bare = "" if arguments(job) is not None else ", without arguments: this release of Slurm does not tell them"
        self._say(job, f"runs as COMPASS job {job_id}{bare}")

    def _refuse(self, job: SlurmJob, why: str) -> None:
        write_json(self._receipt(job.id), {"job": "refused", "why": why})
        self._log(f"Slurm job {job.id} is left alone: {why}")
        self._say(job, f"COMPASS can not run it: {why}")

    def _say(self, job: SlurmJob, what: str) -> None:
        said = _OPTION.search(job.comment)
        comment = f"{said[0]}; {what}" if said else what
        try:
            self._commands.update_job(job.id, Comment=comment)
        except EngineRefusalError as error:
            self._log(f"Slurm job {job.id}: {error}")

    def _fields(self, job: SlurmJob) -> dict[str, Any]:
        """The job file that says the same as this batch job."""
        if job.user != self._user:
            raise EngineRefusalError(
                f"it is {job.user}'s, and this controller runs jobs as {self._user} only; start one as {job.user}"
            )
        array = _array_tasks(text(job.raw.get("array_task_string")))
        instances = len(array) or max(number(job.raw.get("node_count"), 1), 1)
        script = self._folder / f"{job.id}.sh"
        self._commands.run(("scontrol", "write", "batch_script", str(job.id), str(script)))
        script.chmod(0o700)
        folder = text(job.raw.get("current_working_directory"))
        order: dict[str, Any] = {
            "id": job.id,
            "name": job.name,
            "user": job.user,
            "folder": folder,
            "output": output_pattern(job),
            "array": array,
            "tasks_per_node": _tasks_per_node(job, 1 if array else instances),
            "programs": str(self._programs()),
            "command": [str(script), *(arguments(job) or ())],
        }
        order_file = self._folder / f"{job.id}.batch.json"
        write_json(order_file, order)
        fields: dict[str, Any] = {
            "name": f"{job.name[:150]} (Slurm job {job.id})",
            "instances": instances,
            "gpus_per_instance": _gpus(job, 1 if array else instances),
            "command": [sys.executable, "-I", "-S", str(self._folder / _BATCH.name), "run", str(order_file)],
            "workdir": folder,
            "env": {name: said for name, field in BILLING.items() if (said := text(job.raw.get(field)))},
            "labels": {"slurm-job": str(job.id)},
        }
        minutes = number(job.raw.get("time_limit"))
        if 0 < minutes < _UNLIMITED:
            fields["max_duration"] = minutes * 60
        return fields | _options(job.comment)

    def _programs(self) -> Path:
        """The folder of what scripts find instead of Slurm's own."""
        program, folder = self._folder / _BATCH.name, self._folder / "bin"
        shutil.copyfile(_BATCH, program)
        folder.mkdir(exist_ok=True)
        srun = folder / "srun"
        words = shlex.join([sys.executable, "-I", "-S", str(program), "srun"])
        srun.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        srun.chmod(0o700)
        return folder


def _gpus(job: SlurmJob, nodes: int) -> int:
    """GPUs on each of its nodes."""
    tasks = max(number(job.raw.get("tasks"), 1), nodes)
    for field, times in (("tres_per_node", nodes), ("tres_per_job", 1), ("tres_per_task", tasks)):
        total = sum(gpu_counts(text(job.raw.get(field))).values()) * times
        if total % nodes:
            raise EngineRefusalError(f"its {total} GPUs don't divide among {nodes} nodes; use --gres=gpu:N")
        if total:
            return total // nodes
    raise EngineRefusalError("it asks for no GPUs per node; use --gres=gpu:N")


def _tasks_per_node(job: SlurmJob, nodes: int) -> int:
    return number(job.raw.get("tasks_per_node")) or max(number(job.raw.get("tasks"), 1) // nodes, 1)


def _array_tasks(tasks: str) -> list[int]:
    """Numbers of an array's tasks, as in `0-3,7,10-20:5%2`."""
    found: list[int] = []
    for part in filter(None, tasks.split("%")[0].split(",")):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise EngineRefusalError(f"its array {tasks!r} is too long to be told in full; submit it in pieces")
        first = int(match["first"])
        found += range(first, int(match["last"] or first) + 1, int(match["step"] or 1))
    return found


def _options(comment: str) -> dict[str, Any]:
    """What a comment like `compass:signal=USR1` or `compass:periodic` says of how the job can be moved."""
    found = _OPTION.search(comment)
    checkpoint: dict[str, Any] = {}
    for word in found["words"].split(",") if found else ():
        name, _, value = word.strip().partition("=")
        if name == "signal":
            checkpoint |= {"mode": "signal", "signal": value or "USR1"}
        elif name in ("session", "periodic"):
            checkpoint["mode"] = name
        elif name == "checkpoints" and value:
            checkpoint["dir"] = value
        elif name:
            raise EngineRefusalError(
                f"its comment says {name!r}; expected compass:session, signal=NAME, periodic, checkpoints=FOLDER"
            )
    return {"checkpoint": checkpoint} if checkpoint else {}
