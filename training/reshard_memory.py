"""The memory of a net, written by one layout of workers and taken over by another.

The rows of a step lie in the order of the workers that read different ones, and in each of them in the order of its
micro-batches, whose number is the slot of the memory. So the memories of all make that of the whole batch, of which any
other layout takes its rows.
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
    """Which rows of a batch are whose."""

    batch: int
    micro_rows: int
    world: int  # workers that read different rows
    each: int  # workers that read the same ones

    @classmethod
    def of(cls, topology: Topology, phase: Phase) -> "MemoryLayout | None":
        """None where that is not known, or where no worker has whole rows of all layers."""
        workers, tensor, micro_tokens = (topology.get(key) for key in ("workers", "tensor_parallel", "micro_tokens"))
        alone = all(topology.get(key) == 1 for key in ("sequence_parallel", "pipeline_parallel"))
        if not (alone and isinstance(workers, int) and isinstance(tensor, int) and isinstance(micro_tokens, int)):
            return None
        if tensor < 1 or workers % tensor or not 0 < workers // tensor <= phase.global_batch_size:
            return None
        return cls(phase.global_batch_size, max(1, micro_tokens // phase.seq_length), workers // tensor, tensor)

    def slots(self, number: int) -> list[range]:
        """The rows of each micro-batch of one of `world` workers."""
        rows = range(self.batch)[rank_slice(self.batch, number, self.world)]
        count = num_micro(self.batch, self.micro_rows, self.world)
        return [rows[rank_slice(len(rows), part, count)] for part in range(count)]


def reshard_memory(
    read: Callable[[int], Mapping[str, Tensor]], theirs: MemoryLayout, ours: MemoryLayout, number: int
) -> dict[str, Tensor]:
    """The memory of one of our workers from those that `read` gives of the ranks of theirs; it reads what it needs.

    LookupError or ValueError where theirs is not that of a batch of this layout.
    """
    wanted = ours.slots(number)
    first, stop = wanted[0].start, wanted[-1].stop
    pieces: list[tuple[range, Tensor, Tensor]] = []
    for other in range(theirs.world):
        slots = theirs.slots(other)
        if slots[-1].stop <= first or stop <= slots[0].start:
            continue
        memory = read(other * theirs.each)
        for slot, rows in enumerate(slots):
            states, count_B = memory[f"states.{slot}"], memory[f"counts.{slot}"]
            if states.shape[1] != len(rows):
                raise ValueError(f"slot {slot} has {states.shape[1]} rows instead of {len(rows)}")
            pieces.append((rows, states, count_B))
    return dict(chain.from_iterable(_slot(number, rows, pieces).items() for number, rows in enumerate(wanted)))


def _slot(number: int, rows: range, pieces: Sequence[tuple[range, Tensor, Tensor]]) -> dict[str, Tensor]:
    """The memory of some rows. Its last states are the nearest, so that shorter ones are filled up in front."""
    parts = []
    for theirs, states, count_B in pieces:
        start, stop = max(rows.start, theirs.start) - theirs.start, min(rows.stop, theirs.stop) - theirs.start
        if start < stop:
            parts.append((states[:, start:stop], count_B[start:stop]))
    longest = max(states.shape[2] for states, _ in parts)
    filled = [F.pad(states, (0, 0, longest - states.shape[2], 0)) for states, _ in parts]
    counts = torch.cat([count_B for _, count_B in parts])
    return {f"states.{number}": torch.cat(filled, dim=1), f"counts.{number}": counts}
