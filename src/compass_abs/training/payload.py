"""The bytes of a checkpoint: a pickled skeleton and raw tensors beside it, written, hashed and read in parallel.

`torch.save` is one thread; on a GPU node a checkpoint is as fast as the slowest of hash and disk, so both are split
over threads here (file writes and SHA-256 release the interpreter). Torch is used only if the program has imported it.

A payload is pickle: like `torch.load`, read it only from folders whose writers you trust.
"""

import hashlib
import io
import json
import mmap
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from compass_abs.model import CompassError
from compass_abs.training.staging import Bytes, Staging, flat_bytes, start_writeback

_MAGIC = b"CMPSCKP1"
_PREFIX = struct.Struct("<8sQQ")
#: Tensors start at multiples of a cache line.
_ALIGNMENT = 64
#: Unit of hashing and writing: large enough to hide a thread switch, small enough to spread over the cores.
_PIECE = 8 << 20
_THREADS = min(16, os.cpu_count() or 1)


class CorruptCheckpointError(CompassError):
    """A checkpoint that is damaged, cut short or missing."""


def flatten(tree: object) -> tuple[bytes, list[Any]]:
    """The tree pickled without its tensors, and the tensors, each once however often it occurs."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(tree)
    return buffer.getvalue(), pickler.tensors


def unflatten(skeleton: bytes, tensors: Sequence[Any]) -> Any:
    """The tree again."""
    return _Unpickler(io.BytesIO(skeleton), tensors).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.tensors: list[Any] = []
        self._index: dict[tuple[object, ...], int] = {}
        torch = sys.modules.get("torch")
        self._plain = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        self._strided = None if torch is None else torch.strided

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) not in self._plain or obj.layout != self._strided or obj.is_quantized:
            return None
        key = (obj.device, obj.data_ptr(), obj.shape, obj.stride(), obj.dtype)
        if obj.numel() == 0 or key not in self._index:
            self._index[key] = len(self.tensors)
            self.tensors.append(obj.detach())
        return self._index[key]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Any]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


def to_host(tensors: Sequence[Any]) -> list[Any]:
    """Copies in host memory that later training steps don't touch."""
    import torch

    copies = [torch.empty_like(t, device="cpu", memory_format=torch.contiguous_format) for t in tensors]
    staging = Staging(_PIECE)

    def copy(extent: tuple[Bytes, Bytes]) -> None:
        target, source = extent
        target.copy_(staging.in_host_memory(source))

    # In pieces, since faulting in the pages of the copies takes longer than the copying and is what threads can share.
    extents = [
        (target[start : start + _PIECE], source[start : start + _PIECE])
        for target, source in zip(map(flat_bytes, copies), map(flat_bytes, tensors), strict=True)
        for start in range(0, len(source), _PIECE)
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(copy, extents):
            pass
    return copies


def write_payload(path: Path, skeleton: bytes, tensors: Sequence[Any]) -> str:
    """Writes and syncs a new file; returns its digest.

    The digest is SHA-256 over the SHA-256 of each extent in order: the header, then every tensor in pieces of 8 MiB.
    """
    table = json.dumps([[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]).encode()
    header = _PREFIX.pack(_MAGIC, len(skeleton), len(table)) + skeleton + table
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        staging = Staging(_PIECE)

        def write(extent: tuple[int, Bytes]) -> bytes:
            offset, piece = extent
            view = staging.view(piece)
            _write_at(descriptor, view, offset)
            start_writeback(descriptor, offset, len(view))
            return hashlib.sha256(view).digest()

        digest = _digest(write, list(_extents(memoryview(header), [flat_bytes(tensor) for tensor in tensors])))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest


def read_payload(path: Path, digest: str) -> tuple[bytes, list[Any]]:
    """Skeleton and tensors of a file; `CorruptCheckpointError` unless its bytes have this digest."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Copy-on-write pages: tensors may be trained on in place without touching the file.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)) if size else memoryview(b"")
    except OSError as error:
        raise CorruptCheckpointError(f"checkpoint {path}: {error.strerror}") from None
    try:
        magic, skeleton_size, table_size = _PREFIX.unpack_from(data)
        end = _PREFIX.size + skeleton_size + table_size
        if magic != _MAGIC or end > size:
            raise ValueError("no checkpoint of this format, or cut short")
        skeleton = bytes(data[_PREFIX.size : end - table_size])
        # The table is looked at before it is verified, only to find the extents: nothing in it is executed.
        table = json.loads(bytes(data[end - table_size : end]))
        sizes = [_element_size(dtype) * _count(shape) for dtype, shape in table]
        offsets = list(_offsets(end, sizes))
        if any(count and start + count > size for start, count in zip(offsets, sizes, strict=True)):
            raise ValueError("cut short")
        views = [data[start : start + count] for start, count in zip(offsets, sizes, strict=True)]
        found = _digest(lambda extent: hashlib.sha256(extent[1]).digest(), list(_extents(data[:end], views)))
        if found != digest:
            raise ValueError(f"its digest is {found[:12]}…, expected {digest[:12]}…")
    except (struct.error, ValueError, TypeError, AttributeError) as error:
        raise CorruptCheckpointError(f"checkpoint {path}: {error}") from None
    return skeleton, [_tensor_of(view, dtype, shape) for view, (dtype, shape) in zip(views, table, strict=True)]


def _write_at(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _digest(work: Callable[[tuple[int, Bytes]], bytes], extents: list[tuple[int, Bytes]]) -> str:
    if len(extents) < 4:
        return hashlib.sha256(b"".join(map(work, extents))).hexdigest()
    with ThreadPoolExecutor(_THREADS) as pool:
        return hashlib.sha256(b"".join(pool.map(work, extents))).hexdigest()


def _offsets(start: int, sizes: Sequence[int]) -> Iterator[int]:
    for size in sizes:
        start += -start % _ALIGNMENT
        yield start
        start += size


def _extents(header: memoryview, bodies: Sequence[Bytes]) -> Iterator[tuple[int, Bytes]]:
    yield 0, header
    for offset, body in zip(_offsets(len(header), [len(body) for body in bodies]), bodies, strict=True):
        for start in range(0, len(body), _PIECE):
            yield offset + start, body[start : start + _PIECE]


def _count(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _element_size(dtype: str) -> int:
    return int(_torch_dtype(dtype).itemsize)


def _torch_dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown element type {name!r}")
    return dtype


def _tensor_of(view: memoryview, dtype: str, shape: Sequence[int]) -> Any:
    import torch

    kind = _torch_dtype(dtype)
    if not len(view):
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(view, dtype=torch.uint8).view(kind).reshape(shape)
