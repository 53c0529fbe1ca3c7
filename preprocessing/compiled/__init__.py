"""Whole batches of training sequences in machine code (numba), equal to those of `ExampleDataset.row` in every bit.

Kernels for packing, masking and objective run one after the other over the concatenated sequences of a batch. The
generator of a sequence is that of rng.py, so the address of randomness is the same. `coverage.py` says which examples
have kernels; all others, and all where numba is not installed, are made by numpy. `batches.py` compares the first
batches of a process with those of numpy.

Read batches.py first, then packing.py, masks.py and objectives.py; philox.py has the random generator. Only
batches.py imports numba, when it makes the first batch.
"""

from preprocessing.compiled.coverage import explain_gap
from preprocessing.compiled.first_batches import CheckedBatches, CompiledBatches, open_batches

__all__ = ["CheckedBatches", "CompiledBatches", "explain_gap", "open_batches"]
