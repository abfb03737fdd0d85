"""Slurm's own commands: sbatch, squeue, scontrol, scancel. Nothing else works with every release and configuration."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError
from compass_abs.engines.slurm.reading import SlurmJob, SlurmNode, read_jobs, read_nodes

#: What Slurm's commands need of our environment. sbatch hands all of it to the job, so nothing else may be in it.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF")
#: Slurm's own time-out of a message is 10 s.
_TIMEOUT = 25.0
#: Said when nobody knows whether the controller did it. Everything else is its answer.
_NO_ANSWER = re.compile(
    r"unable to contact|connection|timed? ?out|zero bytes|socket|communication|standby|munge|authentication|"
    r"temporarily|transport|unable to establish|could not establish|failed to connect|I/O error|rollover",
    re.IGNORECASE,
)


class SlurmCommands:
    """The commands of one cluster."""

    def __init__(self, configuration: Path | None = None) -> None:
        self._environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._environment.setdefault("PATH", os.defpath)
        if configuration is not None:
            self._environment["SLURM_CONF"] = str(configuration)
        if shutil.which("sbatch", path=self._environment["PATH"]) is None:
            raise EngineRefusalError("there is no 'sbatch' in PATH: run this where Slurm's commands are installed")
        self._nodes_command: tuple[str, ...] = ("scontrol", "show", "node", "--json")

    def run(self, command: Sequence[str], *, script: str | None = None) -> str:
        """What a command prints. See the protocol for its two kinds of no."""
        try:
            done = subprocess.run(
                list(command),
                input=script if script is not None else "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                env=self._environment,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise EngineUnavailableError(f"{command[0]} did not answer within {_TIMEOUT:g} s") from None
        except OSError as error:
            raise EngineUnavailableError(f"{command[0]} can't be run: {error}") from None
        if done.returncode != 0:
            said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            kind = EngineUnavailableError if _NO_ANSWER.search(said) else EngineRefusalError
            raise kind(f"{' '.join(command[:2])}: {said}")
        return done.stdout

    def _json(self, command: Sequence[str], wanted: str) -> dict[str, Any]:
        try:
            document = json.loads(self.run(command))
        except EngineRefusalError as error:
            raise EngineUnavailableError(str(error)) from None
        except ValueError as error:
            raise EngineUnavailableError(f"{' '.join(command)} printed no JSON: {error}") from None
        if not isinstance(document, dict):
            raise EngineUnavailableError(f"{' '.join(command)} printed {type(document).__name__}, expected an object")
        errors = document.get("errors")
        if errors:
            # 22.05 ends with 0 and an empty list when slurmctld doesn't answer: every job would seem gone.
            raise EngineUnavailableError(f"{' '.join(command)}: {json.dumps(errors)[:500]}")
        if not isinstance(document.get(wanted), list):
            # Of a release that calls it otherwise: a list that isn't there is not an empty one.
            raise EngineUnavailableError(f"{' '.join(command)}: there is no list {wanted!r} in what it printed")
        return document

    def jobs(self) -> list[SlurmJob]:
        """All jobs that Slurm still knows, ended ones included."""
        return read_jobs(self._json(("squeue", "--all", "--states=all", "--json"), "jobs"))

    def nodes(self) -> list[SlurmNode]:
        """All nodes. 22.05 knows them one by one in `sinfo --json`, later releases in `scontrol show node --json`."""
        try:
            return read_nodes(self._json(self._nodes_command, "nodes"))
        except EngineUnavailableError as error:
            if "unrecognized option" not in str(error) or self._nodes_command[0] == "sinfo":
                raise
        self._nodes_command = ("sinfo", "--all", "--json")
        return read_nodes(self._json(self._nodes_command, "nodes"))

    def submit(self, options: Sequence[str], script: str) -> int:
        """Submits a batch script; its job's id."""
        printed = self.run(("sbatch", "--parsable", *options), script=script)
        found = re.match(r"\s*(\d+)", printed)
        if found is None:
            raise EngineUnavailableError(f"sbatch printed {printed!r}, expected the number of a job")
        return int(found[1])

    def release(self, jobs: Iterable[int]) -> None:
        """Releases held jobs, all in one command."""
        self.run(("scontrol", "release", ",".join(map(str, jobs))))

    def cancel(self, jobs: Iterable[int]) -> None:
        """Cancels jobs; ones that are gone already are no matter."""
        numbers = [str(job) for job in jobs]
        if numbers:
            self._signal(("scancel", *numbers))

    def signal_script(self, job: int, signal: str) -> None:
        """Signals the batch script alone."""
        self._signal(("scancel", "--batch", f"--signal={signal}", str(job)))

    def _signal(self, command: Sequence[str]) -> None:
        try:
            self.run(command)
        except EngineRefusalError as error:
            if not re.search(r"invalid job|already complet|already finished|not running|pending", str(error), re.I):
                raise

    def update_job(self, job: int, **fields: str) -> None:
        """Changes fields of a job."""
        self.run(("scontrol", "update", f"JobId={job}", *(f"{name}={value}" for name, value in fields.items())))
