"""The Ray engine: instances under detached actors, pinned to their nodes."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
from compass_abs.engines.ray.nodes import Foreign, RayNode, node_report, read_nodes
from compass_abs.engines.supervised_engine import SupervisedEngine
from compass_abs.engines.supervised_run import FILE_PATIENCE, SupervisedRun, instance_order

Answer = TypeVar("Answer")

_NAMESPACE = "compass"
#: How often the nodes are looked at.
_ASK_EVERY = 1.0
#: An actor that isn't up within this time won't be: somebody else has its GPUs.
_START_PATIENCE = 60.0
#: How often an instance's supervisor looks for a request to end: nothing else tells it.
_LOOK_EVERY = 0.05


@dataclass(slots=True)
class RayRun(SupervisedRun):
    """A run; its actor is found by name."""

    #: Name of its actor; empty while nobody knows whether there is one.
    actor_name: str = ""
    #: The actor; None until it is looked for.
    actor: Any = None
    #: Answered when the actor is up, or can't be.
    up: Any = None

    def more(self) -> dict[str, Any]:
        """Its actor."""
        return {"actor": self.actor_name}

    def restore(self, value: dict[str, Any]) -> None:
        """Its actor."""
        self.actor_name = str(value["actor"])

    @property
    def handle(self) -> str:
        """Its actor's name."""
        return f"actor {self.actor_name}" if self.actor_name else ""


def actor_name(owner: str, run: RunId) -> str:
    """What an actor is called: whose, and which run it was started as."""
    return f"{owner}.{run}"


