"""How long a migration takes, phase by phase, for each Phys-Mix workload: cold, warm, ahead, and in place.

    python -m benchmarks.bench_migration                                   # tiny, CPU, two ranks
    python -m benchmarks.bench_migration --device cuda --out migration.json # full, one GPU

cold     stop, then start a new interpreter at the new place
warm     stop, then fork the successor from the standby of the node
ahead    fork the successor first, let it build everything, stop the old one only then
rejoin   one instance moves (warm), the other stays and only re-forms the process group; needs two ranks
snapshot like ahead, with periodic checkpoints in the background, so that the last one writes only what changed
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compass_abs.training import contract
from compass_abs.training.contract import Directive, DirectiveKind, ProcessState, Request, RequestKind
from compass_abs.training.standby import Successor, fork_successor
from compass_abs.training.workloads import WORKLOADS

PATIENCE = 180.0
PHASES = ("agreed", "saved", "exited", "imported", "joined", "loaded", "first_step")
Process = subprocess.Popen[bytes] | Successor


@dataclass
class Generation:
    """One start of the gang."""

    number: int
    control: Path
    port: int
    processes: list[Process] = field(default_factory=list)


class Bench:
    """A gang, its standby, and a stopwatch."""

    def __init__(self, folder: Path, workload: str, size: str, device: str, ranks: int) -> None:
        self.folder, self.workload, self.size, self.device, self.ranks = folder, workload, size, device, ranks
        self.generation = 0
        self.standby: subprocess.Popen[bytes] | None = None
        self.checkpoints = folder / "checkpoints"

    def environment(self, generation: Generation, rank: int, hold: bool) -> dict[str, str]:
        """What an engine would give this rank."""
        return {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_RANK": "0",
            "NODE_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(generation.port),
            "COMPASS_JOB_ID": self.workload,
            "COMPASS_INSTANCE": str(rank),
            "COMPASS_GENERATION": str(generation.number),
            "COMPASS_CHECKPOINT_DIR": str(self.checkpoints),
            "COMPASS_CONTROL_DIR": str(generation.control),
            "COMPASS_HOLD": "1" if hold else "0",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1" if self.device == "cpu" else str(os.cpu_count()),
        }

    def new_generation(self) -> Generation:
        """The next one, with a rendezvous of its own."""
        self.generation += 1
        control = self.folder / f"control-{self.generation}"
        control.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return Generation(self.generation, control, probe.getsockname()[1])

    def start(self, generation: Generation, rank: int, *, warm: bool, hold: bool = False, saving: str = "") -> Process:
        """Starts one rank."""
        words = ["-m", "compass_abs.training.workloads", self.workload, "--size", self.size, "--steps", "1000000"]
        words += ["--device", self.device, "--log", str(self.folder / "losses")]
        words += ["--saving", "background", "--save-every", saving] if saving else []
        environment = self.environment(generation, rank, hold)
        output = self.folder / f"out-{generation.number}-{rank}"
        if warm:
            return fork_successor(self.folder / "standby", words, environment, output=output)
        with output.open("wb") as file:
            return subprocess.Popen([sys.executable, *words], env=environment, stdout=file, stderr=file)

    def start_standby(self) -> float:
        """Seconds until it is ready."""
        begin = time.time()
        modules = ["compass_abs.training.workloads.loop", f"compass_abs.training.workloads.{self.workload}"]
        self.standby = subprocess.Popen(
            [sys.executable, "-m", "compass_abs.training.standby", str(self.folder / "standby"), *modules],
            stdout=subprocess.PIPE,
        )
        assert self.standby.stdout is not None
        if self.standby.stdout.readline() != b"ready\n":
            raise RuntimeError("the standby did not start")
        return time.time() - begin

    def wait_state(self, generation: Generation, *states: ProcessState) -> None:
        """Until every rank is in one of these states."""

        def there() -> bool:
            reports = [contract.read_progress(generation.control, rank) for rank in range(self.ranks)]
            if any(r is not None and r.state is ProcessState.FAILED for r in reports):
                raise RuntimeError(self.outputs(generation))
            return all(r is not None and r.state in states for r in reports)

        self.until(there, generation)

    def until(self, condition: Callable[[], bool], generation: Generation) -> None:
        """Polls every millisecond."""
        deadline = time.time() + PATIENCE
        while not condition():
            if time.time() > deadline:
                raise TimeoutError(self.outputs(generation))
            time.sleep(0.001)

    def outputs(self, generation: Generation) -> str:
        """What the ranks printed, for an error."""
        files = sorted(self.folder.glob(f"out-{generation.number}-*"))
        return f"{self.workload}, generation {generation.number}:\n" + "\n".join(f.read_text()[-2000:] for f in files)

    def migrate(self, old: Generation, way: str) -> tuple[Generation, dict[str, float]]:
        """One migration of all ranks (but for `rejoin`); seconds from the request to the end of each phase."""
        new = self.new_generation()
        ahead = way in ("ahead", "snapshot")
        saving = "20" if way == "snapshot" else ""
        if ahead:
            new.processes = [self.start(new, r, warm=True, hold=True, saving=saving) for r in range(self.ranks)]
            self.wait_state(new, ProcessState.WAITING)
        kind = RequestKind.HOLD if way == "rejoin" else RequestKind.STOP
        begin = time.time()
        contract.post_request(old.control, Request(f"{way}-{new.number}", kind))
        self.until(lambda: all(contract.read_acknowledgement(old.control, r) for r in range(self.ranks)), old)
        answers = [contract.read_acknowledgement(old.control, r) for r in range(self.ranks)]
        saved = [a for a in answers if a is not None and a.path]
        if len(saved) != self.ranks:
            raise RuntimeError(f"not saved: {answers}")
        if way == "rejoin":
            self.rejoin(old, new, f"{way}-{new.number}")
        else:
            for process in old.processes:
                process.wait()
        times = {name: max(a.phases[name] for a in saved) - begin for name in ("agreed", "saved")}
        times["exited"] = time.time() - begin
        if ahead:
            contract.post_go(new.control)
        elif way != "rejoin":
            new.processes = [self.start(new, r, warm=way == "warm", saving=saving) for r in range(self.ranks)]
        self.wait_state(new, ProcessState.RUNNING)
        reports = [contract.read_progress(new.control, rank) for rank in range(self.ranks)]
        for name in PHASES[3:]:
            times[name] = max(r.phases.get(name, 0.0) for r in reports if r is not None) - begin
        first = min(r.resumed_at for r in reports if r is not None)
        if first != saved[0].step:
            raise RuntimeError(f"resumed at {first}, saved at {saved[0].step}")
        return new, times

    def rejoin(self, old: Generation, new: Generation, request: str) -> None:
        """Rank 0 stays, the others move."""
        stay = Directive(request, DirectiveKind.REJOIN, new.number, str(new.control), "127.0.0.1", new.port)
        contract.post_directive(old.control, 0, stay)
        for rank in range(1, self.ranks):
            contract.post_directive(old.control, rank, Directive(request, DirectiveKind.STOP))
        for process in old.processes[1:]:
            process.wait()
        movers = [self.start(new, rank, warm=True) for rank in range(1, self.ranks)]
        new.processes = [old.processes[0], *movers]

    def measure(self, ways: Sequence[str], repeats: int) -> dict[str, Any]:
        """Every way, after one migration that isn't counted (page caches, lazily loaded kernels)."""
        ready = self.start_standby()
        generation = self.new_generation()
        generation.processes = [self.start(generation, r, warm=False) for r in range(self.ranks)]
        self.wait_state(generation, ProcessState.RUNNING)
        result: dict[str, Any] = {"standby_ready": ready, "ways": {}}
        for way in ways:
            runs = []
            if way == "snapshot":
                # The job that is moved must have a snapshot to list its changes against.
                generation, _ = self.migrate(generation, way)
            for _ in range(repeats):
                time.sleep(2.0 if way == "snapshot" else 0.3)
                generation, times = self.migrate(generation, way)
                runs.append(times)
            result["ways"][way] = {name: round(median(run[name] for run in runs), 4) for name in PHASES}
            result["ways"][way]["runs"] = [{k: round(v, 4) for k, v in run.items()} for run in runs]
        manifests = [json.loads(path.read_text()) for path in self.checkpoints.glob("checkpoint-*.json")]
        result["checkpoint_bytes"] = {"whole": 0, "delta": 0}
        for manifest in manifests:
            result["checkpoint_bytes"]["delta" if manifest["base"] else "whole"] = manifest["bytes"]
        contract.post_request(generation.control, Request("end", RequestKind.STOP))
        for process in generation.processes:
            process.wait()
        return result

    def close(self) -> None:
        """Ends the standby."""
        if self.standby is not None:
            self.standby.send_signal(signal.SIGTERM)
            self.standby.wait()


