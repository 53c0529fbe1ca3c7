"""The numbers that all workers add up once per step, before the forward pass."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import islice

import numpy as np

from preprocessing.fixed_shapes import real_lengths
from preprocessing.schema import Batch
from training.losses import Loss
from training.meter import BatchWork
from training.saver import SaverVotes
from training.workers import Workers


@dataclass(frozen=True)
class StepWork:
    """Numbers of one step: those of one worker, or their sums over all workers."""

    stop_requests: int  # workers that must stop before this step
    votes: SaverVotes
    work: BatchWork
    targets: dict[str, int]  # number of targets by kind of loss

    def sum_over(self, workers: Workers) -> "StepWork":
        """The sums over all workers. All workers must call it."""
        return self._unpack(workers.reduce_sums(self._pack()))

    def _pack(self) -> list[float]:
        """All numbers, in the order of the fields."""
        return [self.stop_requests, *self.votes, *astuple(self.work), *self.targets.values()]

    def _unpack(self, values: Sequence[float]) -> "StepWork":
        """The inverse of `_pack`; `targets` gets the kinds of this object."""
        numbers = (int(value) for value in values)
        return StepWork(
            stop_requests=next(numbers),
            votes=SaverVotes(*islice(numbers, len(SaverVotes._fields))),
            work=BatchWork(*islice(numbers, len(fields(BatchWork)))),
            targets=dict(zip(self.targets, numbers, strict=True)),
        )


def measure_step(
    losses: Sequence[Loss], batches: Sequence[Batch], *, is_counted: bool, stop: bool = False, votes: SaverVotes
) -> StepWork:
    """The numbers of this worker for its micro-batches of a step.

    If `is_counted` is False, another worker counts the same sequences, so that work and targets are 0 here.
    """
    if is_counted:
        targets: dict[str, int] = {loss.kind: sum(loss.count(batch) for batch in batches) for loss in losses}
        work = _measure_work(batches, sum(targets[loss.kind] for loss in losses if loss.names_tokens))
    else:
        targets = dict.fromkeys((loss.kind for loss in losses), 0)
        work = BatchWork(tokens=0, squares=0, targets=0)
    return StepWork(stop_requests=int(stop), votes=votes, work=work, targets=targets)


def _measure_work(batches: Sequence[Batch], targets: int) -> BatchWork:
    """The work of this worker's batches. `targets` is the number of states that are projected to the vocabulary."""
    length_B = np.concatenate([real_lengths(batch) for batch in batches])
    source_B = np.zeros_like(length_B)
    if "source_lengths" in batches[0]:
        source_B = np.concatenate([real_lengths(batch, "source_") for batch in batches])
    return BatchWork(
        tokens=int(length_B.sum()),
        squares=int((length_B**2).sum()),
        targets=targets,
        source_tokens=int(source_B.sum()),
        source_squares=int((source_B**2).sum()),
        crossed=int((length_B * source_B).sum()),
    )
