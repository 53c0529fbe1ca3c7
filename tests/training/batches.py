"""Batches of random sequences, for tests of the model and not of the text."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from preprocessing import collate
from preprocessing.schema import IGNORE, Batch, Row


def random_rows(lengths: Sequence[int], vocab_size: int, seed: int = 0, rate: float = 0.4) -> list[Row]:
    """Sequences of these lengths with random ids, two segments, a pair label, and labels at a fraction `rate` of the
    tokens."""
    rng = np.random.default_rng(seed)
    return [
        {
            "input_ids": rng.integers(vocab_size, size=length),
            "token_type_ids": np.arange(length) * 2 // length,
            "labels": np.where(rng.random(length) < rate, rng.integers(vocab_size, size=length), IGNORE),
            "next_sentence_label": rng.integers(2),
        }
        for length in lengths
    ]


def collate_unpadded(rows: Sequence[Row]) -> dict[str, Tensor]:
    """The concatenated sequences, as tensors."""
    return tensors(collate.collate_unpadded(rows))


def collate_padded(rows: Sequence[Row], length: int, pad: int = 0) -> dict[str, Tensor]:
    """The sequences padded to `length`, as tensors."""
    return tensors(collate.collate_padded(rows, length, pad))


def tensors(batch: Batch) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in batch.items()}