def main(arguments: Sequence[str] = ()) -> None:
    """Measures and prints; `--out` keeps every run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_migration")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=("tiny", "full"), help="tiny on cpu, full on cuda unless told otherwise")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--ways", nargs="+", choices=("cold", "warm", "ahead", "rejoin", "snapshot"))
    parser.add_argument("--ranks", type=int, help="2 on cpu, 1 on cuda unless told otherwise")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where checkpoints go (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="JSON of all runs")
    given = parser.parse_args(arguments)
    size = given.size or ("tiny" if given.device == "cpu" else "full")
    ranks = given.ranks or (2 if given.device == "cpu" else 1)
    ways = given.ways or ["cold", "warm", "ahead", *(["rejoin"] if ranks > 1 else []), "snapshot"]
    record: dict[str, Any] = {"command": sys.argv, "device": given.device, "size": size, "ranks": ranks}
    record["machine"] = {"python": platform.python_version(), "cores": os.cpu_count(), **_framework(given.device)}
    record["workloads"] = {}
    print(f"{size}, {given.device}, {ranks} rank(s); seconds from the request, median of {given.repeats}")
    print(f"{'':18}" + "".join(f"{name:>11}" for name in PHASES) + f"{'vs cold':>9}")
    for workload in given.workloads:
        folder = Path(tempfile.mkdtemp(prefix=f"migration-{workload}-", dir=given.folder))
        bench = Bench(folder, workload, size, given.device, ranks)
        try:
            result = record["workloads"][workload] = bench.measure(ways, given.repeats)
        finally:
            bench.close()
            shutil.rmtree(folder, ignore_errors=True)
        cold = result["ways"].get("cold", {}).get("first_step")
        for way, times in result["ways"].items():
            ratio = f"{cold / times['first_step']:8.1f}×" if cold else ""
            print(f"{workload:9}{way:9}" + "".join(f"{times[name]:11.3f}" for name in PHASES) + ratio, flush=True)
        if given.out:
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _framework(device: str) -> dict[str, str]:
    """Versions, asked of a process of its own: this one must not open a GPU."""
    gpu = "torch.cuda.get_device_name() if torch.cuda.is_available() else ''"
    code = f"import torch; print(torch.__version__); print({gpu})"
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    return {"torch": lines[0], "gpu": lines[1] if device == "cuda" else ""}


if __name__ == "__main__":
    main(sys.argv[1:])
