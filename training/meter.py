"""Throughput of a run: tokens per second without padding, seconds per step, and model FLOPs utilization."""

import re
from collections.abc import Mapping
from time import perf_counter
from typing import Final

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


class Meter:
    """Adds up steps between two reports. The time includes waiting for batches, but not the time before `skip`."""

    def __init__(self, trunk: Architecture, vocab_size: int, peak: float | None) -> None:
        """`peak` is the FLOP/s of all devices together; None if it is unknown."""
        self.trunk, self.vocab_size, self.peak = trunk, vocab_size, peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        self.since = perf_counter()

    def skip(self) -> None:
        """Exclude the time since the last step, for example after an evaluation or a checkpoint."""
        self.since = perf_counter()

    def add(self, work: BatchWork) -> None:
        """Count a completed step."""
        now = perf_counter()
        self.seconds += now - self.since
        self.since = now
        self.steps += 1
        self.tokens += work.read
        self.flops += flops(self.trunk, self.vocab_size, work)

    def report(self) -> dict[str, float]:
        """Means over the steps since the last report: tokens/s, s/step, and MFU if the peak is known."""
        seconds = max(self.seconds, 1e-9)
        values = {"perf/tokens_per_second": self.tokens / seconds, "perf/step_time_s": seconds / max(self.steps, 1)}
        if self.peak:
            values["perf/mfu"] = self.flops / seconds / self.peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        return values
