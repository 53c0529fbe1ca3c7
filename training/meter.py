"""Throughput of a run: tokens per second without padding, seconds per step, model FLOPs utilization, and how often
training waited for batches, or the GPU for the host."""

import re
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, Protocol

from training.specs import Architecture, BatchWork

PEAK_BF16: Final[Mapping[str, float]] = {  # dense FLOP/s: half of the values with sparsity in the data sheets of NVIDIA
    "B200": 2250e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,  # SXM
    "A100": 312e12,
    "A40": 149.7e12,
    "A30": 165e12,
    "L40S": 362e12,
    "L4": 121e12,
}


def peak(device_name: str) -> float | None:
    """Dense bf16 FLOP/s of a device, by its name in torch; None for unknown devices.

    >>> peak("NVIDIA H100 80GB HBM3"), peak("NVIDIA H100 PCIe"), peak("NVIDIA A10G")
    (989000000000000.0, 756000000000000.0, None)
    """
    return next((flops for name, flops in PEAK_BF16.items() if re.search(rf"\b{name}\b", device_name)), None)


def flops(trunk: Architecture, vocab_size: int, work: BatchWork) -> float:
    """FLOPs of one forward and backward pass, counted as in arXiv:2104.04473.

    A token costs 6 FLOPs per weight. An attended pair costs 12 FLOPs per element and layer. Bidirectional
    attention has twice the pairs of causal attention. GPT-2 small costs 0.8 GFLOP per token at 1,024 tokens:

    >>> from training.specs import Decoder
    >>> gpt2 = Decoder(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)
    >>> round(flops(gpt2, 50257, BatchWork(tokens=1024, squares=1024**2, targets=1023)) / 1024 / 1e9, 3)
    0.798

    The layers of a head before the token table are not counted.
    """
    return 6 * (trunk.answers(vocab_size) * trunk.table_width * work.targets + trunk.products(work))


class DeviceEvent(Protocol):
    """A mark in the work of a device: the part of `torch.cuda.Event` that HostBoundProbe needs."""

    def record(self) -> None:
        """Put the mark behind all work that was launched so far."""

    def query(self) -> bool:
        """Whether the device has completed this work. It does not wait."""


class DataWait:
    """Adds up the time in which a step waits for its batches: the phase "data" of training/profiler.py."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def begin(self, phase: str) -> None:
        if phase == "data":
            self._since = perf_counter()

    def end(self, phase: str) -> None:
        if phase == "data":
            self.seconds += perf_counter() - self._since


class HostBoundProbe:
    """Counts how often the device has no work left when the host begins to launch more.

    At the end of each phase that launches kernels, the host marks the work of the device. At the start of the next
    such phase, it asks whether the device has passed the mark. Neither call waits for the device.
    """

    def __init__(self, make_event: Callable[[], DeviceEvent]) -> None:
        self.probes, self.idle = 0, 0
        self._make_event = make_event
        self._event: DeviceEvent | None = None  # made at the first mark, because the engine selects the device
        self._is_marked = False

    def begin(self, phase: str) -> None:
        if phase != "data" and self._is_marked and self._event:
            self.probes += 1
            self.idle += self._event.query()

    def end(self, phase: str) -> None:
        if phase != "data":
            self._event = self._event or self._make_event()
            self._event.record()
            self._is_marked = True

    def skip(self) -> None:
        """Do not compare the next phase with the last one, because other work was in between."""
        self._is_marked = False


class Meter:
    """Adds up steps between two reports. The time includes waiting for batches, but not the time before `skip`.

    `observers` must receive the phases of the training loop.
    """

    def __init__(
        self, trunk: Architecture, vocab_size: int, peak: float | None, probe: HostBoundProbe | None = None
    ) -> None:
        """`peak` is the FLOP/s of all devices together; None if it is unknown. A CPU has no `probe`."""
        self.trunk, self.vocab_size, self.peak = trunk, vocab_size, peak
        self.data_wait, self.probe = DataWait(), probe
        self.observers = (self.data_wait, probe) if probe else (self.data_wait,)
        self.since = perf_counter()
        self._clear()
        self._skip_phases()

    def skip(self) -> None:
        """Exclude the time since the last step, for example after an evaluation or a checkpoint."""
        self.since = perf_counter()
        self._skip_phases()

    def add(self, work: BatchWork) -> None:
        """Count a completed step."""
        now = perf_counter()
        self.seconds += now - self.since
        self.since = now
        self.steps += 1
        self.tokens += work.read
        self.flops += flops(self.trunk, self.vocab_size, work)
        self.waited_s += self.data_wait.seconds
        self.data_wait.seconds = 0.0
        if self.probe:
            self.probes += self.probe.probes
            self.idle += self.probe.idle
            self.probe.probes = self.probe.idle = 0

    def report(self) -> dict[str, float]:
        """Means over the steps since the last report.

        MFU needs a known peak, and the fraction of probes in which the device had no work needs a GPU.
        """
        seconds = max(self.seconds, 1e-9)
        values = {
            "perf/tokens_per_second": self.tokens / seconds,
            "perf/step_time_s": seconds / max(self.steps, 1),
            "perf/data_wait": min(self.waited_s / seconds, 1.0),
        }
        if self.peak:
            values["perf/mfu"] = self.flops / seconds / self.peak
        if self.probes:
            values["perf/host_bound"] = self.idle / self.probes
        self._clear()
        return values

    def _clear(self) -> None:
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        self.waited_s, self.probes, self.idle = 0.0, 0, 0

    def _skip_phases(self) -> None:
        """Forget the phases since the last step."""
        self.data_wait.seconds = 0.0
        if self.probe:
            self.probe.probes = self.probe.idle = 0
            self.probe.skip()
