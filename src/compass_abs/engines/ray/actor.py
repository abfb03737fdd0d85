"""The actor that holds an instance's GPUs on a node, and is the parent of its supervisor."""

import os
import subprocess
import sys
import threading
from typing import IO


class Holder:
    """Runs `instance.py` and ends with it. Nobody has to be there: it outlives the controller."""

    def __init__(self, program: str, order_file: str, log_file: str) -> None:
        import ray

        indices = ",".join(str(int(gpu)) for gpu in ray.get_gpu_ids())
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", indices)
        environment = {"PATH": os.defpath, "COMPASS_SLOTS": indices, "CUDA_VISIBLE_DEVICES": visible}
        log: IO[bytes]
        with open(log_file, "ab") as log:  # noqa: PTH123 - nothing more is imported on the node than is needed
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", program, order_file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        threading.Thread(target=self._end_with_it, daemon=True).start()

    def _end_with_it(self) -> None:
        self._supervisor.wait()
        # Gives the GPUs back even when no controller is there to ask for it.
        os._exit(0)

    def node(self) -> str:
        """The id of the node it is on: proves that it is up."""
        import ray

        return str(ray.get_runtime_context().get_node_id())
