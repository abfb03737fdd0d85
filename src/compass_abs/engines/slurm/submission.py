"""How an instance becomes a Slurm job: options of sbatch, the batch script, and the order that it carries out."""

import math
import shlex
import sys
import time
from pathlib import Path

from compass_abs.engines.protocol import RunId, StartOrder
from compass_abs.engines.slurm.reading import SlurmNode

_COMMENT = "compass"
#: What sbatch itself reads from the environment of who calls it, and what a job may so say of who pays for it.
BILLING = {"SBATCH_ACCOUNT": "account", "SBATCH_QOS": "qos", "SBATCH_WCKEY": "wckey"}


def comment(owner: str, run: RunId) -> str:
    """What a job's comment says: whose it is, and which run. The engine's only key in Slurm."""
    return f"{comment_prefix(owner)}{run}"


def comment_prefix(owner: str) -> str:
    """What the comments of all our jobs begin with."""
    return f"{_COMMENT}:{owner}:"


def job_name(run: RunId) -> str:
    """What people see in squeue."""
    return f"{run.job_id}.{run.number}.g{run.generation}"


def options(order: StartOrder, owner: str, node: SlurmNode, partition: str, log: Path, after: list[int]) -> list[str]:
    """Options of sbatch for one instance on its node: held, or waiting for those that it succeeds."""
    cpus = order.workload.limits.cpus
    wanted = math.ceil(cpus) if cpus is not None else node.cpus * order.gpus // max(node.gpus, 1)
    # Never more than is left: somebody else's processes may have more than their share.
    wanted = max(1, min(wanted, max(1, node.cpus - node.cpus_used) if cpus is None else wanted))
    memory = order.workload.limits.memory_bytes
    mebibytes = memory >> 20 if memory is not None else node.memory_mib * order.gpus // max(node.gpus, 1)
    found = [
        f"--partition={partition}",
        f"--job-name={job_name(order.run)}",
        f"--comment={comment(owner, order.run)}",
        f"--nodelist={order.node}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={wanted}",
        f"--gres=gpu:{order.gpus}",
        f"--output={log}",
        "--open-mode=append",
        # A restart is the controller's to decide: with a new generation, from a checkpoint that it knows.
        "--no-requeue",
        "--chdir=/",
        "--export=ALL",
    ]
    if mebibytes > 0:
        found.append(f"--mem={max(1, mebibytes)}M")
    said = dict(order.workload.environment)
    found += [f"--{option}={said[name]}" for name, option in BILLING.items() if said.get(name)]
    if order.deadline is not None:
        found.append(f"--time={max(1, math.ceil((order.deadline - time.time()) / 60) + 1)}")
    found.append(f"--dependency=afterany:{':'.join(map(str, after))}" if after else "--hold")
    return found


def batch_script(program: Path, order_file: Path) -> str:
    """The script: nothing but the program that becomes the instance's parent."""
    return f"#!/bin/sh\nexec {shlex.join([sys.executable, '-I', '-S', str(program), str(order_file)])}\n"
