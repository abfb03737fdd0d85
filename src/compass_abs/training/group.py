"""The ranks of a gang as one: what they must agree on at a step boundary."""

import contextlib
import os
import sys
from datetime import timedelta
from typing import Any, Protocol

from compass_abs.training.contract import Worker

#: A rank that is this late to meet the others isn't coming; the process ends and the controller decides.
_PATIENCE = timedelta(minutes=10)


class Group(Protocol):
    """What a session needs of its peers."""

    rank: int
    size: int

    def any(self, flag: bool) -> bool:
        """True on every rank when it is true on one."""

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank."""

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""

    def leave(self) -> None:
        """Ends the membership; the peers need not be alive."""


class Alone:
    """A process without peers, or one that has not told us of them."""

    rank = 0
    size = 1

    def any(self, flag: bool) -> bool:
        """Its own flag."""
        return flag

    def gather(self, value: Any) -> list[Any]:
        """Its own value."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Its own value."""
        return value

    def leave(self) -> None:
        """Nothing to leave."""


class TorchGroup:
    """Over `torch.distributed`. Agreement goes through gloo even where gradients go through NCCL: a flag on the GPU
    would make every step wait for the GPU.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._control = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._largest = dist.ReduceOp.MAX

    def any(self, flag: bool) -> bool:
        """True on every rank when it is true on one."""
        self._flag[0] = int(flag)
        self._dist.all_reduce(self._flag, op=self._largest, group=self._control)
        return bool(self._flag.item())

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank."""
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        values = [value]
        self._dist.broadcast_object_list(values, src=0, group=self._control)
        return values[0]

    def leave(self) -> None:
        """Destroys the process group; the peers need not be alive."""
        if self._dist.is_initialized():
            # Peers may be gone: NCCL's orderly end would wait for them, and nothing of ours is on its way any more.
            abort = getattr(self._dist.distributed_c10d, "_abort_process_group", None)
            if abort is not None and self._dist.get_backend() != "gloo":
                with contextlib.suppress(RuntimeError, ValueError):
                    abort()
            if self._dist.is_initialized():
                self._dist.destroy_process_group()


def join(worker: Worker, backend: str | None) -> Group:
    """The gang of this worker, met at its rendezvous; a group that the program has made itself is used as it is.

    Without torch, or with the backend "none", each process is on its own.
    """
    torch = sys.modules.get("torch")
    if backend == "none" or torch is None or not torch.distributed.is_available():
        return Alone()
    dist = torch.distributed
    if dist.is_initialized():
        return TorchGroup()
    if worker.world_size == 1:
        return Alone()
    os.environ.update(MASTER_ADDR=worker.master_addr, MASTER_PORT=str(worker.master_port))
    by_nccl = torch.cuda.is_available() and dist.is_nccl_available() and not worker.shared_gpus
    dist.init_process_group(
        backend or ("cpu:gloo,cuda:nccl" if by_nccl else "gloo"),
        init_method=f"tcp://{worker.master_addr}:{worker.master_port}",
        rank=worker.rank,
        world_size=worker.world_size,
        timeout=_PATIENCE,
    )
    return TorchGroup()


def exact_ddp(model: Any) -> Any:
    """The model under DDP, such that a restarted gang repeats an undisturbed one to the last bit, on CPU.

    DDP lays its buckets out anew after the first step, and a restarted gang does so again; from three ranks on, the
    layout decides the order in which gradients are summed. The search for unused parameters keeps the first layout
    for ever; it costs a walk over the graph each step, and one warning.
    """
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, find_unused_parameters=True)
