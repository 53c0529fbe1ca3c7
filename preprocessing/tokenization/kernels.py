"""What the kernels of the training share."""

from typing import Any

import numpy as np

from preprocessing.jit import kernel


@kernel
def grow(array: Any, least: int) -> Any:
    """Return the array, or a copy of twice the length if it is shorter than `least`."""
    if len(array) >= least:
        return array
    longer = np.empty(2 * least, array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def scramble(hash: Any) -> Any:
    """Mix the bits of a uint64 (Stafford's 13th variant of the finalizer of MurmurHash3)."""
    hash = (hash ^ (hash >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hash = (hash ^ (hash >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hash ^ (hash >> np.uint64(31))
