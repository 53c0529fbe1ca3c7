"""Columns of a batch that the host reads. On a device, each read would wait until the device has finished its work."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor


class DeviceBatch(dict[str, Tensor]):
    """The tensors of a batch on a device, and `host`, the arrays from which they were copied."""

    def __init__(self, tensors: Mapping[str, Tensor], host: Mapping[str, np.ndarray]) -> None:
        super().__init__(tensors)
        self.host = host


def host_of(batch: Mapping[str, Tensor], name: str) -> npt.NDArray[Any]:
    """A column of a batch as an array on the host.

    It waits for the device only if the batch is not a `DeviceBatch` and the column is on a device.

    >>> import torch
    >>> host_of({"lengths": torch.tensor([3, 2])}, "lengths").max()
    np.int64(3)
    """
    column: npt.NDArray[Any] = batch.host[name] if isinstance(batch, DeviceBatch) else batch[name].cpu().numpy()
    return column
