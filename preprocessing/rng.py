"""Randomness is an address, not a stream: the draws of (seed, purpose, epoch, sample) can be made again anywhere.

Philox is a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): two of its
counter words name the sample and the epoch, the other two count the blocks drawn there, so addresses never overlap.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

_PURPOSES: Final = {  # numbers are part of every seed: add at the end, never renumber
    "order": 0,  # which sample stands at which position
    "segment": 1,  # pairs: targets, partners, labels
    "masking": 2,  # masking and objective
    "weights": 3,
    "dropout": 4,
    "task": 5,
}


@dataclass(frozen=True)
class RandomKey:
    """The 128 bits that tell one (seed, purpose) from all others; `at` gives the generator of one address."""

    bits: int

    def at(self, epoch: int, sample: int) -> np.random.Generator:
        """Generator of this address; the same bits on every machine, whatever was drawn elsewhere.

        >>> masking = key(seed=0, purpose="masking")
        >>> masking.at(epoch=3, sample=7).integers(1000, size=4).tolist()
        [1, 46, 662, 620]
        """
        return np.random.Generator(np.random.Philox(key=self.bits, counter=[0, 0, sample, epoch]))


def key(seed: int, purpose: str) -> RandomKey:
    """Key of a purpose under a seed (from 0 up); the purposes are a fixed table: another name is a KeyError."""
    low, high = np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose],)).generate_state(2, np.uint64)
    return RandomKey(bits=int(high) << 64 | int(low))
