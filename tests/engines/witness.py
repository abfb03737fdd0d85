"""A gang that trains nothing, and writes down who was which rank when: for tests that look for doubled ranks.

python witness.py FOLDER STEPS [SECONDS_PER_STEP]. Speaks the checkpoint contract; its ranks meet where they are told
and agree on every step, as a process group does, so that they save at the same one and none goes on without the others.
"""

import os
import socket
import sys
import time
from pathlib import Path

from compass_abs.training import contract
from compass_abs.training.contract import DirectiveKind, ProcessState

#: A gang whose ranks don't find each other is broken after this long.
PATIENCE = 40.0
EVERY = 50


class ProcessGroup:
    """The ranks of one generation. Rank 0 hears all and answers all."""

    def __init__(self, name: str, rank: int, world: int, address: tuple[str, int]) -> None:
        self._mates: dict[int, socket.socket] = {}
        self._rank = rank
        if rank == 0 and world > 1:
            with socket.create_server((address[0] if address[0].startswith("127.") else "", address[1])) as server:
                server.settimeout(PATIENCE)
                while len(self._mates) < world - 1:
                    self._admit(server.accept()[0], name)
        elif world > 1:
            self._mates[0] = self._join(address)
            self._mates[0].sendall(f"{name} {rank}\n".encode())

    def _admit(self, mate: socket.socket, name: str) -> None:
        mate.settimeout(PATIENCE)
        said = b""
        while not said.endswith(b"\n") and (more := mate.recv(1)):
            said += more
        who, _, rank = said.decode().strip().rpartition(" ")
        if who != name or int(rank) in self._mates:
            raise SystemExit(f"an intruder: {said!r} at the rendezvous of {name}")
        self._mates[int(rank)] = mate

    def _join(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_connection(address, PATIENCE)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def largest(self, value: int) -> int:
        """The largest of what all ranks say."""
        if self._rank == 0:
            value = max([value, *(_byte(mate) for mate in self._mates.values())])
        for mate in self._mates.values():
            mate.sendall(bytes([value]))
        return value if self._rank == 0 or not self._mates else _byte(self._mates[0])

    def close(self) -> None:
        """Leaves it."""
        for mate in self._mates.values():
            mate.close()


def _byte(mate: socket.socket) -> int:
    found = mate.recv(1)
    if not found:
        raise ConnectionError("a rank of the gang is gone")
    return found[0]


class Witness:
    """One rank."""

    def __init__(self, folder: Path, total: int, pause: float) -> None:
        worker = contract.Worker.from_environment()
        assert worker.control_dir is not None
        self._worker, self._control, self._generation = worker, worker.control_dir, worker.generation
        self._total, self._pause = total, pause
        self._log = os.open(folder / f"{worker.job_id}.{worker.rank}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._began = self._step = int(Path(worker.resume_from).read_text()) if worker.resume_from else 0
        self._checkpoint, self._saved = worker.resume_from, self._began if worker.resume_from else -1
        self._answered = ""
        self._meet((worker.master_addr, worker.master_port))

    def _meet(self, address: tuple[str, int]) -> None:
        self._note("begin")
        self._tell(ProcessState.STARTING)
        name = f"{self._worker.job_id} {self._generation}"
        self._group = ProcessGroup(name, self._worker.rank, self._worker.world_size, address)

    def _note(self, event: str) -> None:
        os.write(self._log, f"{time.time()} {self._generation} {os.getpid()} {event} {self._step}\n".encode())

    def _tell(self, state: ProcessState) -> None:
        contract.report(
            self._control,
            contract.Progress(
                self._worker.rank,
                self._generation,
                self._step,
                time.time(),
                state,
                os.getpid(),
                self._began,
                checkpoint=self._checkpoint,
                checkpoint_step=self._saved,
                total=self._total,
            ),
        )

    def train(self) -> None:
        """Until the end, or until it is told to leave."""
        while self._step < self._total:
            time.sleep(self._pause)
            request = contract.read_request(self._control)
            asked = request is not None and request.id != self._answered
            agreed = self._group.largest(int(asked))
            self._step += 1
            self._note("step")
            if self._step % EVERY == 0:
                self._save()
            if self._step % 10 == 1 or self._step == self._began + 1:
                self._tell(ProcessState.RUNNING)
            if agreed and not self._answer():
                return
        self._group.largest(0)
        self._note("done")
        self._tell(ProcessState.FINISHED)

    def _save(self) -> None:
        path = self._worker.checkpoint_dir / f"{self._step}.txt"
        if self._worker.rank == 0:
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(str(self._step))
            temporary.replace(path)
        self._group.largest(0)
        self._checkpoint, self._saved = str(path), self._step

    def _answer(self) -> bool:
        """Saves for a request; False when it is to leave then."""
        while (request := contract.read_request(self._control)) is None or request.id == self._answered:
            time.sleep(0.005)
        self._answered, rank = request.id, self._worker.rank
        self._save()
        holds = request.kind is contract.RequestKind.HOLD
        answer = contract.Acknowledgement(
            request.id, rank, self._generation, self._step, self._checkpoint, stays=holds, time=time.time()
        )
        contract.acknowledge(self._control, answer)
        if not holds:
            return True
        self._tell(ProcessState.HELD)
        while (directive := contract.read_directive(self._control, self._worker.instance, request.id)) is None:
            time.sleep(0.005)
        if directive.kind is DirectiveKind.REJOIN:
            self._group.close()
            self._note("leave")
            self._control, self._generation = Path(directive.control_dir), directive.generation
            self._began = self._step
            self._meet((directive.master_addr, directive.master_port))
        return directive.kind is not DirectiveKind.STOP


if __name__ == "__main__":
    Witness(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.02).train()
