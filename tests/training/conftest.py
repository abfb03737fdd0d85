"""Gangs of real processes, forked from one warm standby so that the whole folder takes seconds."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compass_abs.training import contract
from compass_abs.training.contract import Acknowledgement, ProcessState, Progress, Request, RequestKind
from compass_abs.training.standby import Successor, fork_successor
from compass_abs.training.workloads import WORKLOADS

PATIENCE = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    """Waits, within reason."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
        time.sleep(0.002)


@dataclass
class Gang:
    """One job over all its generations; generation n has the control folder `control-n`."""

    folder: Path
    standby: Path
    words: Sequence[str]
    ranks: int = 1
    generation: int = 0
    port: int = 0
    processes: dict[int, Successor] = field(default_factory=dict)

    @property
    def control(self) -> Path:
        return self.folder / f"control-{self.generation}"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def next_generation(self) -> None:
        self.generation += 1
        self.control.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def environment(self, rank: int) -> dict[str, str]:
        return {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            "NODE_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "COMPASS_JOB_ID": "job",
            "COMPASS_INSTANCE": str(rank),
            "COMPASS_GENERATION": str(self.generation),
            "COMPASS_CHECKPOINT_DIR": str(self.checkpoints),
            "COMPASS_CONTROL_DIR": str(self.control),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }

    def fork(self, rank: int, **variables: str) -> Successor:
        environment = {**self.environment(rank), **variables}
        process = fork_successor(self.standby, self.words, environment, cwd=self.folder, output=self.folder / "output")
        self.processes[rank] = process
        return process

    def start(self, **variables: str) -> None:
        self.next_generation()
        for rank in range(self.ranks):
            self.fork(rank, **variables)

    def progress(self, rank: int = 0) -> Progress:
        progress = contract.read_progress(self.control, rank)
        assert progress is not None
        return progress

    def answer(self, rank: int = 0) -> Acknowledgement:
        answer = contract.read_acknowledgement(self.control, rank)
        assert answer is not None
        return answer

    def wait_state(self, *states: ProcessState) -> None:
        def there() -> bool:
            reports = [contract.read_progress(self.control, rank) for rank in range(self.ranks)]
            assert not any(r and r.state is ProcessState.FAILED for r in reports), self.output()
            return all(r is not None and r.state in states for r in reports)

        until(there, f"{states}: {self.output()}")

    def lines(self) -> int:
        return len((self.folder / "losses").read_text().splitlines())

    def wait_lines(self, count: int) -> None:
        until(lambda: (self.folder / "losses").exists() and self.lines() >= count, f"{count} steps: {self.output()}")

    def ask(self, kind: RequestKind, identifier: str = "", movers: tuple[int, ...] = ()) -> None:
        contract.post_request(self.control, Request(identifier or f"request-{self.generation}", kind, movers))

    def stop(self) -> list[int | None]:
        self.ask(RequestKind.STOP)
        return self.join()

    def join(self) -> list[int | None]:
        codes = [process.wait(PATIENCE) for process in self.processes.values()]
        self.processes.clear()
        return codes

    def output(self) -> str:
        path = self.folder / "output"
        return path.read_text()[-3000:] if path.exists() else ""

    def losses(self, rank: int = 0) -> list[str]:
        """The loss of each step; of a step that was repeated after a crash the last, which all must equal."""
        path = self.folder / ("losses" if rank == 0 else f"losses.rank{rank}")
        return path.read_text().splitlines()

    def end(self) -> None:
        for process in self.processes.values():
            try:
                os.kill(process.pid, 9)
            except ProcessLookupError:
                continue


@pytest.fixture(scope="session")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A standby with every workload imported."""
    pytest.importorskip("torch")
    address = tmp_path_factory.mktemp("standby") / "socket"
    modules = ["loop", *WORKLOADS]
    process = subprocess.Popen(
        [sys.executable, "-m", "compass_abs.training.standby", str(address)]
        + [f"compass_abs.training.workloads.{name}" for name in modules],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield address
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.fixture
def gang(standby: Path, tmp_path: Path) -> Iterator[Callable[..., Gang]]:
    """Makes gangs of a workload, and ends what is left of them."""
    made: list[Gang] = []

    def make(workload: str, *, steps: int, ranks: int = 1, pace: float = 0.0, extra: Sequence[str] = ()) -> Gang:
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        words = ["-m", "compass_abs.training.workloads", workload, "--steps", str(steps), "--log", "losses", *extra]
        words += ["--pace", str(pace), "--device", "cpu"]
        made.append(Gang(folder, standby, words, ranks))
        return made[-1]

    yield make
    for job in made:
        job.end()
