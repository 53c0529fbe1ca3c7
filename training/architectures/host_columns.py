"""Columns of a batch that the host reads. On a device, each read would wait until the device has finished its work."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class DeviceBatch(dict[str, Tensor]):
    """The tensors of a batch on a device, and `host`, the arrays from which they were copied."""

    def __init__(self, tensors: Mapping[str, Tensor], host: Mapping[str, np.ndarray]) -> None:
        super().__init__(tensors)
        self.host = host


def host_of(batch: Mapping[str, Tensor], name: str) -> npt.NDArray[Any]:
    """A column of a batch as an array on the host.

    It waits for the device only if the batch is not a `DeviceBatch` and the column is on a device.

    >>> host_of({"lengths": torch.tensor([3, 2])}, "lengths").max()
    np.int64(3)
    """
    column: npt.NDArray[Any] = batch.host[name] if isinstance(batch, DeviceBatch) else batch[name].cpu().numpy()
    return column


def copy_to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array that the host has computed from columns of a batch to the device. The host does not wait for it.

    >>> copy_to_device(np.arange(3), torch.device("cpu"))
    tensor([0, 1, 2])
    """
    on_host = torch.from_numpy(array)
    return on_host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else on_host.to(device)
