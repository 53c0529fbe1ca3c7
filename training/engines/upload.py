"""Copies of batches to a GPU: one buffer and one copy for all columns of a micro-batch, one micro-batch ahead.

The buffer is pinned, so that the host does not wait for the copy, and the copy runs on a stream of its own, so that the
GPU computes meanwhile.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preprocessing.schema import Batch
from training.architectures import DeviceBatch

ON_HOST: Final = frozenset({"slot", "real_rows", "longest", "source_longest"})
"""Columns that only the host reads."""

ALIGNED: Final = 256  # bytes: the start of each column, as of a tensor that torch allocates
AHEAD: Final = 2  # buffers: one that the GPU may still read, and one that the host fills


class Column(NamedTuple):
    """Place of a column in a buffer of bytes."""

    name: str
    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


def place_columns(batch: Batch) -> tuple[list[Column], int]:
    """The place of each column of a batch that the device reads, and the size of the buffer in bytes.

    >>> place_columns({"lengths": np.zeros(3, np.int32), "slot": np.array(0), "input_ids": np.zeros(5, np.int64)})
    ([Column(name='lengths', start=0, dtype=torch.int32, shape=(3,)),
      Column(name='input_ids', start=256, dtype=torch.int64, shape=(5,))], 296)
    """
    columns, end = [], 0
    for name, array in batch.items():
        if name not in ON_HOST:
            start = -(-end // ALIGNED) * ALIGNED
            columns.append(Column(name, start, torch.from_numpy(np.empty(0, array.dtype)).dtype, array.shape))
            end = start + array.nbytes
    return columns, end


def fill(buffer: Tensor, columns: Sequence[Column], batch: Batch) -> None:
    """Write the columns of a batch into a buffer on the host, uint8 [N]."""
    for column in columns:
        view(buffer, column).numpy()[...] = batch[column.name]


def view(buffer: Tensor, column: Column) -> Tensor:
    """A column in a buffer, without a copy."""
    size = math.prod(column.shape) * column.dtype.itemsize
    return buffer[column.start : column.start + size].view(column.dtype).view(column.shape)


@dataclass
class _Buffer:
    """A pinned buffer, and the end of the last copy from it."""

    bytes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    copied: torch.cuda.Event | None = None


class Uploader:
    """Copies batches to a device. At most AHEAD batches are begun at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._turn = device, 0
        self._buffers = [_Buffer() for _ in range(AHEAD)]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._started: list[tuple[Batch, Tensor, list[Column], torch.cuda.Event]] = []

    def begin(self, batch: Batch) -> None:
        """Begin to copy a batch, which `take` returns later, unless its copy has begun already."""
        if self._stream is not None and not any(started is batch for started, *_ in self._started):
            self._started.append((batch, *self._start(batch)))

    def take(self, batch: Batch) -> DeviceBatch:
        """The tensors of a batch. Kernels that are launched from now on wait for the copy; the host does not."""
        if self._stream is None:
            return to_tensors(batch, self.device)
        self.begin(batch)
        (index,) = (number for number, (started, *_) in enumerate(self._started) if started is batch)
        _, on_device, columns, copied = self._started[index]
        del self._started[: index + 1]  # batches before it were given up
        current = torch.cuda.current_stream(self.device)
        current.wait_event(copied)
        on_device.record_stream(current)
        tensors = {column.name: view(on_device, column) for column in columns}
        tensors |= {name: torch.from_numpy(batch[name]) for name in ON_HOST & batch.keys()}
        return DeviceBatch(tensors, batch)

    def _start(self, batch: Batch) -> tuple[Tensor, list[Column], torch.cuda.Event]:
        """Begin to copy a batch: its buffer on the device, its columns there, and the end of the copy."""
        assert self._stream is not None
        buffer = self._buffers[self._turn % AHEAD]
        self._turn += 1
        columns, size = place_columns(batch)
        if buffer.copied is not None:
            buffer.copied.synchronize()  # the copy of an earlier batch, which ended long ago
        if len(buffer.bytes) < size:
            buffer.bytes = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        fill(buffer.bytes, columns, batch)
        with torch.cuda.stream(self._stream):
            on_device = buffer.bytes[:size].to(self.device, non_blocking=True)
            buffer.copied = torch.cuda.Event()
            buffer.copied.record(self._stream)
        return on_device, columns, buffer.copied


def to_tensors(batch: Batch, device: torch.device) -> DeviceBatch:
    """Convert the arrays of a batch to tensors on `device`, except for the columns `ON_HOST`, which stay on the CPU.

    Tensors on the CPU share the memory of the arrays.
    """
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    on_device = {name: x if name in ON_HOST else x.to(device, non_blocking=True) for name, x in tensors.items()}
    return DeviceBatch(on_device, batch)
