"""The micro-batch that `micro_batch_tokens: auto` chooses."""

from bisect import bisect_right
from dataclasses import replace
from typing import Final

from orchestration.planning.devices import Device
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.search import FILLED, is_gpu, memory_ratio, peak_on
from orchestration.planning.workload import Workload

ROOM: Final = 0.9  # fraction of a device's memory that the plan of a chosen micro-batch may fill
MOST_ON_CPU: Final = 4_096  # tokens; on a CPU, larger micro-batches leave its caches and are slower

MICRO_BATCHES_PER_STAGE: Final = 4  # of a pipeline


def choose_micro_tokens(demand: Workload, layout: ParallelLayout, device: Device, recorded: int = 0) -> int:
    """The tokens of the largest micro-batch that fits the device with 10 % room, in whole sequences.

    It has at least one of the longest sequences, and no more than a worker's part of the largest batch. A `recorded`
    number is kept if the search would allow it.
    """
    one = demand.row_tokens(demand.longest.seq_length)

    def fill(tokens: int) -> float:
        """The fraction of the device's memory that the plan fills."""
        return memory_ratio(peak_on(demand, replace(layout, micro_tokens=tokens), device)[1], device)

    if recorded >= one and fill(recorded) <= FILLED:
        return recorded
    most = count_useful_sequences(demand, layout, device)
    return one * max(1, bisect_right(range(1, most + 1), ROOM, key=lambda number: fill(number * one)))


def count_useful_sequences(demand: Workload, layout: ParallelLayout, device: Device) -> int:
    """The number of the longest sequences after which a larger micro-batch has no use.

    A pipeline needs at least four micro-batches for each stage (arXiv:1811.06965, 2.3). A lone GPU fills its
    micro-batches to a fixed shape (preprocessing/fixed_shapes.py), which takes room for another sequence.
    """
    one = demand.row_tokens(demand.longest.seq_length)
    parts = ((-(-phase.global_batch_size // layout.data), phase.seq_length) for phase in demand.recipe.phases)
    largest = max(rows * demand.row_tokens(length) for rows, length in parts)
    if layout.pipeline > 1:
        return max(1, largest // (one * MICRO_BATCHES_PER_STAGE * layout.pipeline))
    if not is_gpu(device):
        return max(1, min(-(-largest // one), MOST_ON_CPU // one))
    return -(-largest // one) + (1 if layout.is_alone else 0)
