"""A controller in a process of its own that kills itself in the middle of a move.

python -m tests.engines.serving slurm ROOT CONF FOLDER GPUS PHASE
"""

import os
import signal
import sys
from pathlib import Path

from compass_abs.controller.service import Event
from compass_abs.model import NodeStatus
from tests.engines.gangs import Story, phase_of
from tests.engines.opening import open_engine


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
