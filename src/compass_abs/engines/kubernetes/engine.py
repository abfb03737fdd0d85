"""The Kubernetes engine: instances as pods under our own `schedulerName`, bound to the nodes that were decided."""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from compass_abs.audit.kubernetes_rules import Rules
from compass_abs.engines import contract_files
from compass_abs.engines.kubernetes import gangs, names, pods
from compass_abs.engines.kubernetes.budgets import check_budgets
from compass_abs.engines.kubernetes.client import ApiError, Client, DisruptionBudgetError, Object, pod_path
from compass_abs.engines.kubernetes.collection import Collection
from compass_abs.engines.kubernetes.fleet import Fleet
from compass_abs.engines.kubernetes.gangs import GangStore
from compass_abs.engines.kubernetes.ledger import Ledger
from compass_abs.engines.kubernetes.logs import keep_log, read_log
from compass_abs.engines.kubernetes.manifest import PodSettings, marks, own_pod
from compass_abs.engines.kubernetes.nodes import GpuNode
from compass_abs.engines.kubernetes.runs import PodRun, withdrawal
from compass_abs.engines.kubernetes.users_pods import UsersPods
from compass_abs.engines.local.run_files import write_json
from compass_abs.engines.protocol import (
    Capability,
    CheckpointRequest,
    End,
    EndCause,
    EngineRefusalError,
    EngineUnavailableError,
    Observation,
    Rendezvous,
    RunId,
    StartOrder,
)
from compass_abs.engines.supervised_engine import SupervisedEngine
from compass_abs.engines.supervised_run import instance_order

#: How often a supervisor looks for a request to end: nothing on Kubernetes passes a signal on but a deletion.
_LOOK_EVERY = 0.1
#: Seconds between TERM and KILL of a pod that is to be gone at once. A grace of 0 removes the object, not the process.
_AT_ONCE = 1.0
#: How often pods are looked at again for what no event tells: an end that nobody has accounted for, patience that ends.
_LOOK_AGAIN = 1.0
#: What is heard within this time is looked at together: thousands of pods may start in a minute.
_TOGETHER = 0.01
#: For how many times as long as it took to look nothing is looked at.
_REST = 9.0
#: So many pods of runs that were forgotten are remembered for nothing.
_MOST_OVER = 1000
_NEVER = End(EndCause.SIGNALLED, 9, "it was ended before it had a pod")


