"""The training loop of every workload: an ordinary one, and the contract's lines in it."""

import os
import random
import sys
import time
from contextlib import ExitStack, nullcontext
from importlib import import_module
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from compass_abs.training.contract import Worker
from compass_abs.training.group import exact_ddp
from compass_abs.training.session import Saving, session


def train(
    workload: str,
    size: str,
    *,
    steps: int,
    seed: int = 1,
    batch_size: int | None = None,
    device: str = "auto",
    log: Path | None = None,
    pace: float = 0.0,
    save_every: int | None = None,
    saving: str = "blocking",
) -> None:
    """Trains for `steps` steps in all, from the newest checkpoint if there is one."""
    module = import_module(f"compass_abs.training.workloads.{workload}")
    config = module.SIZES[size]
    worker = Worker.from_environment()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    # Engines show each process its own GPUs only; several ranks of one instance share what it sees.
    target = torch.device("cuda", worker.local_rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(target)
        torch.set_float32_matmul_precision("high")
    else:
        # More threads would change the order of sums, and with it the last bits, from machine to machine.
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(seed)
    with target:
        model = module.Model(config)
    torch.manual_seed(seed * 1000 + worker.rank)
    random.seed(seed * 1000 + worker.rank)
    optimizer: torch.optim.Optimizer
    if workload == "deepfm":
        # Adagrad leaves rows without a gradient as they are, so a delta of the tables is small.
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    data = torch.Generator(target).manual_seed(seed * 1000 + worker.rank)
    precision = torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()

    with (
        ExitStack() as files,
        session(
            model=model,
            optimizer=optimizer,
            scheduler=schedule,
            extra={"data": data},
            wrap=DistributedDataParallel if on_gpu else exact_ddp,
            every_steps=save_every,
            saving=Saving(saving),
            worker=worker,
        ) as s,
    ):
        losses = files.enter_context(_log_file(log, worker.rank).open("a", encoding="utf-8")) if log else None
        for step in s.steps(steps):
            inputs = module.batch(config, batch_size or config.batch, data)
            with precision:
                loss = s.model(*inputs)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            s.loss = loss.item()
            line = f"{step + 1} {s.loss.hex()}\n"
            (losses or sys.stdout).write(line)
            (losses or sys.stdout).flush()
            if pace:
                time.sleep(pace)


def _log_file(log: Path, rank: int) -> Path:
    return log if rank == 0 else log.with_name(f"{log.name}.rank{rank}")
