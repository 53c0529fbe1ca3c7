"""Sizes of buffers, in elements, that training takes and plans count. No torch in here."""

from typing import Final

LOGITS_AT_ONCE: Final = 1 << 23  # of logits that are there at once (training/losses/heads): 32 MB of float32
BUCKET: Final = 50_000_000  # of gradients that ZeRO reduces at once; its buffer is that large even for a tiny net
PREFETCH: Final = 50_000_000  # ZeRO-3: of weights that are gathered ahead of their layers
LIVE: Final = 1_000_000_000  # ZeRO-3: of weights that are whole at the same time
