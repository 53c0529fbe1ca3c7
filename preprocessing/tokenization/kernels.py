"""The decorator of compiled kernels, and what all of them share. Only the kernels import numba.

numba stores machine code beside the source, or in the user's cache directory if it cannot write there. If it can write
to neither, each process compiles again.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from numba.core.errors import NumbaError

_SOURCES: Final = [Path(__file__).with_name(f"{name}.py") for name in ("kernels", "merges", "word_kernels")]
_STAMP: Final = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).digest()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, without Python objects and without the global interpreter lock."""
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
        # numba compares only the file of the function, but a kernel contains functions of other files too
        compiled._cache._cache_file._source_stamp = _STAMP
    except (RuntimeError, AttributeError, NumbaError):  # no directory to write to, or another version of numba
        compiled = numba.njit(nogil=True)(function)
    return compiled


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
