"""Constant tensors, kept on their device: a new one in each forward pass is a copy that the host waits for."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def constant(numbers: Sequence[float], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of these numbers. Do not change it: other calls with the same numbers return the same tensor.

    `dtype` None: int64 for integers, otherwise float32.

    >>> constant([1, 2], torch.device("cpu"))
    tensor([1, 2])
    >>> constant([1, 2], torch.device("cpu")) is constant([1, 2], torch.device("cpu"))
    True
    """
    is_integer = all(isinstance(number, int) for number in numbers)
    return _make(tuple(numbers), device, dtype or (torch.int64 if is_integer else torch.float32))


@lru_cache(maxsize=1024)
def _make(numbers: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(mode=False):  # a tensor of inference cannot be used in training
        return torch.tensor(numbers, dtype=dtype, device=device)
