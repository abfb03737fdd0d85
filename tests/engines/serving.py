"""A controller in a process of its own that kills itself in the middle of a move.

python -m tests.engines.serving slurm ROOT CONF FOLDER GPUS PHASE
"""

import os
import signal
import sys
from pathlib import Path

from compass_abs.controller.service import Event
from compass_abs.engines.protocol import Engine
from compass_abs.model import NodeStatus
from tests.engines.gangs import Story, phase_of


def open_engine(kind: str, arguments: list[str]) -> Engine:
    """The engine that the first arguments name; takes what it needs of them."""
    if kind == "slurm":
        from compass_abs.engines.slurm import SlurmEngine

        return SlurmEngine(Path(arguments.pop(0)), configuration=Path(arguments.pop(0)))
    if kind == "kubernetes":
        from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings

        root, kubeconfig, namespace = (arguments.pop(0) for _ in range(3))
        client = Client.connect(kubeconfig=Path(kubeconfig))
        return KubernetesEngine(Path(root), client, PodSettings(namespace=namespace, image="test"))
    if kind == "ray":
        from compass_abs.engines.ray import RayEngine

        return RayEngine(Path(arguments.pop(0)), address=arguments.pop(0))
    if kind == "local":
        from compass_abs.engines.local import LocalEngine

        return LocalEngine(Path(arguments.pop(0)), nodes=4, gpus=int(arguments.pop(0)), real_gpus=())
    raise SystemExit(f"there is no engine {kind!r} here")


def main() -> None:
    kind, *arguments = sys.argv[1:]
    story_engine = open_engine(kind, arguments)
    folder, gpus, phase = Path(arguments[0]), int(arguments[1]), arguments[2]
    story = Story(folder, story_engine)

    def die(event: Event) -> None:
        if phase_of(event.record) == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    story.service.subscribe(die)
    job = story.submit_pair(gpus, folder)
    story.until(job, lambda entry: story.steps_done(folder) >= 5)
    leaving = story.entry(job).nodes[1]
    story.service.ask(lambda c: c.set_node(leaving, NodeStatus.DRAINING))
    story.until(job, lambda entry: entry.over)
    print(f"the job ended as {story.entry(job).phase} before phase {phase}")


main()
