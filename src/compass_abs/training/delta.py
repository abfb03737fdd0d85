"""What changed since a snapshot: the small final write of a job of which only a part trains.

Adam touches every parameter of a dense model at every step, so there the difference is the whole and a whole
checkpoint is written. Frozen backbones and large embeddings of which a batch touches few rows are where it pays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compass_abs.training.payload import CorruptCheckpointError

#: Rows looked at before a whole tensor is compared: when most of them differ, the rest will too.
_SAMPLE = 256
#: Above this share of changed rows the indices and the second file cost more than they save.
_WORTH_IT = 0.5


@dataclass(frozen=True, slots=True)
class Base:
    """A whole checkpoint on disk, with its tensors still in host memory."""

    payload: str
    sha256: str
    tensors: Sequence[Any]


def difference(base: Base, skeleton: bytes, tensors: Sequence[Any]) -> dict[str, Any] | None:
    """The changes that turn the base's tensors into these; None when a whole checkpoint is as good."""
    if len(base.tensors) != len(tensors):
        return None
    changes, changed_bytes, all_bytes = [], 0, 0
    for old, new in zip(base.tensors, tensors, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            return None
        change = _change(old, new)
        changes.append(change)
        size = new.numel() * new.element_size()
        all_bytes += size
        changed_bytes += 0 if change is None else size if change[0] is None else change[1].numel() * new.element_size()
    if changed_bytes > _WORTH_IT * all_bytes:
        return None
    return {"skeleton": skeleton, "changes": changes}


def reassemble(change: dict[str, Any], base: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """Skeleton and tensors of the later state."""
    if len(change["changes"]) != len(base):
        raise CorruptCheckpointError(f"a delta of {len(change['changes'])} tensors against a base of {len(base)}")
    tensors = []
    for old, part in zip(base, change["changes"], strict=True):
        if part is None:
            tensors.append(old)
        elif part[0] is None:
            tensors.append(part[1])
        else:
            old[part[0]] = part[1]
            tensors.append(old)
    return change["skeleton"], tensors


def _change(old: Any, new: Any) -> tuple[Any, Any] | None:
    """None when the bits are equal, else (row numbers or None for all, their values)."""
    import torch

    new = new.detach()
    rows = new.shape[0] if new.dim() > 1 else 0
    if rows < 2 * _SAMPLE:
        return None if torch.equal(_bits(old), _bits(new.to("cpu"))) else (None, new)
    stride = rows // _SAMPLE
    sample = (_bits(old[::stride]) != _bits(new[::stride].to("cpu"))).flatten(1).any(1)
    if sample.float().mean() > _WORTH_IT:
        return None, new
    host = new.to("cpu")
    changed = (_bits(old) != _bits(host)).flatten(1).any(1).nonzero().flatten()
    if not len(changed):
        return None
    return (changed, host[changed]) if len(changed) <= _WORTH_IT * rows else (None, new)


def _bits(tensor: Any) -> Any:
    """Integers of the same bits: -0.0 differs from 0.0 here, and a NaN equals itself."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    return tensor.view(integers[tensor.element_size()])
