"""What the loop asks of an engine, and what all engines share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from training.engines.fragments import MEMORY, CheckpointFragment, Fragments, whole
from training.engines.local_shards import Copy
from training.model import net_of
from training.profiler import record_phase
from training.score import Score

M = TypeVar("M", bound=nn.Module)
"""A model whose `trunk` is a Net, and which makes a Score of each of its losses: of pretraining, or of fine-tuning."""


@dataclass(frozen=True)
class StepResult:
    """The outcome of one optimiser step."""

    grad_norm: float  # global, of the raw gradient, before clipping
    skipped: bool  # True: the gradient was not finite and the weights are as they were
    overflow: bool = False  # True: the same, and the loss scale, which may have been too large, was lowered


class Engine(Protocol[M]):
    """Weights, their optimiser, and the other workers; every worker makes the same calls in the same order."""

    model: M
    rank: int  # of this worker, for files; the first one speaks for all
    world: int
    data_rank: int  # of those that read different rows; workers that share a net read the same ones
    data_world: int
    counts: bool  # whether this worker's rows count: of those that read the same ones one does, which has the scores
    zero: int | str  # the ZeRO stage, or "none"

    def forward(self, batch: Batch) -> dict[str, Score]:
        """Score of each loss on one micro-batch of this worker."""

    def scored(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        """Each of a step's micro-batches with its scores; the caller calls `backward` for each before it asks for the
        next one, if it learns. With a pipeline scores are zeros but at the last stage, and passes of several
        micro-batches overlap: one that is begun must be gone through."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`; the workers' gradients are averaged, at `step` at the latest."""

    def step(self, rate: float) -> StepResult:
        """Clip, update with learning rate `rate`, forget the gradient; a gradient that is not finite is skipped."""

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        """Sums over all workers, in float64."""

    def part(self, copy: Copy) -> CheckpointFragment:
        """What this worker writes of a checkpoint. `copy` is called before anything can change a tensor again."""

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        """Take over what workers of any number and ZeRO stage have written, and this worker's `memory`."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Names and weights, in float32 on the CPU, tied ones once, gathered one by one; none on every worker but the
        first. Every worker goes through all of them."""

    def full_state(self) -> dict[str, Tensor]:
        """The same all at once, for a net that one worker can hold."""


def score_micro_batches(
    forward: Callable[[Batch], dict[str, Score]], batches: Sequence[Batch]
) -> Iterator[tuple[Batch, dict[str, Score]]]:
    """What `scored` is where a worker has a whole net."""
    for batch in batches:
        with record_phase("forward"):
            scores = forward(batch)
        yield batch, scores


def memory_of(model: nn.Module) -> dict[str, Tensor]:
    """What this worker's micro-batches go on from, where the net has a memory, by keys for a file: without it, a run
    that resumes would begin its rows anew."""
    return {whole(MEMORY, name): tensor for name, tensor in net_of(model).memory_state().items()}


ON_HOST: Final = frozenset({"lengths", "source_lengths", "slot", "fresh", "next_sentence_label"})
"""Columns whose numbers are read: from a device each reading would wait for all that it has to do."""


def to_tensors(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """The arrays of a batch as tensors on `device`, but for those `ON_HOST`; on a CPU they share their memory."""
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    return {name: x if name in ON_HOST else x.to(device, non_blocking=True) for name, x in tensors.items()}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, times the `scale` of each group, where it has one."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)
