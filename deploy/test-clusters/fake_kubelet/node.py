"""One pretended node: its GPUs given out, its pods begun and ended, its life and death."""

import asyncio
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path

from .admission import Capacity, refusal
from .api import Api, ApiError
from .container import MissingError, Sources, now
from .pod import Pod
from .status import condition
from .volumes import decoded


class Life(StrEnum):
    """What a node is told to be, by a file `control/NODE` with one of these words; no file is UP."""

    UP = "up"
    #: Its processes are gone and it says nothing more, as after a power failure.
    DEAD = "dead"
    #: Its processes run on, but it hears and says nothing, as behind a broken network.
    CUT = "cut"


class Node:
    """See the module's docstring."""

    def __init__(self, api: Api, name: str, number: int, base: Path, capacity: Capacity, port: int) -> None:
        self.api = api
        self.name = name
        self.capacity = capacity
        self.folder = base
        # every address of 127/8 answers on this machine: each node has one of its own
        self.address = f"127.77.{number // 250}.{number % 250 + 1}"
        self.port = port
        self.given = {"KUBERNETES_SERVICE_HOST": api.host, "KUBERNETES_SERVICE_PORT": str(api.port)}
        self.life = Life.UP
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.free = list(range(capacity.gpus))
        self.manifests: dict[str, dict] = {}
        self.pods: dict[str, Pod] = {}
        self._held: dict[str, list[int]] = {}

    # ---- its object and its lease

    async def register(self) -> None:
        """Creates the node and its lease, or takes over the ones that are there."""
        hardware = {**self.capacity.resources(), "ephemeral-storage": "100Gi"}
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.count": str(self.capacity.gpus),
            "nvidia.com/gpu.product": self.capacity.product,
            "compass.test/kubelet": "fake",
        }
        status = {
            "capacity": hardware,
            "allocatable": hardware,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "nodeInfo": {"kubeletVersion": "v1.20.2-fake", "operatingSystem": "linux", "architecture": "amd64"}
            | dict.fromkeys(
                ("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "machineID", "osImage"), ""
            )
            | {"systemUUID": ""},
            "conditions": self._conditions(),
        }
        await self._create("/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}, "status": status})
        lease = {"metadata": {"name": self.name, "namespace": "kube-node-lease"}, "spec": self._lease()}
        await self._create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
        await self.say_ready()

    async def _create(self, path: str, document: dict) -> None:
        try:
            await self.api.call("POST", path, document)
        except ApiError as error:
            if error.status != 409:
                raise

    def _conditions(self) -> list[dict]:
        ready = {**condition("Ready", True, ""), "reason": "KubeletReady", "lastHeartbeatTime": now()}
        return [ready, *(condition(f"{what}Pressure", False, "Sufficient") for what in ("Memory", "Disk", "PID"))]

    def _lease(self) -> dict:
        return {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now()[:-1] + ".000000Z"}

    async def say_ready(self) -> None:
        """Reports the node as ready, whatever others wrote there."""
        await self.api.call(
            "PATCH", f"/api/v1/nodes/{self.name}/status", {"status": {"conditions": self._conditions()}}
        )

    async def beat(self) -> None:
        """Renews its lease, if it lives."""
        if self.life is Life.UP:
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}"
            await self.api.call("PATCH", path, {"spec": self._lease()})

    # ---- its life

    async def become(self, life: Life) -> None:
        """Dies, is cut off, or comes back and catches up with what happened meanwhile."""
        self.life = life
        if life is Life.DEAD:
            for pod in self.pods.values():
                pod.vanish()
            self.pods.clear()
            self._held.clear()
            self.free = list(range(self.capacity.gpus))
        if life is not Life.UP:
            self.reachable.clear()
            return
        self.reachable.set()
        await self.beat()
        await self.say_ready()
        for uid in [uid for uid in self.pods if uid not in self.manifests]:
            self.removed(self.pods[uid].manifest)
        for manifest in list(self.manifests.values()):
            self.seen(manifest)

    # ---- its pods

    def seen(self, manifest: dict) -> None:
        """A pod of this node is there, or changed."""
        uid = manifest["metadata"]["uid"]
        self.manifests[uid] = manifest
        if self.life is not Life.UP:
            return
        deleted = "deletionTimestamp" in manifest["metadata"]
        if pod := self.pods.get(uid):
            if deleted:
                pod.end(manifest["metadata"].get("deletionGracePeriodSeconds") or 0)
        elif deleted:
            self._task(Pod(self, manifest, {}).forget())
        elif manifest["status"].get("phase") in ("Pending", "Running"):
            self._begin(manifest)

    def removed(self, manifest: dict) -> None:
        """A pod's object is gone: what is left of it here goes, too."""
        uid = manifest["metadata"]["uid"]
        self.manifests.pop(uid, None)
        if self.life is Life.UP and (pod := self.pods.pop(uid, None)):
            pod.vanish()
            self.release(uid)

    def kept(self, uids: set[str]) -> None:
        """A list came: whatever isn't in it was removed unseen."""
        for uid in [uid for uid in self.manifests if uid not in uids]:
            self.removed(self.manifests[uid])

    def _begin(self, manifest: dict) -> None:
        uid = manifest["metadata"]["uid"]
        others = [pod.manifest for pod in self.pods.values() if not pod.over]
        failure = refusal(manifest, others, self.capacity, len(self.free))
        if failure is None and manifest["status"].get("startTime") and self._lost_for_good(manifest):
            failure = ("ContainersLost", "the node was restarted, and its containers with it")
        devices = {} if failure else self._allocate(uid, manifest)
        pod = self.pods[uid] = Pod(self, manifest, devices)
        if failure is None:
            pod.begin()
        else:
            pod.refuse(*failure)

    def _lost_for_good(self, manifest: dict) -> bool:
        return manifest["spec"].get("restartPolicy", "Always") == "Never"

    def _allocate(self, uid: str, manifest: dict) -> dict[str, list[int]]:
        given: dict[str, list[int]] = {}
        for container in manifest["spec"]["containers"]:
            count = self.capacity.gpus_of(container)
            if count:
                given[container["name"]] = [self.free.pop(0) for _ in range(count)]
        self._held[uid] = [number for numbers in given.values() for number in numbers]
        return given

    def release(self, uid: str) -> None:
        """A pod's containers have ended: its GPUs are free."""
        self.free = sorted(self.free + self._held.pop(uid, []))

    def _task(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._last = task  # a task that nobody holds may be collected

    # ---- what its pods refer to

    def sources(self, namespace: str) -> Sources:
        """Reads ConfigMaps, Secrets and claims of a namespace; called in a worker thread."""

        def read(kind: str, name: str) -> dict[str, str]:
            try:
                found = self.api.call_now("GET", f"/api/v1/namespaces/{namespace}/{kind}/{name}")
                if kind == "persistentvolumeclaims":
                    volume = self.api.call_now("GET", f"/api/v1/persistentvolumes/{found['spec']['volumeName']}")
                    return {"path": (volume["spec"].get("hostPath") or volume["spec"]["local"])["path"]}
            except (ApiError, KeyError) as error:
                raise MissingError(f"{kind} {namespace}/{name}: {error}") from error
            return decoded(found.get("data") or {}) if kind == "secrets" else found.get("data") or {}

        return read
