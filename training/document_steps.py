"""Find the steps and sequences of a training that contain tokens of a document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from preprocessing.find_rows import DocumentPlace
from preprocessing.schema import Ints
from training.data import Loader


@dataclass(frozen=True)
class DocumentSteps:
    """K token ranges of a document, and the sequences of a training that contain them, in order; all int64.

    Sequence `row_K` of the batch of step `step_K` (both from 0) contains the tokens [`start_K`, `stop_K`) of the
    document, in epoch `epoch_K` of its text. A sequence with several ranges occurs once for each.
    """

    step_K: Ints
    row_K: Ints
    epoch_K: Ints
    start_K: Ints
    stop_K: Ints


def find_steps(
    loader: Loader, documents: Sequence[DocumentPlace], steps: range, report: Callable[[int], None] = lambda step: None
) -> list[DocumentSteps]:
    """For each document of the store of `loader`, the sequences of `steps` that contain tokens of it.

    No step is enumerated: the time depends on the number of epochs, because packing may plan each of them anew.
    `report` is called with the number of steps that are done.
    """
    parts = [list[Ints]([np.zeros((5, 0), np.int64)]) for _ in documents]
    first = 0
    for phase in loader.phases:
        here = range(max(first, steps.start), min(first + phase.steps, steps.stop))
        if here:
            report_here = partial(_report_steps, report, here, here.start - steps.start)
            for of_document, found in zip(parts, _find_in_phase(loader, documents, here, report_here), strict=True):
                of_document.append(found)
        first += phase.steps
    return [DocumentSteps(*np.concatenate(of_document, axis=1)) for of_document in parts]


def _report_steps(report: Callable[[int], None], steps: range, before: int, share: float) -> None:
    """Report the steps that are done, if this share of `steps` is, after `before` others."""
    report(before + int(share * len(steps)))


def _find_in_phase(
    loader: Loader, documents: Sequence[DocumentPlace], steps: range, report: Callable[[float], None]
) -> list[Ints]:
    """Step, sequence, epoch, start and stop of each range in consecutive steps of one phase, int64 [5, K] each."""
    phase, first = loader.place_of(steps.start)
    rows, size = loader.rows_by_length[phase.seq_length], phase.global_batch_size
    positions = range(loader.positions(steps.start).start, loader.positions(steps[-1]).stop)
    parts = []
    for found in rows.find_documents(documents, positions, size if loader.is_ordered else 0, report):
        if phase.batch_unit == "token":
            token_K = rows.count_tokens_before(found.position_K) - first * phase.seq_length
            step_K = steps.start + token_K // (size * phase.seq_length)
            start_of = {step: loader.positions(step).start for step in np.unique(step_K).tolist()}
            row_K = found.position_K - np.array([start_of[step] for step in step_K.tolist()], np.int64)
        else:
            step_K, row_K = np.divmod(found.position_K - first, size)
            step_K += steps.start
        parts.append(np.stack([step_K, row_K, found.epoch_K, found.start_K, found.stop_K]))
    return parts
