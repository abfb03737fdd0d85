"""Tensors as bytes in host memory, piece by piece: what is on a GPU passes through a pinned buffer of its thread.

Copying a whole state to ordinary memory first faults in every page of it: on an H200 1.5 GB took 0.95 s that way and
0.03 s through pinned memory, while hash and disk are busy with the pieces before.
"""

import contextlib
import ctypes
import threading
from typing import Any

#: Host memory, or a flat tensor of bytes. Both have a length and can be sliced.
Bytes = Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, don't wait


def flat_bytes(tensor: Any) -> Bytes:
    """The tensor's bytes in order, on the device where they are."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.device.type == "cuda":
        # What computes it may be on another stream than the copies.
        torch.cuda.current_stream(flat.device).synchronize()
    return flat


class Staging:
    """A pinned buffer for each thread that asks for bytes of a GPU."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._own = threading.local()

    def view(self, piece: Bytes) -> memoryview:
        """The bytes in host memory, valid until this thread asks for others."""
        return piece if isinstance(piece, memoryview) else _view(self.in_host_memory(piece))

    def in_host_memory(self, piece: Any) -> Any:
        """The same as a tensor in host memory, valid as long."""
        import torch

        if piece.device.type != "cuda":
            return piece.to("cpu")
        if not hasattr(self._own, "buffer"):
            self._own.buffer = torch.empty(self._size, dtype=torch.uint8, pin_memory=True)
        buffer = self._own.buffer[: len(piece)]
        buffer.copy_(piece)
        return buffer


def _view(flat: Any) -> memoryview:
    if not len(flat):
        return memoryview(b"")
    # Through the address, since numpy is not ours to require; `flat` is kept alive by the buffer.
    buffer = (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())
    buffer._keep = flat
    return memoryview(buffer).cast("B")


def start_writeback(descriptor: int, offset: int, length: int) -> None:
    """Lets the disk begin while the rest is still being hashed; a hint, whose failure changes nothing."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).sync_file_range(descriptor, ctypes.c_int64(offset), ctypes.c_int64(length), _WRITE)
