"""Devices: memory, arithmetic speed, connections, and price per hour.

Numbers are from data sheets; host memory is that of typical machines. `reach` is the fraction of the peak that large
matrix products reach. Prices are rates at which these devices were rented. `reach` and prices are estimates; a cluster
file can set its own price.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from time import process_time
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from orchestration.gpus import list_gpus
from preprocessing import limits
from preprocessing.errors import BadInput
from training.meter import PEAK_BF16, peak

GB, TERA = 1e9, 1e12
HERE: Final = "this machine"


@dataclass(frozen=True)
class Device:
    """One accelerator, or one core of a CPU. Units: bytes, seconds, FLOP/s of dense 16-bit products, US dollars."""

    name: str
    memory: float  # bytes
    flops: float  # peak FLOP/s of 16-bit matrix products
    flops_fp32: float  # peak FLOP/s of float32 matrix products; training does not enable TF32
    reach: float  # fraction of `flops` that large products reach
    bandwidth: float  # bytes/s of the device memory
    link: float  # bytes/s in one direction to the other devices of the node
    network: float  # bytes/s in one direction to other nodes
    per_node: int
    host: float  # bytes of host memory per device
    price: float = 0.0  # US dollars per device and hour
    kind: str = "cuda"  # cuda, cpu, or tpu (Sesame does not train on TPUs)
    launch_s: float = 5e-6  # minimum seconds between the starts of two operations, however small they are
    has_bf16: bool = True

    def peak(self, precision: str) -> float:
        """Peak FLOP/s in this precision."""
        return self.flops_fp32 if precision == "fp32" else self.flops


def _gpu(
    name: str,
    memory_gb: float,
    tflops: tuple[float, float],
    tb_s: float,
    link_gb: float,
    net_gb: float,
    host_tb: float,
    price: float,
) -> Device:
    """One of 8 GPUs in a machine. `tflops`: in 16 bits and in float32. `host_tb`: memory of the whole machine."""
    older = name.startswith("v100")
    reach = 0.75 if older else 0.8 if name.startswith("a100") else 0.7
    speed = tflops[0] * TERA, tflops[1] * TERA, reach, tb_s * TERA, link_gb * GB, net_gb * GB
    return Device(name, memory_gb * GB, *speed, 8, host_tb * TERA / 8, price, has_bf16=not older)


_H100, _A100 = PEAK_BF16["H100"] / TERA, PEAK_BF16["A100"] / TERA
DEVICES: Final[Mapping[str, Device]] = {
    device.name: device
    for device in (
        _gpu("v100_16gb", 16, (125, 15.7), 0.9, 150, 6.25, 1, 2.48),  # DGX-1; price: a list price of 2020
        _gpu("v100", 32, (125, 15.7), 0.9, 150, 6.25, 1, 2.48),
        _gpu("a100_40gb", 40, (_A100, 19.5), 1.555, 300, 25, 1, 2.0),
        _gpu("a100", 80, (_A100, 19.5), 2.039, 300, 25, 1, 2.2),  # price: arXiv:2312.17482, $20 for 1.13 h of 8 GPUs
        _gpu("h100", 80, (_H100, 67), 3.35, 450, 50, 2, 3.0),  # price: nanochat, $73 for 3.04 h of 8 GPUs
        _gpu("h200", 141, (PEAK_BF16["H200"] / TERA, 67), 4.8, 450, 50, 2, 3.5),
        _gpu("b200", 180, (PEAK_BF16["B200"] / TERA, 75), 8.0, 900, 50, 2, 6.0),
        _gpu("l40s", 48, (PEAK_BF16["L40S"] / TERA, 91.6), 0.864, 25, 12.5, 1, 1.2),
        _gpu("l4", 24, (PEAK_BF16["L4"] / TERA, 30.3), 0.3, 25, 6.25, 0.75, 0.7),
        _gpu("a10g", 24, (70, 31.5), 0.6, 25, 6.25, 0.75, 1.2),
        # One entry is a chip. A Cloud TPU has 4 chips and cost $4.50 (v2) or $8 (v3) per hour; published costs use
        # these prices.
        Device("tpu_v2", 16 * GB, 46 * TERA, 3 * TERA, 0.6, 0.7 * TERA, 62 * GB, 62 * GB, 4, 0.0, 4.50 / 4, "tpu"),
        Device("tpu_v3", 32 * GB, 123 * TERA, 4 * TERA, 0.6, 0.9 * TERA, 82 * GB, 82 * GB, 4, 0.0, 8.0 / 4, "tpu"),
    )
}
GPUS: Final = tuple(name for name, device in DEVICES.items() if device.kind == "cuda")
UNNAMED: Final = "h100", "b200"  # GPUs assumed if none is named: the usual one, and the largest known one


def device_of(name: str) -> Device:
    """The device with this name in a cluster file. Raises BadInput for an unknown name."""
    if name in GPUS:
        return DEVICES[name]
    raise BadInput(
        f"invalid cluster.gpu_type: got {name!r}, expected one of {', '.join(GPUS)}; set one of these, or leave it "
        "empty to use the devices of this machine"
    )


def detect_gpu() -> tuple[Device, str] | None:
    """The GPU of this machine with the data of its model, and a note on assumptions; None if the machine has no GPU."""
    if not (gpus := list_gpus()):
        return None
    (name, memory), number = gpus[0], len(gpus)
    makes = [one for one in GPUS if re.search(rf"\b{one.partition('_')[0]}\b", name, re.IGNORECASE)]
    similar = min((DEVICES[one] for one in makes or GPUS), key=lambda one: abs(one.memory - memory))
    flops, host = peak(name), limits.memory().limit / number
    assumed = (
        ""
        if makes
        else f"unknown GPU {name}: assumed the speed of {similar.name}, the GPU with the closest memory size"
    )
    device = replace(similar, name=name, memory=memory, flops=flops or similar.flops, per_node=number, host=host)
    return device, assumed


def cores() -> float:
    """Number of cores that this process may use, by affinity and quota."""
    return limits.cores().number


def measure_cores(share: float = 1.0, workers: int = 1, *, timed: bool = True) -> Device:
    """The device of one of `workers` workers: `share` cores of this machine, and the worker's part of the memory.

    Measures the speed of the cores, which takes a moment; `timed` False assumes a speed.
    """
    flops, bandwidth = _speed() if timed else (TERA, TERA)
    memory = limits.memory().limit / max(workers, cores() / share)
    speed, number = (share * flops, share * flops, 0.8, share * bandwidth), limits.cores().whole
    return Device(HERE, memory, *speed, bandwidth / 4, 1.25 * GB, number, memory, 0.0, "cpu", launch_s=1e-5)


@cache
def _speed() -> tuple[float, float]:
    """FLOP/s of float32 products and bytes/s of copies, for one core.

    Each is the median of several measurements of a few hundredths of a second. They count the CPU time of this process
    only, so that other programs do not change the result.
    """
    with threadpool_limits(1):  # Several threads would wait for each other in a busy loop, which counts as CPU time.
        return _speed_of_one_thread()


def _speed_of_one_thread() -> tuple[float, float]:
    one = np.ones((384, 384), np.float32)
    many = np.ones(8_000_000, np.float32)
    one @ one
    flops, bandwidth = list[float](), list[float]()
    for _ in range(5):
        start = process_time()
        for _ in range(8):
            one @ one
        flops.append(8 * 2 * 384**3 / (process_time() - start))
        start = process_time()
        for _ in range(2):
            many.copy()
        bandwidth.append(2 * 2 * many.nbytes / (process_time() - start))
    return median(flops), median(bandwidth)
