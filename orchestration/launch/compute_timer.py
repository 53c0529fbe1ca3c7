"""What a worker spends itself on an update: preparing rows and forward passes, in which it waits for nobody.

In the backward pass and the update the workers wait for each other, so that all take as long as the slowest. With
ZeRO-3 the forward pass gathers weights, and the times of the workers are nearer to each other than they are.
"""

from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


class ComputeTimer:
    """Adds up the own time of the updates of this process."""

    def __init__(self) -> None:
        self.total_s, self.updates = 0.0, 0
        self._since_s = 0.0
        self._begun: Any = None  # when the forward pass began: a time, or an event of the GPU
        self._open: list[tuple[Any, Any]] = []  # events of forward passes that the GPU may not have done yet

    def of(self, model: "nn.Module", device: str) -> None:
        """Time the forward passes of this net, those of training."""
        before, after = (self._cuda_before, self._cuda_after) if device == "cuda" else (self._before, self._after)
        model.register_forward_pre_hook(before)
        model.register_forward_hook(after)

    def waits_for_rows(self) -> None:
        """An update has ended, and the rows of the next one are asked for."""
        self._since_s = perf_counter()

    def has_rows(self) -> None:
        """They are there."""
        self.total_s += perf_counter() - self._since_s
        self.updates += 1
        while self._open and self._open[0][1].query():  # so that nobody waits for the GPU
            begun, ended = self._open.pop(0)
            self.total_s += begun.elapsed_time(ended) / 1000

    def _before(self, model: "nn.Module", given: Any) -> None:
        self._begun = perf_counter()

    def _after(self, model: "nn.Module", given: Any, found: Any) -> None:
        if model.training:
            self.total_s += perf_counter() - self._begun

    def _cuda_before(self, model: "nn.Module", given: Any) -> None:
        self._begun = _event()

    def _cuda_after(self, model: "nn.Module", given: Any, found: Any) -> None:
        if model.training:
            self._open.append((self._begun, _event()))


def _event() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