class RayEngine(SupervisedEngine[RayRun]):
    """Nodes with GPUs of one Ray cluster. `root` is a folder that this machine and all nodes see under one path."""

    name = "ray"
    capabilities = frozenset({Capability.REJOIN})

    def __init__(self, root: Path, address: str = "auto") -> None:
        try:
            import ray
        except ImportError:
            raise EngineRefusalError("Ray is not installed: pip install 'compass-abs[sweep]'") from None
        super().__init__(root, RayRun)
        self._ray: Any = ray
        self._connected = not ray.is_initialized()
        if self._connected:
            try:
                ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, configure_logging=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise EngineUnavailableError(f"no Ray cluster answers at {address!r}: {error}") from None
        self._nodes: dict[str, RayNode] = {}
        self._capacity: dict[str, int] = {}
        self._foreign = Foreign()
        self._told_nodes: dict[str, NodeReport] = {}
        self._asking = threading.Lock()
        self._ask()
        self._thread = threading.Thread(target=self._watch_over, name="ray-engine", daemon=True)
        self._thread.start()

    # ---- what there is

    def observe(self) -> Observation:
        """Everything."""
        nodes = self._ask()
        with self._lock:
            for run in self._runs.values():
                run.refresh()
            return Observation(tuple(nodes), tuple(run.report() for run in self._runs.values()))

    def _ask(self) -> list[NodeReport]:
        """Asks Ray for nodes and actors, and lets the runs know."""
        with self._asking:
            nodes = read_nodes(_answered(self._ray.nodes))
            available = _answered(self._available)
            with self._lock:
                self._nodes = {node.name: node for node in nodes}
                for node in nodes:
                    if node.gpus:
                        self._capacity[node.name] = node.gpus
                self._look_at_actors()
                return [self._report(node, available) for node in nodes if node.name in self._capacity]

    def _available(self) -> dict[str, dict[str, float]]:
        from ray._private.state import available_resources_per_node

        return dict(available_resources_per_node())

    def _report(self, node: RayNode, available: dict[str, dict[str, float]]) -> NodeReport:
        capacity = self._capacity[node.name]
        used = capacity - int(available.get(node.id, {}).get("GPU", 0)) if node.id in available else 0
        ours = sum(run.gpu_count for run in self._runs.on(node.name) if run.alive and run.running)
        return node_report(node, capacity, self._foreign.look(node.name, used, ours, time.monotonic()))

    def _look_at_actors(self) -> None:
        for run in self._runs.values():
            if not run.alive:
                continue
            node = self._nodes.get(run.node)
            if node is None or not node.alive:
                run.refresh()
                run.finish(End(EndCause.NODE_LOST, detail=f"Ray says that node {run.node!r} is dead"))
            elif run.actor_name and self._is_gone(run):
                run.refresh()
                now = time.monotonic()
                run.gone_since = run.gone_since or now
                if now - run.gone_since > FILE_PATIENCE or not run.running:
                    run.finish(self._verdict(run))
            elif not run.actor_name and run.overdue_at is not None:
                run.actor_name = actor_name(self.owner, run.run)
                if self._is_gone(run):
                    run.call_off(End(EndCause.SIGNALLED, 9, "called off before Ray had it"))
            elif not run.running and time.monotonic() > run.known_since + _START_PATIENCE:
                run.finish(End(EndCause.EVICTED, detail=f"Ray did not start it within {_START_PATIENCE:g} s"))
                self._kill_actor(run)

    def _is_gone(self, run: RayRun) -> bool:
        """True when its actor has died. One that waits for its node is not gone."""
        if run.actor is None:
            try:
                run.actor = self._ray.get_actor(run.actor_name, namespace=_NAMESPACE)
            except ValueError:
                return True
        if run.up is None:
            run.up = run.actor.node.remote()
        done, _ = self._ray.wait([run.up], timeout=0)
        if not done:
            return False
        answer, run.up = run.up, None
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            return True
        return False

    def _verdict(self, run: RayRun) -> End:
        if contract_files.finished(run.control, run.run.number):
            return End(EndCause.EXITED, 0, "by its own account")
        if run.path("stop").exists():
            return End(EndCause.SIGNALLED, 9, "its actor was killed")
        return End(EndCause.UNKNOWN, detail="its actor died")

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        """The first node's address, and a port that isn't given out again soon."""
        with self._lock:
            known = self._nodes.get(nodes[0])
        return self._meeting(known.address if known is not None else nodes[0])

    # ---- starting

    def start(self, order: StartOrder) -> None:
        """Makes the actor; it starts the instance as soon as Ray has put it on its node."""
        contract_files.checked_job_id(order.run.job_id)
        with self._lock:
            known = self._runs.get(order.run)
            if known is not None and (known.actor_name or not known.alive):
                return
            self._check_fence(order.run)
        reports = {report.name: report for report in self._ask()}
        with self._lock:
            node = self._check_room(order, reports.get(order.node))
            run = known or self._prepare(order, order.run.generation)
            self._runs[order.run] = run
            instructions = instance_order(order, run, self._files.job(order.run.job_id))
            write_json(run.path("order"), {**instructions, "look_every": _LOOK_EVERY})
            run.path("order").chmod(0o600)
            self._make_actor(run, node)
            run.save()
        self._wake.set()

    def _check_room(self, order: StartOrder, report: NodeReport | None) -> RayNode:
        if report is None:
            raise EngineRefusalError(f"there is no node {order.node!r} with GPUs")
        if report.health is NodeHealth.LOST:
            raise EngineRefusalError(f"node {order.node!r} is lost: {report.detail}")
        ours = sum(
            run.gpu_count
            for run in self._runs.values()
            if run.node == order.node and run.alive and run.run != order.run
        )
        foreign = self._foreign.held(order.node) if report.health is NodeHealth.CORDONED else 0
        free = report.gpus - ours - foreign
        if free < order.gpus:
            raise EngineRefusalError(
                f"node {order.node!r} has {max(free, 0)} free GPUs, {order.run} needs {order.gpus}"
            )
        return self._nodes[order.node]

    def _make_actor(self, run: RayRun, node: RayNode) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from compass_abs.engines.ray.actor import Holder

        name = actor_name(self.owner, run.run)
        holder = self._ray.remote(Holder).options(
            name=name,
            namespace=_NAMESPACE,
            lifetime="detached",
            num_gpus=run.gpu_count,
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        files = (str(self.program), str(run.path("order")), str(run.path("log", "txt")))
        # A name that is taken: an earlier engine has made it and died before it could tell.
        with contextlib.suppress(ValueError):
            run.actor = _answered(lambda: holder.remote(*files))
        run.actor_name = name

    # ---- ending

    def stop(self, run: RunId, grace: float) -> None:
        """Asks it to end; its supervisor looks for that by itself."""
        self.ask_to_end(run, grace)
        self._wake.set()

    def kill(self, run: RunId) -> None:
        """Ends it now; what never came up is called off."""
        found = self.tell_to_die(run)
        if found is not None and not found.running:
            self._kill_actor(found)
        self._wake.set()

    def _kill_actor(self, run: RayRun) -> None:
        with contextlib.suppress(Exception):
            actor = run.actor or self._ray.get_actor(run.actor_name, namespace=_NAMESPACE)
            self._ray.kill(actor)

    def hand_over(self, old: RayRun, new: RayRun) -> None:
        """The actor goes on."""
        new.actor_name, new.actor, new.up = old.actor_name, old.actor, old.up

    def close(self) -> None:
        """Stops watching; the actors live on."""
        self._closing.set()
        self._wake.set()
        self._thread.join(30.0)
        if self._connected:
            self._ray.shutdown()

    def _watch_over(self) -> None:
        next_ask = 0.0
        while not self._closing.is_set():
            if time.monotonic() >= next_ask:
                with contextlib.suppress(EngineUnavailableError):
                    for report in self._ask():
                        if self._told_nodes.get(report.name) != report:
                            self._told_nodes[report.name] = report
                            self._sink(report)
                next_ask = time.monotonic() + _ASK_EVERY
            overdue, pause = self._look_at_files()
            for run in overdue:
                self._kill_actor(run)
            self._wake.wait(max(0.0, min(pause, next_ask - time.monotonic())))
            self._wake.clear()


def _answered(question: Callable[[], Answer]) -> Answer:
    """What Ray answers."""
    with _ray_trouble():
        return question()


@contextmanager
def _ray_trouble() -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise EngineUnavailableError(f"Ray does not answer: {type(error).__name__}: {error}") from error
