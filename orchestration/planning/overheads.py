"""Overheads of an implementation beyond a roofline: attention, heads, unpadding, launches, small kernels.

The overheads of Sesame were measured on one GPU: the profile of BERT base with 512 tokens, and the steps of
timed_steps.py. They predict these steps with an error of at most 25 %. Costs of memory traffic and of matrix products
scale with the speed of the device. Measure them again after a change that makes the step faster. `ROOFLINE` is for runs
of other implementations; its values are not fitted to measurements.

All steps were measured with the code of that day: DeepSpeed also for a single worker, unpadded micro-batches of any
shape, blocks that are not compiled, and slices of 2^23 logits (2^28 in the steps with `_LARGE`, which were not used for
the calibration). `SESAME` has these overheads, but the slices of today. Nothing is calibrated yet for flat parameters
without DeepSpeed, compiled blocks, fixed shapes, and attention kernels for sequences of any length with dropout. So a
single GPU is probably faster than predicted.
"""

from dataclasses import dataclass
from typing import Final

from orchestration.planning.devices import Device

UNCALIBRATED: Final = (
    "time: calibrated before single GPUs had compiled blocks, fixed shapes and an engine without DeepSpeed; a run is "
    "probably faster"
)
CALIBRATED: Final = "calibrated on one NVIDIA H200 in bf16, 2026-11-26 (`sesame plan --published`)"


@dataclass(frozen=True)
class Overheads:
    """Overheads of one implementation on one kind of device."""

    # Fraction of the peak that attention reaches in 16 bits; 0: the same fraction as other products. With attention
    # dropout, the padded kernel is used, and without it the kernel for sequences of any length.
    attention_dropped: float = 0.0
    attention: float = 0.0
    # Elements per token and hidden unit that go through memory to pad tokens for attention and to unpad them again.
    # These are copies, and slow sums of gradients by index.
    spreading: float = 0.0
    of_logits: float = 0.0  # float32 elements that go through memory per logit
    of_table: float = 0.0  # number of times that the token table goes through memory in float32 per slice of logits
    slice_launches: int = 0  # operations per slice
    logits_at_once: int = 0  # logits per slice; 0: those of the device (count_logits_at_once)
    block_launches: int = 45  # operations per block, forward and backward
    launch_s: float = 0.0  # seconds of the host between the starts of two operations; 0: the value of the device

    # Seconds per weight tensor in kernels that are too small to be limited by memory: per micro-batch (to collect its
    # gradients), and per update.
    tensor_micro_s: float = 0.0
    tensor_update_s: float = 0.0


TENSORS: Final = 12  # tensors of a block: four linear layers and two norms, with their biases
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
    """The overheads of Sesame on a device. CPUs have none, because their speed is measured on the machine itself."""
    return SESAME if device.kind == "cuda" else ROOFLINE
