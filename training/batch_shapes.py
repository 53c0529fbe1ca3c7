"""Whether micro-batches have fixed shapes, whether blocks are compiled, and which shapes fit the sequences."""

from collections.abc import Mapping, Sequence
from typing import Final

from preprocessing.errors import BadInput
from preprocessing.fixed_shapes import MicroBatchShape, RowSizes, choose_shape
from preprocessing.order import rank_slice
from preprocessing.rows import ExampleDataset
from training.specs import EngineSettings, Phase

_SAMPLED_ROWS: Final = 2_048  # sequences whose sizes determine the shape of micro-batches; made in about a second


def fixes_shapes(machine: EngineSettings, world: int) -> bool:
    """Whether all micro-batches of a sequence length have the same shape: on a single GPU, unless `padding` differs.

    Raises BadInput for several workers, which must have the same number of micro-batches.
    """
    if machine.padding == "fixed" and world > 1:
        raise BadInput(f"invalid engine.padding: got fixed, expected unpadded with {world} workers; set it to unpadded")
    return machine.padding == "fixed" or (machine.padding == "auto" and machine.device == "cuda" and world == 1)


def compiles(machine: EngineSettings, world: int) -> bool:
    """Whether blocks are compiled: on a single GPU with fixed shapes, unless `torch_compile` says otherwise."""
    if machine.torch_compile == "auto":
        return machine.device == "cuda" and fixes_shapes(machine, world)
    return machine.torch_compile


def choose_shapes(
    phases: Sequence[Phase], rows_by_length: Mapping[int, ExampleDataset], most_tokens: int
) -> dict[int, MicroBatchShape]:
    """The shape of micro-batches for each sequence length, from the first sequences of the training, or of each blend.

    It is empty for sequences that continue each other, because each has its place in the micro-batches.
    """
    shapes = dict[int, MicroBatchShape]()
    for phase in phases:
        rows, length = rows_by_length[phase.seq_length], phase.seq_length
        if length in shapes or rows.sampling.packing.ordered:
            continue
        count = min(_SAMPLED_ROWS, max(phase.global_batch_size, rows.count(0)))
        sizes = _sample_sizes(rows, count, phase.global_batch_size)
        of_step: float = phase.global_batch_size
        if phase.batch_unit == "token":
            of_step *= length / float(sizes.tokens.mean())
        shapes[length] = choose_shape(sizes, round(of_step), length, most_tokens)
    return shapes


def _sample_sizes(rows: ExampleDataset, count: int, at_once: int) -> RowSizes:
    """The sizes of the first `count` sequences, in equal parts of all blends if there are several.

    At most `at_once` sequences are made at a time, so that the cache of a store needs no more room than training.
    """
    starts = [blend.start for blend in rows.blends] or [0]
    sizes = list[RowSizes]()
    for number, start in enumerate(starts):
        part = rank_slice(max(count, len(starts)), number, len(starts))
        stop = start + part.stop - part.start
        for first in range(start, stop, at_once):
            sizes.append(RowSizes.of(rows.batch_at(first, min(first + at_once, stop))))
        rows.release_shards()
    return RowSizes.join(sizes)
