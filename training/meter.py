"""How fast a run is: real tokens per second, seconds per step, share of the device's peak that the model uses."""

import re
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from training.specs import Architecture, BatchWork

PEAK_BF16: Final[Mapping[str, float]] = {  # dense FLOP/s; NVIDIA data sheets, half of what they give with sparsity
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
    """Dense bf16 FLOP/s of a device by the name torch gives it; None where it is not known.

    >>> peak("NVIDIA H100 80GB HBM3"), peak("NVIDIA H100 PCIe"), peak("NVIDIA A10G")
    (989000000000000.0, 756000000000000.0, None)
    """
    return next((flops for name, flops in PEAK_BF16.items() if re.search(rf"\b{name}\b", device_name)), None)


def flops(trunk: Architecture, vocab_size: int, work: BatchWork) -> float:
    """FLOPs of a forward and a backward pass, as arXiv:2104.04473 counts: 6 per weight and token, 12 per attended pair.

    GPT-2 small at 1,024 tokens costs 0.8 GFLOP a token, and a bidirectional attention twice the pairs of a causal one:

    >>> from training.specs import Decoder
    >>> gpt2 = Decoder(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)
    >>> round(flops(gpt2, 50257, BatchWork(tokens=1024, squares=1024**2, targets=1023)) / 1024 / 1e9, 3)
    0.798

    What a head does before the token table is left out.
    """
    return 6 * (trunk.answers(vocab_size) * trunk.table_width * work.targets + trunk.products(work))


class Meter:
    """Adds up steps between two reports. The clock runs on while a step waits for its batch, not across `skip`."""

    def __init__(self, trunk: Architecture, vocab_size: int, peak: float | None) -> None:
        """`peak` is the FLOP/s of all devices together, None where it is not known."""
        self.trunk, self.vocab_size, self.peak = trunk, vocab_size, peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        self.since = perf_counter()

    def skip(self) -> None:
        """Do not count the time since the last step: it went to an evaluation or a checkpoint."""
        self.since = perf_counter()

    def add(self, work: BatchWork) -> None:
        """A step is finished."""
        now = perf_counter()
        self.seconds += now - self.since
        self.since = now
        self.steps += 1
        self.tokens += work.read
        self.flops += flops(self.trunk, self.vocab_size, work)

    def report(self) -> dict[str, float]:
        """Means over the steps since the last report: tokens/s, s/step, and MFU where the peak is known."""
        seconds = max(self.seconds, 1e-9)
        values = {"perf/tokens_per_second": self.tokens / seconds, "perf/step_time_s": seconds / max(self.steps, 1)}
        if self.peak:
            values["perf/mfu"] = self.flops / seconds / self.peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        return values
