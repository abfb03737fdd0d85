"""How an instance becomes a Slurm job: options of sbatch, the batch script, and the order that it carries out."""

import math
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from compass_abs.engines import contract_files
from compass_abs.engines.protocol import RunId, StartOrder
from compass_abs.engines.slurm.reading import SlurmNode
from compass_abs.engines.slurm.runs import SlurmRun

_COMMENT = "compass"


def comment(owner: str, run: RunId) -> str:
    """What a job's comment says: whose it is, and which run. The engine's only key in Slurm."""
    return f"{_COMMENT}:{owner}:{run}"


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
    if order.deadline is not None:
        found.append(f"--time={max(1, math.ceil((order.deadline - time.time()) / 60) + 1)}")
    found.append(f"--dependency=afterany:{':'.join(map(str, after))}" if after else "--hold")
    return found


def batch_script(program: Path, order_file: Path) -> str:
    """The script: nothing but the program that becomes the instance's parent."""
    return f"#!/bin/sh\nexec {shlex.join([sys.executable, '-I', '-S', str(program), str(order_file)])}\n"


def instance_order(order: StartOrder, run: SlurmRun, job_folder: Path) -> dict[str, Any]:
    """What that program reads; makes the folders that it names."""
    workload = order.workload
    checkpoints = Path(workload.checkpoint_dir) if workload.checkpoint_dir else job_folder / "checkpoints"
    workdir = Path(workload.workdir) if workload.workdir else job_folder / "work"
    checkpoints.mkdir(parents=True, exist_ok=True)
    if not workload.workdir:
        workdir.mkdir(exist_ok=True)
    environment = contract_files.instance_environment(
        order,
        control_dir=str(run.control),
        checkpoint_dir=str(checkpoints),
        inherited=os.environ,
        visible_devices=None,
    )
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    limits = workload.limits
    return {
        "command": list(workload.command),
        "environment": environment,
        "workdir": str(workdir),
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "open_files": limits.open_files,
            "processes": limits.processes,
            "file_bytes": limits.file_bytes,
        },
        "claim_file": str(run.path("claim")),
        "process_file": str(run.path("process")),
        "stop_file": str(run.path("stop")),
        "end_file": str(run.path("end")),
    }
