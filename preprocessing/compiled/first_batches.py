"""The gate between compiled batches and those of numpy: the first ones of a process are compared."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from preprocessing.collate import split_batch
from preprocessing.errors import SesameError
from preprocessing.row_plans import RowPlans
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Batch, Ints
from preprocessing.tokenization import Vocab

log = logging.getLogger(__name__)

COMPILING: Final = "compiling the kernels that make batches: about ten seconds, once on this machine"
_CHECKED_BATCHES: Final = 2
_CHECKED_ROWS: Final = 16  # of each; numpy makes them in a few milliseconds
_SLOW_S: Final = 1.0

Addresses = Ints
"""Epoch and sample of each sequence, int64 [B, 2]."""


class CompiledBatches(Protocol):
    """Makes the batch of any sequences of a dataset with kernels."""

    def will_compile(self) -> bool:
        """Whether the first batch takes seconds, because the cache has no machine code."""

    def make(self, address_B2: Addresses) -> Batch:
        """The unpadded batch of the sequences at these addresses."""


def open_batches(
    plans: RowPlans, sampling: ExampleSpec, vocab: Vocab, length: int, stream: Callable[[], Ints]
) -> CompiledBatches:
    """Import numba and the kernels, which takes 0.2 s, and make the tables of the text."""
    from preprocessing.compiled.batches import KernelBatches

    return KernelBatches(plans, sampling, vocab, length, stream)


class CheckedBatches:
    """Compiled batches, until one differs from that of numpy; from then on, `make` returns None.

    `open` returns the compiled batches. `oracle` makes the same batch with numpy.
    """

    def __init__(self, open: Callable[[], CompiledBatches], oracle: Callable[[Addresses], Batch]) -> None:
        self._open, self._oracle = open, oracle
        self._compiled: CompiledBatches | None = None
        self._num_checked, self._has_failed = 0, False

    def __reduce__(self) -> tuple[type["CheckedBatches"], tuple[Any, ...]]:
        return CheckedBatches, (self._open, self._oracle)  # addresses in memory are those of this process

    def close(self) -> None:
        """Forget all addresses of the text; the next batch makes new tables."""
        self._compiled = None

    def make(self, address_B2: Addresses) -> Batch | None:
        """The unpadded batch of the sequences at these addresses, or None if numpy must make it."""
        if self._has_failed:
            return None
        try:
            batch = self._make(address_B2)
            problem = self._find_difference(batch, address_B2)
            if not problem:
                return batch
        except SesameError:  # of the text or of its store
            raise
        except Exception as error:  # of the compiler, or of its cache
            problem = f"{type(error).__name__}: {error}"
        log.warning("compiled batches are not used, because of %s; numpy makes the same batches, slower", problem)
        self._has_failed, self._compiled = True, None
        return None

    def _make(self, address_B2: Addresses) -> Batch:
        if self._compiled is not None:
            return self._compiled.make(address_B2)
        start = time.perf_counter()
        self._compiled = self._open()
        if self._compiled.will_compile():
            log.warning(COMPILING)
        batch = self._compiled.make(address_B2)
        if (seconds := time.perf_counter() - start) > _SLOW_S:
            log.info("the first batch took %.1f s, with the compilation of its kernels", seconds)
        return batch

    def _find_difference(self, batch: Batch, address_B2: Addresses) -> str:
        """What differs from numpy's batch in the first sequences, or ""; only for the first batches."""
        if self._num_checked >= _CHECKED_BATCHES:
            return ""
        self._num_checked += 1
        count = min(_CHECKED_ROWS, len(address_B2))
        found, wanted = next(iter(split_batch(batch, [0, count]))), self._oracle(address_B2[:count])
        names = [name for name in {**wanted, **found} if not _are_equal(found.get(name), wanted.get(name))]
        return f"a difference in the columns {', '.join(names)}" if names else ""


def _are_equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and one.dtype == other.dtype and np.array_equal(one, other)
