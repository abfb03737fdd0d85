"""Runs the nodes of a test cluster; see k8s-up.sh."""

import argparse
import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from .admission import Capacity
from .api import Api, ApiError
from .node import Life, Node
from .serving import serve
from .status import ContainerRecord

#: How often the files below `control` are looked at.
LOOK = 0.05


class Kubelets:
    """All nodes of this process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.base: Path = options.base
        self.heartbeat: float = options.heartbeat
        pki = self.base / "pki"
        token = (pki / "tokens.csv").read_text().partition(",")[0]
        self.api = Api(options.server, token, str(pki / "server.crt"))
        capacity = Capacity(options.gpus, options.product)
        self.nodes = {
            f"n{number}": Node(self.api, f"n{number}", number, self.base, capacity, options.port)
            for number in range(1, options.nodes + 1)
        }
        self.server = serve(options.port, self, str(pki / "server.crt"), str(pki / "server.key"))
        self._listed: set[str] = set()

    async def run(self) -> None:
        """Until TERM."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, over.set)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        await asyncio.gather(*(node.register() for node in self.nodes.values()))
        self._follow(loop, "/api/v1/pods", {"fieldSelector": "spec.nodeName!="}, self.pod_changed)
        self._follow(loop, "/api/v1/nodes", {"labelSelector": "compass.test/kubelet=fake"}, self.node_changed)
        await self._untainted()
        (self.base / "log" / "nodes-ready").touch()
        tasks = [loop.create_task(self._beat()), loop.create_task(self._obey())]
        await over.wait()
        for task in tasks:
            task.cancel()
        for node in self.nodes.values():
            for pod in node.pods.values():
                pod.vanish()

    def _follow(
        self, loop: asyncio.AbstractEventLoop, path: str, query: dict[str, str], told: Callable[[str, dict], None]
    ) -> None:
        def changed(kind: str, document: dict) -> None:
            loop.call_soon_threadsafe(told, kind, document)

        threading.Thread(target=self.api.follow, args=(path, query, changed), daemon=True).start()

    async def _untainted(self) -> None:
        """Nodes are new until the node controller has seen that they are ready."""
        while True:
            listed = await self.api.call("GET", "/api/v1/nodes")
            ours = [item for item in listed["items"] if item["metadata"]["name"] in self.nodes]
            if not any(item["spec"].get("taints") for item in ours):
                return
            await asyncio.sleep(0.1)

    # ---- what comes from the API server

    def pod_changed(self, kind: str, manifest: dict) -> None:
        """A pod that is bound changed, or a list of them has come to its end."""
        if kind == "LISTED":
            for node in self.nodes.values():
                node.kept(self._listed)
            self._listed = set()
            return
        node = self.nodes.get(manifest["spec"]["nodeName"])
        if node is None:
            return
        if kind == "DELETED":
            node.removed(manifest)
        else:
            self._listed.add(manifest["metadata"]["uid"])
            node.seen(manifest)

    def node_changed(self, kind: str, manifest: dict) -> None:
        """Somebody thinks a node of ours dead: a kubelet that lives contradicts."""
        node = self.nodes.get(manifest.get("metadata", {}).get("name", ""))
        if kind != "MODIFIED" or node is None or node.life is not Life.UP:
            return
        ready = [each for each in manifest["status"].get("conditions") or () if each["type"] == "Ready"]
        if ready and ready[0]["status"] != "True":
            self._task = asyncio.get_running_loop().create_task(node.say_ready())

    # ---- what goes on by itself

    async def _beat(self) -> None:
        """Renews all leases in each interval, evenly spread."""
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            for number, node in enumerate(self.nodes.values(), start=1):
                try:
                    await node.beat()
                except (ApiError, OSError) as error:
                    print(f"{node.name}: {error}", flush=True)
                due = begun + self.heartbeat * number / len(self.nodes)
                await asyncio.sleep(max(0.0, due - loop.time()))

    async def _obey(self) -> None:
        """Lets nodes die and come back as the files below `control` say."""
        while True:
            told = {path.name: path.read_text().strip() for path in (self.base / "control").iterdir()}
            for name, node in self.nodes.items():
                wanted = told.get(name, Life.UP)
                if wanted != node.life and wanted in tuple(Life):
                    await node.become(Life(wanted))
            await asyncio.sleep(LOOK)

    # ---- logs

    def log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None:
        """The file of a container's output."""
        record = self._record(namespace, pod, container)
        if record is None or record.restarts < previous:
            return None
        found = record.folder / f"{container}.{record.restarts - previous}.log"
        return found if found.exists() else None

    def writing(self, namespace: str, pod: str, container: str) -> bool:
        """Whether its log may grow."""
        record = self._record(namespace, pod, container)
        return record is not None and record.running

    def _record(self, namespace: str, name: str, container: str) -> ContainerRecord | None:
        for node in self.nodes.values():
            for pod in list(node.pods.values()):
                meta = pod.manifest["metadata"]
                if (meta["namespace"], meta["name"]) == (namespace, name):
                    return pod.record(container)
        return None


def main() -> None:
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--heartbeat", type=float, required=True)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--product", default="NVIDIA-A100-SXM4-80GB")
    asyncio.run(Kubelets(parser.parse_args()).run())


main()
