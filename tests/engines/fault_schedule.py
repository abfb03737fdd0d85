"""Random mishaps on a real platform with a real controller: no job lost, no rank doubled, generations fenced.

Independent of the engine: a `Platform` says how its engine is opened (`tests.engines.opening`), what can go wrong
there, and how all is made well again. The controller is a process of its own, killed with -9 and started again at
random; gangs of `witness.py` write down who was which rank when.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from compass_abs.controller.client import Client, ControllerError

WITNESS = Path(__file__).with_name("witness.py")
#: Instances and GPUs of each; nodes have at least four.
SIZES = ((1, 2), (2, 2), (2, 3), (2, 4), (3, 1))
STEPS = 400
#: Seconds within which everything ends well once nothing goes wrong any more.
CALM = 200.0


class Platform(Protocol):
    """What runs the instances, as far as a schedule needs to know."""

    @property
    def opening(self) -> Sequence[str]:
        """Name of the engine and its arguments, for `open_engine`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What the controller finds in its environment beside ours."""

    @property
    def strikes(self) -> Mapping[str, Callable[[Random], None]]:
        """What can go wrong there, by name. Each may be called at any time, also while another lasts."""

    def heal(self) -> None:
        """Everything there is well again."""

    def leftovers(self) -> list[str]:
        """What it still has of ours."""


class Sighting(NamedTuple):
    """A line of a witness."""

    time: float
    generation: int
    pid: int
    event: str
    step: int


class FaultSchedule:
    """One random story."""

    def __init__(self, seed: int, platform: Platform, folder: Path, rounds: int = 14) -> None:
        self._pick = Random(seed)
        self._platform = platform
        self._folder = folder
        self._rounds = rounds
        self._witnesses = folder / "witnesses"
        self._witnesses.mkdir()
        self._controller: subprocess.Popen[bytes] | None = None
        self._port = _free_port()
        self._client = Client(f"http://127.0.0.1:{self._port}", seconds=10.0)
        self._started = time.monotonic()
        self._jobs: dict[str, int] = {}
        self._drained: list[str] = []
        self.story: list[str] = []

    def play(self) -> None:
        """Plays it, and checks how it ended."""
        try:
            self._start_controller()
            for _ in range(3):
                self._submit()
            for _ in range(self._rounds):
                time.sleep(self._pick.uniform(0.1, 1.6))
                self._trouble()
            self._calm()
            self._check()
        except BaseException as error:
            error.add_note("\n".join(self.story))
            error.add_note((self._folder / "controller.log").read_text()[-3000:])
            raise
        finally:
            self._kill_controller()
            self._client.close()

    # ---- what happens

    def _say(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._started:6.2f} {time.time():.2f} {text}")

    def _trouble(self) -> None:
        strikes = self._platform.strikes
        kinds = ["submit", "drain", "undrain", "instance", "controller", *strikes]
        weights = [3, 7, 3, 2, 3, *(6 / len(strikes) for _ in strikes)]
        kind = self._pick.choices(kinds, weights)[0]
        self._say(kind)
        match kind:
            case "submit":
                self._submit()
            case "drain" | "undrain":
                self._set_node(kind)
            case "instance":
                self._kill_instance()
            case "controller":
                self._kill_controller()
                time.sleep(self._pick.uniform(0.0, 2.0))
                self._start_controller()
            case _:
                strikes[kind](self._pick)

    def _start_controller(self) -> None:
        program = [sys.executable, "-m", "tests.engines.controlling", str(self._folder / "state"), str(self._port)]
        environment = {**os.environ, **self._platform.environment}
        with (self._folder / "controller.log").open("ab") as log:
            self._controller = subprocess.Popen(
                [*program, *self._platform.opening], env=environment, stdout=log, stderr=log
            )

    def _kill_controller(self) -> None:
        if self._controller is not None:
            self._controller.kill()
            self._controller.wait(30)
            self._controller = None

    def _ask(self, question: Callable[[Client], Any], seconds: float = 60.0) -> Any:
        """What the controller answers; it may be on its way up, or unable to see its platform."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return question(self._client)
            except ControllerError:
                if time.monotonic() > deadline:
                    raise
                if self._controller is not None and self._controller.poll() is not None:
                    # Its platform did not answer when it started; its service manager starts it again.
                    self._start_controller()
                time.sleep(0.1)

    def _submit(self) -> None:
        instances, gpus = self._pick.choice(SIZES)
        name = f"w{len(self._jobs)}"
        fields = {
            "name": name,
            "instances": instances,
            "gpus_per_instance": gpus,
            "command": [sys.executable, str(WITNESS), str(self._witnesses), str(STEPS)],
            "retries": 1000,
            "checkpoint": {"grace": 3},
        }

        def once(client: Client) -> str:
            # An answer may be lost with its controller: names make a repetition harmless.
            known = [job["id"] for job in client.get("/jobs", limit=1000)["jobs"] if job["name"] == name]
            return known[0] if known else client.submit_fields(fields)

        job = self._ask(once)
        self._jobs[job] = instances
        self._say(f"submitted {job}: {instances} instances of {gpus} GPUs")

    def _set_node(self, action: str) -> None:
        nodes = [node["name"] for node in self._ask(lambda client: client.get("/nodes"))["nodes"]]
        if not nodes:
            return
        # Never all of them: a job has to be able to start somewhere.
        choice = self._pick.choice(self._drained if action == "undrain" and self._drained else nodes)
        if action == "drain":
            if len(self._drained) >= len(nodes) - 2:
                return
            self._drained.append(choice)
        elif choice in self._drained:
            self._drained.remove(choice)
        self._ask(lambda client: client.post(f"/nodes/{choice}/{action}"))
        self._say(f"{action} {choice}")

    def _kill_instance(self) -> None:
        alive = self._alive()
        if alive:
            job, rank, pid = self._pick.choice(alive)
            os.kill(pid, signal.SIGKILL)
            self._say(f"killed {job}.{rank}, process {pid}")

    def _alive(self) -> list[tuple[str, int, int]]:
        found = []
        for (job, rank), lines in self._sightings().items():
            pid = lines[-1].pid
            if _is_witness(pid, self._witnesses):
                found.append((job, rank, pid))
        return found

    # ---- how it ends

    def _calm(self) -> None:
        """Nothing goes wrong any more: everything has to end, and end well."""
        self._say("calm")
        self._platform.heal()
        for node in dict.fromkeys(self._drained):
            self._ask(lambda client, node=node: client.post(f"/nodes/{node}/undrain"))  # type: ignore[misc]
        deadline = time.monotonic() + CALM
        left = list(self._jobs)
        while left:
            found = {job: self._ask(lambda client, job=job: client.get(f"/jobs/{job}")) for job in left}  # type: ignore[misc]
            for job, entry in found.items():
                assert entry["phase"] not in ("failed", "cancelled"), f"{job} was lost: {entry}"
            left = [job for job in left if found[job]["phase"] != "done"]
            assert not left or time.monotonic() < deadline, f"not done after {CALM:g} s: {[found[job] for job in left]}"
            time.sleep(0.2)
        self._say("all done")

    def _check(self) -> None:
        seen = self._sightings()
        for job, instances in self._jobs.items():
            for rank in range(instances):
                check_rank(f"{job}.{rank}", seen[job, rank])
            last = {seen[job, rank][-1].generation for rank in range(instances)}
            assert len(last) == 1, f"the ranks of {job} ended in generations {last}"
        assert not self._alive(), f"still alive: {self._alive()}"
        deadline = time.monotonic() + 20
        while (left := self._platform.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, f"the platform still has {left}"

    def _sightings(self) -> dict[tuple[str, int], list[Sighting]]:
        found: dict[tuple[str, int], list[Sighting]] = defaultdict(list)
        for path in sorted(self._witnesses.iterdir()):
            job, _, rank = path.name.rpartition(".")
            for line in path.read_text().splitlines():
                moment, generation, pid, event, step = line.split()
                sighting = Sighting(float(moment), int(generation), int(pid), event, int(step))
                found[job, int(rank)].append(sighting)
        return found


def check_rank(name: str, lines: Sequence[Sighting]) -> None:
    """One process a generation, one at a time, each from a step that was done, and the last did them all."""
    assert lines, f"{name} never ran"
    assert (lines[-1].event, lines[-1].step) == ("done", STEPS), f"{name} ended with {lines[-1]}"
    pids: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        pids[line.generation].add(line.pid)
    assert all(len(found) == 1 for found in pids.values()), f"{name} was doubled: {dict(pids)}"
    spans: dict[int, tuple[float, float]] = {}
    for line in lines:
        first, last = spans.get(line.pid, (line.time, line.time))
        spans[line.pid] = (min(first, line.time), max(last, line.time))
    ordered = sorted(spans.items(), key=lambda item: item[1])
    for (earlier, (_, end)), (later, (start, _)) in pairwise(ordered):
        assert end <= start, f"{name} was {earlier} until {end} and {later} from {start}"
    generation, furthest = 0, 0
    for line in lines:
        assert line.generation >= generation, f"{name} fell behind its fence: {line} after generation {generation}"
        if line.event == "begin":
            assert line.step <= furthest, f"{name} begins at step {line.step}; {furthest} were done"
        generation, furthest = line.generation, max(furthest, line.step)


def _is_witness(pid: int, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
