"""The process of golden losses: it multiplies and adds alike on every processor with AVX2, of one maker.

MKL and torch choose their kernels by the processor, when they are first called; with AVX-512 and AMX these add in
another order, and twenty steps make of the last digit of a float a difference in the third (`electra_large` samples
another token). Intel's and AMD's still differ, for two of 53 nets by that much (test_golden.py). Three other tests fail
with these variables, so that the process of the tests is left without them.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

KERNELS = {"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}


@contextmanager
def alike_everywhere() -> Iterator[ProcessPoolExecutor]:
    """A process that runs what is submitted to it, one call after the other."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn, initializer=_choose_kernels) as process:
        yield process


def _choose_kernels() -> None:
    """Comes before torch is imported: the first call that is submitted imports it."""
    os.environ.update(KERNELS)
