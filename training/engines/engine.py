"""The protocol between the training loop and an engine, and functions that all engines share."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from training.engines.fragments import MEMORY, CheckpointFragment, Fragments, whole
from training.engines.local_shards import Copy
from training.engines.upload import AHEAD, Uploader
from training.model import net_of
from training.profiler import record_phase
from training.score import Score

M = TypeVar("M", bound=nn.Module)
"""A model for pretraining or fine-tuning. Its `trunk` is a Backbone, and it computes a Score for each of its losses."""


class StepResult:
    """The result of one optimizer step. The first access to its numbers waits for the device if they are there.

    >>> StepResult(float("inf")).skipped, StepResult(torch.tensor(2.0)).grad_norm
    (True, 2.0)
    """

    overflow: bool  # True: the step was skipped, and the loss scale was lowered because it may be too large

    def __init__(self, grad_norm: float | Tensor, skipped: bool | None = None, overflow: bool = False) -> None:
        """`skipped` None: the step was skipped if the norm is not finite."""
        self._norm, self._skipped, self.overflow = grad_norm, skipped, overflow

    @property
    def grad_norm(self) -> float:
        """Global norm of the gradient before clipping."""
        self._norm = float(self._norm)
        return self._norm

    @property
    def skipped(self) -> bool:
        """Whether the gradient was not finite, so that the weights are unchanged."""
        return not math.isfinite(self.grad_norm) if self._skipped is None else self._skipped


class Engine(Protocol[M]):
    """Manages the weights and the optimizer of a worker. All workers call the same methods in the same order."""

    model: M
    rank: int  # rank of this worker, which names its files; rank 0 reports for all workers
    world: int  # number of workers
    data_rank: int  # rank among the groups that read different data; workers that share a model read the same data
    data_world: int  # number of groups that read different data
    counts: bool  # whether this worker's scores count: True for one worker of each group, which has the scores
    zero: int | str  # the ZeRO stage, or "none"

    def forward(self, batch: Batch) -> dict[str, Score]:
        """Compute the score of each loss on one micro-batch of this worker."""

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        """Iterate over the micro-batches of a step and their scores.

        In training, the caller calls `backward` for each micro-batch before it requests the next one. With a pipeline,
        scores are 0 except at the last stage, and the passes of several micro-batches overlap: the caller must exhaust
        the iterator.
        """

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`; gradients are averaged over the workers now or in `step`."""

    def step(self, rate: float) -> StepResult:
        """Clip the gradient, update the weights with the learning rate `rate`, and clear the gradient.

        If the gradient is not finite, the update is skipped.
        """

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all workers, in float64."""

    def part(self, copy: Copy) -> CheckpointFragment:
        """This worker's part of a checkpoint. `copy` copies each tensor before the next update can change it."""

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        """Load a checkpoint, written by any number of workers with any ZeRO stage, and this worker's `memory`."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and weights, in float32 on the CPU, and gather one weight at a time.

        A tied weight occurs once. Only the first worker receives weights, but every worker must exhaust the iterator.
        """

    def full_state(self) -> dict[str, Tensor]:
        """All weights by name, for a model that fits in the memory of one worker."""


def score_micro_batches(
    forward: Callable[[Batch], dict[str, Score]], uploader: Uploader, batches: Sequence[Batch]
) -> Iterator[tuple[Batch, dict[str, Score]]]:
    """Implement `Engine.iterate_scores` for a worker that has all layers."""
    for number, batch in enumerate(batches):
        for following in batches[number : number + AHEAD]:
            uploader.begin(following)
        with record_phase("forward"):
            scores = forward(batch)
        yield batch, scores


def memory_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's memory of this worker's micro-batches, by keys for a checkpoint file; empty without a memory.

    Without these tensors, a resumed run would start all sequences with an empty memory.
    """
    return {whole(MEMORY, name): tensor for name, tensor in net_of(model).memory_state().items()}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step, multiplied by the `scale` of a group if it has one."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)
