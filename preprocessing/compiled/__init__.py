"""Whole batches of training sequences in machine code (numba), equal to those of `ExampleDataset.row` in every bit.

Kernels for packing, masking and objective run one after the other over the concatenated sequences of a batch. Each
sequence has the generator of its address (epoch, sample), as with numpy. coverage.py says which examples have kernels.
numpy makes all others, and all examples if numba is not installed. first_batches.py compares the first batches of a
process with those of numpy.

Read batches.py first, then packing.py, masks.py and objectives.py; philox.py has the random generator. numba is
imported when a process makes its first batch.
"""

from preprocessing.compiled.coverage import explain_gap
from preprocessing.compiled.first_batches import COMPILING, CheckedBatches, CompiledBatches, open_batches

__all__ = ["COMPILING", "CheckedBatches", "CompiledBatches", "explain_gap", "open_batches"]
