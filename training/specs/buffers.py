"""Sizes in elements of buffers in training, which plans count, too. This module does not import torch."""

from typing import Final

LOGITS_AT_ONCE: Final = 1 << 23  # logits in memory at a time on a CPU (training/losses/heads): 32 MB of float32
LOGIT_BYTES: Final = 12  # memory of a logit on a GPU: twice in 16 bits, and in float32 for the softmax and its gradient
LOGITS_SHARE: Final = 24  # logits have at most this fraction (1 / 24) of the memory of a GPU
TABLE_ROWS: Final = 128  # on a GPU, the rows of the token table in a product are a multiple of this: a tile


def count_logits_at_once(device_memory: float) -> int:
    """Number of logits in memory at a time on a device; 0 bytes: a CPU.

    It depends on the total memory of a GPU, not on the free memory, so that the order of sums is that of other runs.

    >>> [count_logits_at_once(memory).bit_length() - 1 for memory in (0, 16e9, 80e9, 141e9)]
    [23, 25, 28, 28]
    """
    if not device_memory:
        return LOGITS_AT_ONCE
    return max(LOGITS_AT_ONCE, 1 << (int(device_memory / LOGITS_SHARE / LOGIT_BYTES).bit_length() - 1))


BUCKET: Final = 50_000_000  # gradients per reduction of ZeRO; the buffer has this size even for a tiny model
PREFETCH: Final = 50_000_000  # ZeRO-3: weights that are gathered ahead of their layers
LIVE: Final = 1_000_000_000  # ZeRO-3: maximum number of gathered weights at a time
