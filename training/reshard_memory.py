"""Conversion of the memory of a model between layouts of workers.

The sequences of a step are ordered by data-parallel worker, and on each worker by micro-batch, whose number is the slot
of the memory. So the memories of all workers form the memory of the global batch, and each worker of another layout
selects its sequences from it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing.order import rank_slice
from training.data import num_micro
from training.specs import Phase

Topology = Mapping[str, str | int]


@dataclass(frozen=True)
class MemoryLayout:
    """Assignment of the sequences of a batch to workers."""

    batch: int
    micro_rows: int
    world: int  # number of data-parallel workers
    each: int  # number of workers that read the same sequences

    @classmethod
    def of(cls, topology: Topology, phase: Phase) -> "MemoryLayout | None":
        """The layout of a topology.

        It is None if the topology is incomplete, or if workers have only parts of sequences or only some layers.
        """
        workers, tensor, micro_tokens = (
            topology.get(key) for key in ("workers", "tensor_parallel_size", "micro_batch_tokens")
        )
        has_full_sequences = all(topology.get(key) == 1 for key in ("sequence_parallel_size", "pipeline_parallel_size"))
        if not (
            has_full_sequences
            and isinstance(workers, int)
            and isinstance(tensor, int)
            and isinstance(micro_tokens, int)
        ):
            return None
        if tensor < 1 or workers % tensor or not 0 < workers // tensor <= phase.global_batch_size:
            return None
        return cls(phase.global_batch_size, max(1, micro_tokens // phase.seq_length), workers // tensor, tensor)

    def slots(self, number: int) -> list[range]:
        """The positions of the sequences of each micro-batch of one of `world` workers."""
        rows = range(self.batch)[rank_slice(self.batch, number, self.world)]
        count = num_micro(self.batch, self.micro_rows, self.world)
        return [rows[rank_slice(len(rows), part, count)] for part in range(count)]


def reshard_memory(
    read: Callable[[int], Mapping[str, Tensor]], old: MemoryLayout, new: MemoryLayout, number: int
) -> dict[str, Tensor]:
    """The memory of worker `number` of the `new` layout. `read` returns the memory of a rank of the `old` layout.

    Only the memories of ranks that have sequences of this worker are read. Raises LookupError or ValueError if a memory
    does not fit the old layout.
    """
    new_slots = new.slots(number)
    first, stop = new_slots[0].start, new_slots[-1].stop
    pieces: list[tuple[range, Tensor, Tensor]] = []
    for other in range(old.world):
        slots = old.slots(other)
        if slots[-1].stop <= first or stop <= slots[0].start:
            continue
        memory = read(other * old.each)
        for slot, rows in enumerate(slots):
            states, count_B = memory[f"states.{slot}"], memory[f"counts.{slot}"]
            if states.shape[1] != len(rows):
                raise ValueError(f"slot {slot} has {states.shape[1]} sequences instead of {len(rows)}")
            pieces.append((rows, states, count_B))
    return dict(chain.from_iterable(_slot(number, rows, pieces).items() for number, rows in enumerate(new_slots)))


def _slot(number: int, rows: range, pieces: Sequence[tuple[range, Tensor, Tensor]]) -> dict[str, Tensor]:
    """The memory of the sequences at `rows`.

    The last states are the most recent ones, so that shorter memories are padded in front.
    """
    parts = []
    for old_rows, states, count_B in pieces:
        start, stop = max(rows.start, old_rows.start) - old_rows.start, min(rows.stop, old_rows.stop) - old_rows.start
        if start < stop:
            parts.append((states[:, start:stop], count_B[start:stop]))
    longest = max(states.shape[2] for states, _ in parts)
    filled = [F.pad(states, (0, 0, longest - states.shape[2], 0)) for states, _ in parts]
    counts = torch.cat([count_B for _, count_B in parts])
    return {f"states.{number}": torch.cat(filled, dim=1), f"counts.{number}": counts}