class KubernetesEngine(SupervisedEngine[PodRun]):
    """A cluster's nodes with GPUs. `root` is a folder that this machine and all nodes see under the same path."""

    name = "kubernetes"
    capabilities = frozenset({Capability.REJOIN, Capability.CONSENT})

    def __init__(self, root: Path, client: Client, settings: PodSettings | None = None) -> None:
        """The client becomes the engine's: it is closed with it."""
        super().__init__(root, PodRun)
        self.client = client
        self.settings = settings or PodSettings()
        self.gangs = GangStore(self._files.root / "gangs")
        self.ledger = Ledger(self.settings.resource, self.settings.scheduler, self.owner)
        self._users = UsersPods(client, self.gangs, self.ledger, self.owner)
        #: By the uids of pods, the run that each serves as, or has served as last.
        self._serving = {run.uid: run for run in sorted(self._runs.values(), key=lambda run: run.alive) if run.uid}
        #: Pods of which something was heard; looked at by the watching thread.
        self._heard: dict[tuple[str, str], None] = {}
        self._fleet = Fleet(self.settings.resource, self.ledger, self._lock, lambda report: self._sink(report))
        self.nodes = Collection(client, "/api/v1/nodes", self._fleet.node_changed)
        self.pods = Collection(client, "/api/v1/pods", self._pod_changed)
        self._thread = threading.Thread(target=self._watch_over, name="kubernetes-engine", daemon=True)
        self._thread.start()

    # ---- what there is

    def observe(self) -> Observation:
        """Everything."""
        self._ping()
        with self._lock:
            for run in self._runs.values():
                self._look_at_pod(run)
                run.refresh()
            return Observation(tuple(self._fleet.reports()), tuple(run.report() for run in self._runs.values()))

    def _ping(self) -> None:
        """Raises `EngineUnavailableError` unless the server answers and what we have of it is fresh."""
        try:
            self.client.get("/version")
        except EngineRefusalError as error:
            raise EngineUnavailableError(str(error)) from None
        self.nodes.check()
        self.pods.check()

    def _pod_changed(self, kind: str, pod: Object) -> None:
        touched = self.ledger.take(kind, pod)
        with self._lock:
            if kind != "DELETED":
                self._adopt(pod)
            self._heard[pods.key_of(pod)] = None
            for name in touched:
                self._fleet.pods_changed(name)
        self._wake.set()

    def _adopt(self, pod: Object) -> None:
        """A run that an earlier engine started, and whose file is lost."""
        run = pods.run_of(pod, self.owner)
        if run is None or run in self._runs or self._files.file(run, "past").exists():
            return
        found = PodRun.of_pod(self._files, run, pod)
        if found is None:
            return
        self._files.control(run).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._users.link_control(found)
        found.save()
        self._runs[run] = found
        self._serving[found.uid] = found

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        """The first node's address, and a port that isn't given out again soon."""
        self.nodes.check()
        return self._meeting(self._fleet.address(nodes[0]))

    # ---- starting

    def start(self, order: StartOrder) -> None:
        """Makes the instance's pod and binds it; of users' gangs, binds the user's pod, or its successor."""
        contract_files.checked_job_id(order.run.job_id)
        self.client.guard()
        with self._lock:
            known = self._runs.get(order.run)
            if known is not None and (known.bound or not known.alive):
                return
            self._check_fence(order.run)
        self.nodes.check()
        self.pods.check()
        node = self._room(order)
        if order.workload.command[0] == gangs.COMMAND:
            self._start_users(order, node)
        else:
            self._start_own(order, node)
        self._wake.set()

    def _room(self, order: StartOrder) -> GpuNode:
        """The node, if it is there and has the GPUs."""
        node = self._fleet.usable(order.node)
        with self._lock:
            holdings = self.ledger.holdings(node.name)
            # What our runs hold although their pods are not bound yet.
            coming = sum(
                run.gpu_count
                for run in self._runs.on(node.name)
                if run.alive and run.run != order.run and (run.namespace, run.pod) not in holdings
            )
        held = sum(each.gpus for each in holdings.values() if each.run != order.run)
        free = node.gpus - held - coming
        if free < order.gpus:
            raise EngineRefusalError(f"node {node.name!r} has {max(free, 0)} free GPUs, {order.run} needs {order.gpus}")
        return node

    def _start_own(self, order: StartOrder, node: GpuNode) -> None:
        with self._lock:
            run = self._runs.get(order.run) or self._prepare(order, order.run.generation)
            self._runs[order.run] = run
            run.namespace = self.settings.namespace
        value = instance_order(order, run, self._files.job(order.run.job_id))
        # The image's own environment is what the program is to find, not this process's.
        for name in contract_files.INHERITED:
            value["environment"].pop(name, None)
        value["environment"] |= dict(order.workload.environment)
        value |= {"look_every": _LOOK_EVERY, "inherit": True}
        order_file = run.path("order")
        write_json(order_file, value)
        order_file.chmod(0o600)
        try:
            pod = own_pod(order, run, node, self.settings, self.owner, self.program, order_file)
            if not run.pod:
                self._fleet.check_room(node, pod)
            self._attach(run, self._create(pod, run))
            self._bind(run)
        except EngineRefusalError:
            self._discard(run)
            raise

    def _create(self, pod: Object, run: PodRun) -> Object:
        """Makes a pod, or finds the one that an earlier try made."""
        namespace, name = pods.key_of(pod)
        try:
            made = self.client.create(pod_path(namespace), pod)
        except ApiError as error:
            if not error.conflict:
                raise
            made = self.client.get(pod_path(namespace, name))
            if pods.run_of(made, self.owner) != run.run:
                raise EngineRefusalError(f"there is a pod {namespace}/{name} already, and it isn't {run.run}") from None
        self.pods.put(made)
        return made

    def _attach(self, run: PodRun, pod: Object) -> None:
        with self._lock:
            run.namespace, run.pod = pods.key_of(pod)
            run.uid = str(pods.metadata(pod).get("uid"))
            self._serving[run.uid] = run
            run.bound = bool(pods.node_of(pod))
            run.save()

    def _bind(self, run: PodRun) -> None:
        if not run.bound:
            try:
                self.client.bind(run.namespace, run.pod, run.node, marks(run, self.owner))
            except ApiError as error:
                if not error.conflict or self._node_of_pod(run) != run.node:
                    raise
            with self._lock:
                run.bound = True
                run.save()

    def _node_of_pod(self, run: PodRun) -> str:
        return pods.node_of(self.client.get(pod_path(run.namespace, run.pod)))

    def _discard(self, run: PodRun) -> None:
        """Nothing was started: what was made for it goes."""
        if run.pod and not run.gang:
            with contextlib.suppress(ApiError):
                self.client.delete(pod_path(run.namespace, run.pod), grace=0, uid=run.uid)
        with self._lock:
            self._runs.discard(run.run)
            run.path("run").unlink(missing_ok=True)
            run.path("order").unlink(missing_ok=True)

    def _start_users(self, order: StartOrder, node: GpuNode) -> None:
        gang = self._users.gang_of(order)
        template = gang.members[order.run.number]
        rules = Rules(template["spec"], f"{gang.namespace}/{gang.name}")
        if not rules.allow(node.place):
            raise EngineRefusalError(f"node {node.name!r} is not one that {gang.name} may run on: {rules}")
        self._fleet.check_room(node, template)
        with self._lock:
            run = self._runs.get(order.run)
            if run is None:
                run = self._prepare(order, order.run.generation)
                run.namespace, run.gang = gang.namespace, gang.key
                run.save()
            self._runs[order.run] = run
        try:
            self._find_pod(run)
        except EngineRefusalError:
            self._discard(run)
            raise

    def _find_pod(self, run: PodRun) -> None:
        """Binds a pod to serve as this run, if there is one by now."""
        pod = self._users.pod_for(run, lambda uid: self._is_taken(uid, run), self._create)
        if pod is not None:
            self._users.clear_control(run)
            self._attach(run, pod)
            self._bind(run)

    def _is_taken(self, uid: str, run: PodRun) -> bool:
        """Whether a pod serves as another run than this."""
        with self._lock:
            other = self._serving.get(uid)
            return other is not None and other is not run and other.alive and other.run in self._runs

    # ---- a process that becomes another run

    def hand_over(self, old: PodRun, new: PodRun) -> None:
        """The pod goes on."""
        new.namespace, new.pod, new.uid, new.bound, new.gang = old.namespace, old.pod, old.uid, old.bound, old.gang
        self._serving[new.uid] = new

    def renamed(self, run: PodRun) -> None:
        """For people, and for an engine that has lost its files: the pod says what it is now."""
        with contextlib.suppress(EngineRefusalError, EngineUnavailableError):
            self.client.patch(pod_path(run.namespace, run.pod), {"metadata": {"annotations": marks(run, self.owner)}})

    # ---- asking and ending

    def request_checkpoint(self, run: RunId, request: CheckpointRequest) -> None:
        """Writes the request."""
        self.client.guard()
        super().request_checkpoint(run, request)

    def consent(self, run: RunId) -> None:
        """Refuses when a PodDisruptionBudget forbids now that this run's gang is disturbed."""
        with self._lock:
            found = self._runs.get(run)
            mates = [
                (mate.namespace, mate.pod)
                for mate in self._runs.values()
                if mate.alive and mate.run.job_id == run.job_id and mate.run.generation == run.generation
            ]
        if found is not None and found.gang:
            check_budgets(self.client, [pod for key in mates if (pod := self.pods.get(*key)) is not None])

    def stop(self, run: RunId, grace: float) -> None:
        """Asks it to end: by its supervisor, or by evicting the user's pod."""
        self.client.guard()
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.alive:
                return
            found.asked = True
            found.save()
        if not self._has_pod(found):
            found.finish(_NEVER)
        elif not found.supervised:
            self._stop_users(found, grace)
        else:
            self.ask_to_end(run, grace)
            if not found.running:
                self._delete(found, grace)
        self._wake.set()

    def _has_pod(self, run: PodRun) -> bool:
        """Whether it has a pod, be it one of which we never heard that it was made."""
        if not run.pod and run.supervised:
            pod = self.client.find(pod_path(run.namespace, names.pod_name(run.run, self.owner)))
            if pod is not None and pods.run_of(pod, self.owner) == run.run:
                self._attach(run, pod)
        return bool(run.pod)

    def _stop_users(self, run: PodRun, grace: float) -> None:
        held = contract_files.held_by(run.control, run.run.number)
        if held:
            contract_files.post_stop(run.control, run.run.number, held)
        try:
            self.client.evict(run.namespace, run.pod, grace=grace, uid=run.uid)
        except DisruptionBudgetError as error:
            # Nothing was asked of the pod; the controller asks again while it has patience.
            raise EngineUnavailableError(str(error)) from None

    def kill(self, run: RunId) -> None:
        """Ends it now."""
        self.client.guard()
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.alive:
                return
            found.asked = True
            found.save()
        if self._has_pod(found):
            if found.supervised:
                self.tell_to_die(run)
            self._delete(found, _AT_ONCE)
        else:
            found.finish(_NEVER)
        self._wake.set()

    def _delete(self, run: PodRun, grace: float) -> None:
        self.client.delete(pod_path(run.namespace, run.pod), grace=max(grace, _AT_ONCE), uid=run.uid)

    def forget(self, run: RunId) -> None:
        """Drops the run and its pod; its log and the job's checkpoints stay. A user's pod stays, too."""
        self.client.guard()
        with self._lock:
            found = self._runs.get(run)
            if found is None or found.alive:
                return
            shared = any(other.uid == found.uid for other in self._runs.values() if other is not found)
        if found.supervised and found.pod and not shared:
            pod = self.pods.get(found.namespace, found.pod)
            keep_log(self.client, found.path("log", "txt"), pod, found.namespace, found.pod)
            self.client.delete(pod_path(found.namespace, found.pod), grace=0, uid=found.uid)
        super().forget(run)

    def read_log(self, run: RunId, offset: int, limit: int) -> bytes:
        """What the run's pod printed."""
        contract_files.checked_job_id(run.job_id)
        with self._lock:
            found = self._runs.get(run)
        if found is None or not found.pod or found.path("log", "txt").exists():
            return super().read_log(run, offset, limit)
        pod = self.pods.get(found.namespace, found.pod)
        return read_log(self.client, run, pod, found.namespace, found.pod, offset, limit)

    def close(self) -> None:
        """Stops watching; the pods run on."""
        self._closing.set()
        self._wake.set()
        self._thread.join(60.0)
        self.client.end_watches()
        self.nodes.close()
        self.pods.close()
        self.client.close()

    # ---- watching

    def withdrawn(self, job_id: str) -> bool:
        """True when somebody else has ever deleted a pod of a job."""
        return withdrawal(self._files, job_id).exists()

    def ever_ran(self, job_id: str) -> bool:
        """True when any run of a job was ever started."""
        return self._files.fence(job_id) > 0

    def pools(self) -> dict[str, list[GpuNode]]:
        """Nodes by pool."""
        return self._fleet.pools()

    def node_changes(self) -> int:
        """Grows with every change of a node: as long as it is the same, so are the pools."""
        return self._fleet.changes

    def _look_at_pod(self, run: PodRun) -> None:
        if run.alive and run.pod and self.pods.listed:
            run.pod_says(self.pods.get(run.namespace, run.pod))

    def _watch_over(self) -> None:
        next_look = 0.0
        while not self._closing.is_set():
            now = time.monotonic()
            with self._lock:
                heard, self._heard = self._heard, {}
                everything = now >= next_look
                for run in list(self._runs.values()):
                    if (run.namespace, run.pod) in heard:
                        run.next_look = 0.0
                        self._look_at_pod(run)
                    elif everything:
                        self._look_at_pod(run)
                waiting = [run for run in self._runs.values() if run.gang and not run.pod and run.alive]
                if len(self._serving) > 2 * len(self._runs) + _MOST_OVER:
                    self._serving = {uid: run for uid, run in self._serving.items() if run.run in self._runs}
            next_look = now + _LOOK_AGAIN if everything else next_look
            self._look_for_replacements(waiting)
            overdue, pause = self._look_at_files()
            for run in [run for run in overdue if run.pod]:
                with contextlib.suppress(EngineUnavailableError, EngineRefusalError):
                    self._delete(run, _AT_ONCE)
            # A look at many runs takes its time: it is to be a small part of all.
            self._closing.wait(max(_TOGETHER, min(_LOOK_AGAIN, _REST * (time.monotonic() - now))))
            self._wake.wait(max(0.0, min(pause, next_look - time.monotonic())))
            self._wake.clear()

    def _look_for_replacements(self, waiting: Sequence[PodRun]) -> None:
        for run in waiting:
            try:
                self._find_pod(run)
            except EngineUnavailableError:
                continue
            except EngineRefusalError as error:
                run.finish(self._users.no_replacement(str(error)))
            else:
                if not run.pod and self._users.out_of_patience(run):
                    run.finish(self._users.no_replacement("its owner has made no pod"))
