"""The time that a worker itself spends on updates: preparing batches and forward passes, without waiting for others.

In the backward pass and in the update, workers wait for each other, so that all take as long as the slowest one. With
ZeRO-3 the forward pass gathers weights. Then the measured times of the workers differ less than their real speeds.
"""

from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


class ComputeTimer:
    """Adds up the compute time of the updates of this process."""

    def __init__(self) -> None:
        self.total_s, self.updates = 0.0, 0
        self._since_s = 0.0
        self._started: Any = None  # start of the current forward pass: a time, or an event of the GPU
        self._open: list[tuple[Any, Any]] = []  # events of forward passes that the GPU may not have finished

    def attach(self, model: "nn.Module", device: str) -> None:
        """Time the forward passes of this model in training mode."""
        before, after = (self._cuda_before, self._cuda_after) if device == "cuda" else (self._before, self._after)
        model.register_forward_pre_hook(before)
        model.register_forward_hook(after)

    def begin_data_wait(self) -> None:
        """Start the clock: an update has ended, and the loop requests the next batch."""
        self._since_s = perf_counter()

    def end_data_wait(self) -> None:
        """Stop the clock: the batch is ready."""
        self.total_s += perf_counter() - self._since_s
        self.updates += 1
        while self._open and self._open[0][1].query():  # only finished events, so that this call never waits
            start, end = self._open.pop(0)
            self.total_s += start.elapsed_time(end) / 1000

    def _before(self, model: "nn.Module", inputs: Any) -> None:
        self._started = perf_counter()

    def _after(self, model: "nn.Module", inputs: Any, outputs: Any) -> None:
        if model.training:
            self.total_s += perf_counter() - self._started

    def _cuda_before(self, model: "nn.Module", inputs: Any) -> None:
        self._started = _event()

    def _cuda_after(self, model: "nn.Module", inputs: Any, outputs: Any) -> None:
        if model.training:
            self._open.append((self._started, _event()))


def _event() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
