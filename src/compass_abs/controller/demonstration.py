"""A small Phys-Mix on the live system, with a look at whether migration changed anything: `make live`."""

import importlib.util
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compass_abs.controller.client import Client
from compass_abs.controller.reconcile import Config
from compass_abs.controller.server import Settings, in_background
from compass_abs.engines.local import LocalEngine, Warmth
from compass_abs.model import CompassError

_STEP = re.compile(r"^(\d+) (-?0x[0-9a-f.]+p[+-]\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demonstration."""

    workload: str
    instances: int
    gpus: int
    steps: int
    #: Seconds after the one before it.
    after: float = 0.0

    def fields(self, name: str, *, movable: bool = True) -> dict[str, Any]:
        """The job file."""
        command = ["python", "-m", "compass_abs.training.workloads", self.workload, "--size", "tiny"]
        command += ["--steps", str(self.steps), "--pace", "0.1", "--seed", "7"]
        return {
            "name": name,
            "instances": self.instances,
            "gpus_per_instance": self.gpus,
            "command": command,
            "movable": movable,
        }


#: All six workloads, every kind of demand (1, power of two, unfriendly, gang), and 38 GPUs wanted where 32 are.
SMALL_MIX = (
    DemoJob("gpt2", 2, 4, 150),
    DemoJob("resnet", 1, 1, 120),
    DemoJob("bert", 1, 3, 120, 0.5),
    DemoJob("deepfm", 1, 1, 120),
    DemoJob("vit", 1, 8, 90, 0.5),
    DemoJob("clip", 1, 5, 90),
    DemoJob("resnet", 1, 2, 90, 0.5),
    DemoJob("deepfm", 1, 4, 60),
    DemoJob("bert", 1, 6, 40),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the demonstration showed."""

    jobs: int
    done: int
    migrations: int
    #: Seconds that each migration took, by phase.
    phases: tuple[dict[str, float], ...]
    #: Migrated jobs whose losses were compared with an undisturbed run, and those that differed.
    compared: tuple[str, ...]
    differing: tuple[str, ...]
    #: Starts that something had gone wrong before.
    restarts: int = 0

    @property
    def good(self) -> bool:
        """True when everything is as it should be."""
        return self.done == self.jobs and self.migrations > 0 and bool(self.compared) and not self.differing


def require_torch() -> None:
    """Raises where there is no torch: told at once, and not by a log of each job that failed."""
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


def demonstrate(
    client: Client, say: Callable[[str], None], mix: tuple[DemoJob, ...] = SMALL_MIX, patience: float = 900.0
) -> Verdict:
    """Submits the mix, drains a node in the middle of it, waits, and repeats what was moved undisturbed."""
    deadline = time.monotonic() + patience
    jobs: dict[str, DemoJob] = {}
    for number, job in enumerate(mix):
        time.sleep(job.after)
        jobs[client.submit_fields(job.fields(f"{job.workload} {number}"))] = job
    say(f"{len(jobs)} jobs submitted")
    drained = _drain_below(client, next(iter(jobs)), deadline)
    say(f"draining {drained}, where {next(iter(jobs))} trains")
    found = _wait(client, list(jobs), deadline, say)
    client.post(f"/nodes/{drained}/undrain")
    moved = [each for each in found if any(past["outcome"] == "done" for past in each["history"])]
    phases = tuple(past["seconds"] for each in moved for past in each["history"] if past["outcome"] == "done")
    for each in moved:
        for past in each["history"]:
            say(_told(each["id"], past))
    say(f"all over; {len(moved)} of them had moved: training those again, undisturbed")
    again = {
        client.submit_fields(jobs[each["id"]].fields(f"undisturbed {each['id']}", movable=False)): each
        for each in moved
    }
    _wait(client, list(again), deadline, say)
    differing = [old["id"] for new, old in again.items() if not same_losses(client, old, new, jobs[old["id"]].steps)]
    done = sum(each["phase"] == "done" for each in found)
    return Verdict(
        len(found),
        done,
        len(phases),
        phases,
        tuple(each["id"] for each in moved),
        tuple(differing),
        sum(each["restarts"] for each in found),
    )


def _told(job: str, past: dict[str, Any]) -> str:
    """A migration in a line."""
    way = f"{' '.join(past['sources'])} → {' '.join(past['targets'])}"
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in past["seconds"].items())
    return f"{job:28} {past['outcome']:10} {way}, {sum(past['seconds'].values()):.2f} s ({phases})"


def _drain_below(client: Client, job: str, deadline: float) -> str:
    """Drains the first node of a job once that trains."""
    while time.monotonic() < deadline:
        found = client.get(f"/jobs/{job}")
        if found["phase"] == "running" and found["step"] >= 10:
            client.post(f"/nodes/{found['nodes'][0]}/drain")
            return str(found["nodes"][0])
        if found["ended"] is not None:
            raise CompassError(f"job {job!r} is {found['phase']} before it could be moved: {found['reason']}")
        time.sleep(0.1)
    raise CompassError(f"job {job!r} did not begin to train in time")


def _wait(client: Client, jobs: list[str], deadline: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    over: dict[str, dict[str, Any]] = {}
    while len(over) < len(jobs):
        if time.monotonic() > deadline:
            raise CompassError(f"not over in time: {', '.join(job for job in jobs if job not in over)}")
        for job in jobs:
            if job not in over and (found := client.get(f"/jobs/{job}"))["ended"] is not None:
                over[job] = found
                say(f"{job:28} {found['phase']:10} {found['reason']}".rstrip())
        time.sleep(0.2)
    return [over[job] for job in jobs]


def same_losses(client: Client, moved: dict[str, Any], undisturbed: str, steps: int) -> bool:
    """True when every instance told the same loss for each of the steps, in both runs."""
    for instance in range(moved["instances"]):
        old, new = losses(client, moved["id"], instance), losses(client, undisturbed, instance)
        # Two logs that tell nothing are no evidence.
        if old != new or sorted(old) != list(range(1, steps + 1)):
            return False
    return True


def losses(client: Client, job: str, instance: int) -> dict[int, str]:
    """Loss of every step of an instance, as it printed them, over all its generations."""
    found: dict[int, str] = {}
    for generation in range(1, client.get(f"/jobs/{job}")["generation"] + 1):
        try:
            text = client.log(job, instance=instance, generation=generation, limit=1 << 20)[0].decode()
        except CompassError:
            continue
        for step, loss in _STEP.findall(text):
            if found.setdefault(int(step), loss) != loss:
                found[int(step)] = f"{found[int(step)]} and {loss}"
    return found


@contextmanager
def live_system(
    state: Path | None, port: int, config: Config, nodes: int = 4, gpus: int = 8, warmth: Warmth = Warmth.STANDBY
) -> Iterator[Client]:
    """A controller with its dashboard on this machine; its state is thrown away where no folder is given."""
    with tempfile.TemporaryDirectory(prefix="compass-live-", ignore_cleanup_errors=True) as temporary:
        folder = (state or Path(temporary)).absolute()
        engine = LocalEngine(folder / "engine", nodes, gpus, warmth=warmth)
        with in_background(Settings(folder, port=port, config=config), engine) as url, Client(url) as client:
            # What starts while torch is still imported starts cold, on cores that four imports fight for.
            engine.wait_until_warm()
            try:
                yield client
            finally:
                # After an interrupt: what trains would train on, for nobody, in folders that are gone.
                engine.abandon()
