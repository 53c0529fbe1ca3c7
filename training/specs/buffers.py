"""Sizes in elements of buffers in training, which plans count, too. This module does not import torch."""

from typing import Final

LOGITS_AT_ONCE: Final = 1 << 23  # logits in memory at a time (training/losses/heads): 32 MB of float32
BUCKET: Final = 50_000_000  # gradients per reduction of ZeRO; the buffer has this size even for a tiny model
PREFETCH: Final = 50_000_000  # ZeRO-3: weights that are gathered ahead of their layers
LIVE: Final = 1_000_000_000  # ZeRO-3: maximum number of gathered weights at a time
