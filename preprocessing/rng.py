"""Counter-based random numbers: they depend only on (seed, purpose, epoch, sample), so any process can repeat them.

The generator is Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Two words of its counter
are the sample and the epoch; the other two count the blocks that were drawn. So the streams of two addresses (epoch,
sample) never overlap.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

_PURPOSES: Final = {  # the numbers are part of every seed: append new ones, never change a number
    "order": 0,  # the order of samples
    "segment": 1,  # segment pairs: target lengths, second segments, labels
    "masking": 2,  # masking and objective
    "weights": 3,
    "dropout": 4,
    "task": 5,
}


@dataclass(frozen=True)
class RandomKey:
    """A 128-bit key, unique for each (seed, purpose); `at` returns the generator of an address (epoch, sample)."""

    bits: int

    def at(self, epoch: int, sample: int) -> np.random.Generator:
        """The generator of this address. It returns the same bits on every machine, independent of all other draws.

        >>> masking = key(seed=0, purpose="masking")
        >>> masking.at(epoch=3, sample=7).integers(1000, size=4).tolist()
        [1, 46, 662, 620]
        """
        return np.random.Generator(np.random.Philox(key=self.bits, counter=[0, 0, sample, epoch]))


def key(seed: int, purpose: str) -> RandomKey:
    """The key of a seed (0 or more) and a purpose; KeyError for a purpose that is not in the table."""
    low, high = np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose],)).generate_state(2, np.uint64)
    return RandomKey(bits=int(high) << 64 | int(low))
