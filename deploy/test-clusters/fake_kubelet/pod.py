"""One pod's life on a node: its containers one after another or together, their restarts, its end, all reported."""

import asyncio
import signal
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Protocol

from .api import Api, ApiError
from .container import MissingError, Process, Sources, environment, expand, now
from .status import ContainerRecord, pod_status
from .volumes import mounted

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 300.0  # the first one of a real kubelet is 10 s; nobody waits for that in a test


class Home(Protocol):
    """What a pod needs of its node."""

    name: str
    address: str
    folder: Path
    given: dict[str, str]
    reachable: asyncio.Event
    api: Api

    def sources(self, namespace: str) -> Sources: ...
    def release(self, uid: str) -> None: ...


class Pod:
    """See the module's docstring."""

    def __init__(self, home: Home, manifest: dict, devices: dict[str, list[int]]) -> None:
        self.home = home
        self.manifest = manifest
        self.uid = manifest["metadata"]["uid"]
        self.folder = home.folder / "pods" / self.uid
        spec = manifest["spec"]
        self.inits = [ContainerRecord(each, self.folder) for each in spec.get("initContainers") or ()]
        self.containers = [ContainerRecord(each, self.folder) for each in spec["containers"]]
        self.failure: tuple[str, str] | None = None  # reason and message, where the pod as a whole failed
        self.started = now()
        self.begun = False
        self._devices = devices
        self._ending = asyncio.Event()
        self._lost = False  # the node died: nobody is left to report
        self._posting = asyncio.Lock()
        self._wanted = self._posted = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what happens to it

    def begin(self) -> None:
        """Runs it."""
        self.begun = True
        self.folder.mkdir(parents=True, exist_ok=True)
        self._spawn(self._live())

    def refuse(self, reason: str, message: str) -> None:
        """Fails it before anything of it was started."""
        self.failure = (reason, message)
        self._spawn(self.report())

    def record(self, container: str) -> ContainerRecord | None:
        """The container of this name."""
        return next((each for each in (*self.inits, *self.containers) if each.name == container), None)

    def end(self, grace: float) -> None:
        """Deleted: TERM, after `grace` seconds KILL, then the object goes."""
        if not self._ending.is_set():
            self._ending.set()
            self._spawn(self._stop(grace))

    def vanish(self) -> None:
        """Everything of it is killed and nothing said: its node is dead, or its object is gone."""
        self._lost = True
        self._ending.set()
        for record in (*self.inits, *self.containers):
            if record.process is not None:
                record.process.kill()

    @property
    def over(self) -> bool:
        """It ended by itself or failed."""
        return self.failure is not None or self.phase in ("Succeeded", "Failed")

    @property
    def phase(self) -> str:
        """As in its status."""
        return pod_status(self)["phase"]

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- its life

    async def _live(self) -> None:
        deadline = self.manifest["spec"].get("activeDeadlineSeconds")
        try:
            await asyncio.wait_for(self._run(), deadline)
        except TimeoutError:
            self.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            self._ending.set()
            await self._end_processes(self.grace)
        self.home.release(self.uid)
        await self.report()

    @property
    def grace(self) -> float:
        """Seconds between TERM and KILL."""
        return self.manifest["spec"].get("terminationGracePeriodSeconds", 30)

    async def _run(self) -> None:
        policy = self.manifest["spec"].get("restartPolicy", "Always")
        for record in self.inits:
            await self._keep(record, "OnFailure" if policy == "Always" else policy)
            if record.exit_code != 0 or self._ending.is_set():
                return
        await asyncio.gather(*(self._keep(record, policy) for record in self.containers))

    async def _keep(self, record: ContainerRecord, policy: str) -> None:
        backoff = FIRST_BACKOFF
        while not self._ending.is_set():
            if not await self._launch(record):
                await self._pause(FIRST_BACKOFF)
                continue
            await self.report()
            assert record.process is not None
            record.end(await record.process.ended())
            if policy == "Never" or (policy == "OnFailure" and record.exit_code == 0) or self._ending.is_set():
                await self.report()
                return
            record.wait("CrashLoopBackOff", f"back-off {backoff:.0f}s restarting failed container")
            await self.report()
            await self._pause(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return

    async def _launch(self, record: ContainerRecord) -> bool:
        """Starts it; False when something that it needs isn't there yet."""
        loop = asyncio.get_running_loop()
        try:
            process = await loop.run_in_executor(None, self._prepare, record)
        except MissingError as error:
            record.wait("CreateContainerConfigError", str(error))
            await self.report()
            return False
        if self._ending.is_set():
            record.exit_unstarted()
            return False
        try:
            process.start()
        except (OSError, ValueError) as error:
            process.log.write_text(f"{error}\n")
            process = Process(["/bin/sh", "-c", "exit 128"], {}, process.log)
            process.start()
            record.message = str(error)
        record.begin(process)
        return True

    def _prepare(self, record: ContainerRecord) -> Process:
        spec, pod = record.spec, self.manifest
        given = {**self.home.given, "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
        if devices := self._devices.get(record.name):
            given["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in devices)
        seen = {**pod, "status": {**pod.get("status", {}), "podIP": self.home.address, "hostIP": self.home.address}}
        sources = self.home.sources(pod["metadata"]["namespace"])
        values = environment(seen, spec, given, sources)
        command = [expand(word, values) for word in (*(spec.get("command") or ()), *(spec.get("args") or ()))]
        if command:
            command = mounted(command, seen, spec, self.folder, sources)
        log = self.folder / f"{record.name}.{record.restarts}.log"
        log.touch()
        return Process(command, values, log, spec.get("workingDir") or "")

    # ---- its end

    async def _stop(self, grace: float) -> None:
        await self._end_processes(grace)
        self.home.release(self.uid)
        if self._lost:
            return
        await self.report()
        await self.forget()

    async def _end_processes(self, grace: float) -> None:
        running = [record for record in (*self.inits, *self.containers) if record.running]
        await asyncio.gather(*(self._end_process(record, grace) for record in running))

    async def _end_process(self, record: ContainerRecord, grace: float) -> None:
        process = record.process
        assert process is not None
        try:
            async with asyncio.timeout(grace):
                await self._pre_stop(record, process)
                process.terminate()
                await record.over.wait()
        except TimeoutError:
            process.kill()
            await record.over.wait()

    async def _pre_stop(self, record: ContainerRecord, process: Process) -> None:
        hook = ((record.spec.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if not hook:
            return
        with process.log.open("ab") as log:
            running = await asyncio.create_subprocess_exec(
                *hook["command"], env=process.values, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            await running.wait()
        except asyncio.CancelledError:
            running.send_signal(signal.SIGKILL)
            raise

    async def forget(self) -> None:
        """Removes its object, as the last thing that is done for it."""
        meta = self.manifest["metadata"]
        await self.home.reachable.wait()
        gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        try:
            await self.home.api.call("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", gone)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    # ---- what is said of it

    async def report(self) -> None:
        """Its status on the API server as it is now; several changes may come as one."""
        self._wanted += 1
        wanted = self._wanted
        async with self._posting:
            await self.home.reachable.wait()
            if self._posted >= wanted or self._lost:
                return
            self._posted = self._wanted
            meta = self.manifest["metadata"]
            patch = {"metadata": {"uid": self.uid}, "status": pod_status(self)}
            try:
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
                await self.home.api.call("PATCH", path, patch)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
