"""What a step of a code costs beside a roofline: attention, heads, spreading, launches, small kernels.

Those of Sesame are measured on one GPU: the profile of BERT base with 512 tokens, and the steps of measured.py, which
they foretell within a quarter. What is a cost of memory or of products goes with the device's own speed. Whoever makes
the step faster measures them anew. Runs of other people's code are told by `ROOFLINE`, which is fitted to nothing.
"""

from dataclasses import dataclass
from typing import Final

from orchestration.planning.devices import Device

CALIBRATED: Final = "calibrated on one NVIDIA H200 in bf16, 2026-11-26 (`sesame plan --published`)"


@dataclass(frozen=True)
class Overheads:
    """Of one code on a kind of device."""

    # share of the peak that attention reaches in 16 bits: with dropout of its weights, which takes the padded kernel,
    # and without, by the kernel for rows of any length; 0: as other products
    attention_dropped: float = 0.0
    attention: float = 0.0
    # elements of a token and of the width that go through memory where unpadded tokens are spread to rectangles around
    # attention and back: copies, and sums of gradients by index, which are slow
    spreading: float = 0.0
    of_logits: float = 0.0  # float32 elements that go through memory for each logit
    of_table: float = 0.0  # times that the token table goes through memory in float32 for each slice of logits
    slice_launches: int = 0  # operations of a slice
    block_launches: int = 45  # of a block, forward and backward
    launch_s: float = 0.0  # of the host, from one operation to the next; 0: the device's own
    # seconds for each tensor of weights, in kernels too small to be told by the speed of memory: of a micro-batch,
    # whose gradients are collected, and of an update
    tensor_micro_s: float = 0.0
    tensor_update_s: float = 0.0


TENSORS: Final = 12  # of a block: four linears and two norms, with their biases
ROOFLINE: Final = Overheads()
SESAME: Final = Overheads(
    attention_dropped=0.14,
    attention=0.5,
    spreading=105,
    of_logits=10,
    of_table=16,
    slice_launches=10,
    block_launches=87,
    launch_s=10e-6,
    tensor_micro_s=90e-6,
    tensor_update_s=210e-6,
)


def sesame_overheads(device: Device) -> Overheads:
    """Those of Sesame on a device; CPUs, whose speed is measured where they are, have none beside it."""
    return SESAME if device.kind == "cuda" else ROOFLINE
