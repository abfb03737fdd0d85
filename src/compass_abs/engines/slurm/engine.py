"""The Slurm engine: gangs as single-node jobs of a partition, pinned to the nodes that were decided."""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from compass_abs.engines import contract_files
from compass_abs.engines.local.run_files import write_json
from compass_abs.engines.protocol import (
    Capability,
    End,
    EndCause,
    EngineRefusalError,
    EngineUnavailableError,
    NodeHealth,
    NodeReport,
    Observation,
    Rendezvous,
    RunId,
    StartOrder,
)
from compass_abs.engines.slurm import submission
from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.reading import SlurmNode
from compass_abs.engines.slurm.releasing import Releaser
from compass_abs.engines.slurm.runs import SlurmRun
from compass_abs.engines.slurm.snapshot import Snapshot, node_report
from compass_abs.engines.slurm.strays import Strays
from compass_abs.engines.supervised_engine import SupervisedEngine
from compass_abs.engines.supervised_run import instance_order

#: How often Slurm is asked: while a start or an end is awaited, and otherwise.
_ASK_SOON, _ASK_LATER = 0.5, 2.0
#: What Slurm said this long ago is good enough for a start: Slurm itself has the last word.
_RECENT = 1.0
#: A job that was released and isn't started within this time won't be: somebody else has its GPUs.
_START_PATIENCE = 60.0


