"""What the loop asks of an engine, and what all engines share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import safetensors.torch
import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from training.model import net_of
from training.score import Score

M = TypeVar("M", bound=nn.Module)
"""A model whose `trunk` is a Net, and which makes a Score of each of its losses: of pretraining, or of fine-tuning."""


@dataclass(frozen=True)
class StepResult:
    """The outcome of one optimiser step."""

    grad_norm: float  # global, of the raw gradient, before clipping
    skipped: bool  # True: the gradient was not finite and the weights are as they were


class Engine(Protocol[M]):
    """Weights, their optimiser, and the other workers; every worker makes the same calls in the same order."""

    model: M
    rank: int  # of this worker, for files; the first one speaks for all
    world: int
    data_rank: int  # of those that read different rows; workers that share a net read the same ones
    data_world: int
    counts: bool  # whether this worker's rows count: of those that read the same ones the first does
    zero: int | str  # what its checkpoints depend on: the ZeRO stage, or "none"

    def forward(self, batch: Batch) -> dict[str, Score]:
        """Score of each loss on one micro-batch of this worker."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`; the workers' gradients are averaged, at `step` at the latest."""

    def step(self, rate: float) -> StepResult:
        """Clip, update with learning rate `rate`, forget the gradient; a gradient that is not finite is skipped."""

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        """Sums over all workers, in float64."""

    def save(self, folder: Path) -> None:
        """Write this worker's part of weights and optimiser state into an empty folder."""

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote."""

    def full_state(self) -> dict[str, Tensor]:
        """All weights by name in float32 on the CPU, tied ones once; empty on every worker but the first."""


def save_memory(model: nn.Module, folder: Path, rank: int) -> None:
    """Write what this worker's micro-batches go on from, where the net has a memory: without it, a run that resumes
    would begin its rows anew."""
    if state := net_of(model).memory_state():
        safetensors.torch.save_file(state, folder / _memory_file(rank))


def load_memory(model: nn.Module, folder: Path, rank: int, device: torch.device) -> None:
    """Take over what `save_memory` wrote."""
    file = folder / _memory_file(rank)
    net_of(model).load_memory_state(safetensors.torch.load_file(file) if file.exists() else {}, device)


def _memory_file(rank: int) -> str:
    return f"memory-{rank}.safetensors"


def to_tensors(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """The arrays of a batch as tensors on `device`; on a CPU they share their memory."""
    return {name: torch.from_numpy(array).to(device, non_blocking=True) for name, array in batch.items()}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, times the `scale` of each group, where it has one."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)
