"""Exchanges between workers that have no engine yet, for example before all of them load the same checkpoint."""

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import distributed


class Workers(Protocol):
    """All workers of a run, which must make the same calls in the same order. Engines implement this protocol, too."""

    rank: int
    world: int

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        """Sums over all workers, in float64."""


class SingleWorker:
    """A single worker, which exchanges nothing."""

    rank, world = 0, 1

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]


ALONE: Final = SingleWorker()


class ConnectedWorkers:
    """All workers of the process group that `engines.connect` has joined."""

    def __init__(self) -> None:
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self._device = "cuda" if "nccl" in distributed.get_backend() else "cpu"

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64, device=self._device)
        distributed.all_reduce(sums)
        return sums.tolist()


def all_workers() -> Workers:
    """All workers of the process group, or a single worker if this process has joined no group."""
    return ConnectedWorkers() if distributed.is_available() and distributed.is_initialized() else ALONE