class SlurmEngine(SupervisedEngine[SlurmRun]):
    """Nodes of one partition. `root` is a folder that this machine and all nodes see under the same path."""

    name = "slurm"
    capabilities = frozenset({Capability.REJOIN})

    def __init__(self, root: Path, partition: str = "compass", configuration: Path | None = None) -> None:
        super().__init__(root, SlurmRun)
        self.partition = partition
        self._commands = SlurmCommands(configuration)
        self._asking = threading.Lock()
        self._nodes: dict[str, SlurmNode] = {}
        self._snapshot: Snapshot | None = None
        self._asked = 0.0
        self._told_nodes: dict[str, NodeReport] = {}
        self._releaser = Releaser(self._commands)
        self._strays = Strays()
        self._thread = threading.Thread(target=self._watch_over, name="slurm-engine", daemon=True)
        self._thread.start()

    # ---- what there is

    def observe(self) -> Observation:
        """Everything."""
        snapshot = self._ask()
        with self._lock:
            runs = list(self._runs.values())
            for run in runs:
                run.refresh()
            nodes = snapshot.of_partition(self.partition)
            held = snapshot.foreign_gpus(self.owner)
            return Observation(
                tuple(node_report(node, held.get(node.name, {})) for node in nodes),
                tuple(run.report() for run in runs),
            )

    def _ask(self) -> Snapshot:
        """Asks Slurm, and lets the runs know."""
        with self._asking:
            began = time.monotonic()
            snapshot = Snapshot(tuple(self._commands.jobs()), tuple(self._commands.nodes()))
            with self._lock:
                self._snapshot, self._asked = snapshot, began
                self._nodes = {node.name: node for node in snapshot.of_partition(self.partition)}
                for run in self._runs.values():
                    if run.slurm_job and run.submitted < began:
                        job = snapshot.job(run.slurm_job, self.owner, run.run)
                        run.slurm_says(job)
                        if job is not None and job.held and run.alive:
                            self._releaser.add(run.run, run.slurm_job, complete=True)
                    elif not run.slurm_job and not run.submitted and run.alive and run.known_since < began:
                        self._find_lost(run, snapshot)
                strays = self._strays.of(snapshot, self.owner, self._runs.values(), began)
            # A supervisor that was killed leaves its job to Slurm, which may not notice for minutes.
            with contextlib.suppress(EngineUnavailableError, EngineRefusalError):
                self._commands.cancel(strays)
            return snapshot

    def _recent(self) -> Snapshot:
        """What Slurm said a moment ago: a gang's instances are started one after the other."""
        if self._snapshot is None or time.monotonic() > self._asked + _RECENT:
            return self._ask()
        return self._snapshot

    def _find_lost(self, run: SlurmRun, snapshot: Snapshot) -> None:
        """The answer to its submission was lost, or an earlier engine died before it came: is there a job?"""
        job = snapshot.job_of(submission.comment(self.owner, run.run))
        if job is not None:
            run.slurm_job = job.id
            run.save()
            run.slurm_says(job)
        elif run.overdue_at is not None:
            run.call_off(End(EndCause.SIGNALLED, 9, "called off before Slurm had it"))

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        """The first node's address, and a port that isn't given out again soon."""
        with self._lock:
            known = self._nodes.get(nodes[0])
        if known is None:
            self._ask()
            known = self._nodes.get(nodes[0])
        return self._meeting(known.address if known is not None else nodes[0])

    # ---- starting

    def start(self, order: StartOrder) -> None:
        """Submits one instance as a job pinned to its node; the gang is released together."""
        contract_files.checked_job_id(order.run.job_id)
        with self._lock:
            known = self._runs.get(order.run)
            if known is not None and (known.slurm_job or not known.alive):
                return
            self._check_fence(order.run)
        node = self._room(order)
        if known is not None and self._was_submitted(known):
            return
        self._submit(order, node)
        self._wake.set()

    def _room(self, order: StartOrder) -> SlurmNode:
        """The node, if it is there and has the GPUs. What a run leaves to its successor counts as free."""
        snapshot = self._recent()
        node = self._nodes.get(order.node)
        if node is None:
            raise EngineRefusalError(f"partition {self.partition!r} has no node {order.node!r}")
        foreign = sum(snapshot.foreign_gpus(self.owner).get(node.name, {}).values())
        report = node_report(node, {})
        if report.health is not NodeHealth.READY:
            raise EngineRefusalError(f"node {node.name!r} is {report.health}: {report.detail}")
        with self._lock:
            ours = sum(run.gpu_count for run in self._runs.on(node.name) if run.alive and run.run != order.run)
        free = node.gpus - foreign - ours
        if free < order.gpus:
            raise EngineRefusalError(f"node {node.name!r} has {max(free, 0)} free GPUs, {order.run} needs {order.gpus}")
        return node

    def _was_submitted(self, run: SlurmRun) -> bool:
        """Whether an earlier try, whose answer was lost, did submit it."""
        for job in self._commands.jobs():
            if job.comment == submission.comment(self.owner, run.run):
                with self._lock:
                    run.slurm_job = job.id
                    run.save()
                return True
        return False

    def _submit(self, order: StartOrder, node: SlurmNode) -> None:
        with self._lock:
            run = self._runs.get(order.run) or self._prepare(order, order.run.generation)
            self._runs[order.run] = run
            lingering = [old for old in self._runs.values() if old.lingers]
        order_file = run.path("order")
        write_json(order_file, instance_order(order, run, self._files.job(order.run.job_id)))
        order_file.chmod(0o600)
        same = (order.run.job_id, order.run.number)
        after = [old.slurm_job for old in lingering if (old.run.job_id, old.run.number) == same]
        options = submission.options(order, self.owner, node, self.partition, run.path("log", "txt"), after)
        run.submitted = time.monotonic()
        try:
            job = self._commands.submit(options, submission.batch_script(self.program, order_file))
        except EngineRefusalError:
            self._discard(run)
            raise
        except EngineUnavailableError:
            # Nobody knows, but whoever looks from now on will.
            run.known_since, run.submitted = time.monotonic(), 0.0
            raise
        with self._lock:
            run.slurm_job, run.submitted = job, time.monotonic()
            run.save()
            mates = [mate for mate in self._runs if mate[0] == run.run.job_id and mate[2] == run.run.generation]
        if not after:
            self._releaser.add(run.run, job, complete=len(mates) == len(order.nodes))
        # Their end is what starts the successor.
        there = [old.slurm_job for old in lingering if old.node == order.node]
        with contextlib.suppress(EngineUnavailableError):
            self._commands.cancel(dict.fromkeys(after + there))

    def _discard(self, run: SlurmRun) -> None:
        with self._lock:
            self._runs.discard(run.run)
            run.path("run").unlink(missing_ok=True)
            run.path("order").unlink(missing_ok=True)

    def hand_over(self, old: SlurmRun, new: SlurmRun) -> None:
        """The Slurm job goes on."""
        new.slurm_job, new.slurm, new.submitted = old.slurm_job, old.slurm, time.monotonic()

    def renamed(self, run: SlurmRun) -> None:
        """For people, and for an engine that has lost its files: the job says what it is now."""
        with contextlib.suppress(EngineRefusalError, EngineUnavailableError):
            self._commands.update_job(
                run.slurm_job,
                JobName=submission.job_name(run.run),
                Comment=submission.comment(self.owner, run.run),
            )

    # ---- asking and ending

    def stop(self, run: RunId, grace: float) -> None:
        """Asks it to end; its supervisor on the node kills it after `grace` seconds."""
        found = self.ask_to_end(run, grace)
        if found is not None and found.running:
            self._commands.signal_script(found.slurm_job, "TERM")
        elif found is not None and found.slurm_job:
            self._commands.cancel([found.slurm_job])
        self._wake.set()

    def kill(self, run: RunId) -> None:
        """Ends it now."""
        found = self.tell_to_die(run)
        if found is not None and found.slurm_job:
            self._commands.cancel([found.slurm_job])
        self._wake.set()

    def close(self) -> None:
        """Stops watching; the jobs run on."""
        self._closing.set()
        self._wake.set()
        self._releaser.close()
        self._thread.join(60.0)

    # ---- watching

    def _watch_over(self) -> None:
        next_ask = 0.0
        while not self._closing.is_set():
            if time.monotonic() >= next_ask:
                with contextlib.suppress(EngineUnavailableError):
                    self._tell_nodes(self._ask())
                with self._lock:
                    busy = any(run.alive and (not run.running or run.overdue_at) for run in self._runs.values())
                next_ask = time.monotonic() + (_ASK_SOON if busy else _ASK_LATER)
            overdue, pause = self._look_around()
            with contextlib.suppress(EngineUnavailableError, EngineRefusalError):
                self._commands.cancel(overdue)
            self._wake.wait(max(0.0, min(pause, next_ask - time.monotonic())))
            self._wake.clear()

    def _look_around(self) -> tuple[list[int], float]:
        """Reads the files that are due: jobs to be cancelled, and the time until the next look."""
        runs, soonest = self._look_at_files()
        overdue = [run.slurm_job for run in runs if run.slurm_job]
        now = time.monotonic()
        with self._lock:
            for run in list(self._runs.values()):
                if run.alive and run.given_up is None and run.slurm_job and not run.running:
                    run.given_up = self._reason_to_give_up(run, now)
                    overdue += [run.slurm_job] if run.given_up is not None else []
        return overdue, soonest

    def _reason_to_give_up(self, run: SlurmRun, now: float) -> End | None:
        """Why a job that isn't started never will be: Slurm would let it wait for ever."""
        node = self._nodes.get(run.node)
        if self._nodes and (node is None or node.lost):
            return End(EndCause.NODE_LOST, detail=f"node {run.node!r} was lost before the start")
        if now > max(run.submitted, run.known_since) + _START_PATIENCE and (
            run.slurm is None or run.slurm.state == "PENDING"
        ):
            why = run.slurm.reason if run.slurm is not None else ""
            return End(EndCause.EVICTED, detail=f"Slurm did not start it within {_START_PATIENCE:g} s: {why}")
        return None

    def _tell_nodes(self, snapshot: Snapshot) -> None:
        held = snapshot.foreign_gpus(self.owner)
        for node in snapshot.of_partition(self.partition):
            report = node_report(node, held.get(node.name, {}))
            if self._told_nodes.get(node.name) != report:
                self._told_nodes[node.name] = report
                self._sink(report)
