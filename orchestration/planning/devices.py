"""What a device is: its memory, its arithmetic, how it is connected, and what an hour of it costs.

Figures are those of data sheets. `reach` is the share of the peak that large matrix products reach, and prices are
rates at which such devices were rented: neither is a promise, and a cluster file can give its own price.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from time import process_time
from typing import Final

import numpy as np
import psutil

from preprocessing.errors import BadInput
from training.meter import PEAK_BF16, peak

GB, TERA = 1e9, 1e12
HERE: Final = "this machine"


@dataclass(frozen=True)
class Device:
    """One accelerator, or one core of a CPU. Bytes, seconds, FLOP/s of dense 16-bit products, US dollars."""

    name: str
    memory: float  # bytes
    flops: float  # FLOP/s at most, of matrix products in the precision that it trains in
    reach: float  # share of `flops` that large products reach
    bandwidth: float  # bytes/s of its memory
    link: float  # bytes/s, one way, to the others of its node
    network: float  # bytes/s, one way, to other nodes
    per_node: int
    price: float = 0.0  # of an hour
    kind: str = "cuda"  # of a worker: cuda, cpu, or tpu, which Sesame does not train on
    launch_s: float = 5e-6  # from one operation to the next, however small it is


def _gpu(
    name: str, memory_gb: float, tflops: float, tb_s: float, link_gb: float, net_gb: float, price: float
) -> Device:
    older = name.startswith("v100")
    reach = 0.75 if older else 0.8 if name.startswith("a100") else 0.7
    return Device(name, memory_gb * GB, tflops * TERA, reach, tb_s * TERA, link_gb * GB, net_gb * GB, 8, price)


_H100, _A100 = PEAK_BF16["H100"] / TERA, PEAK_BF16["A100"] / TERA
DEVICES: Final[Mapping[str, Device]] = {
    device.name: device
    for device in (
        _gpu("v100_16gb", 16, 125, 0.9, 150, 6.25, 2.48),  # DGX-1; price: a list price of 2020
        _gpu("v100", 32, 125, 0.9, 150, 6.25, 2.48),
        _gpu("a100_40gb", 40, _A100, 1.555, 300, 25, 2.0),
        _gpu("a100", 80, _A100, 2.039, 300, 25, 2.2),  # price: arXiv:2312.17482, $20 for 1.13 h of 8
        _gpu("h100", 80, _H100, 3.35, 450, 50, 3.0),  # price: nanochat, $73 for 3.04 h of 8
        _gpu("h200", 141, PEAK_BF16["H200"] / TERA, 4.8, 450, 50, 3.5),
        _gpu("b200", 180, PEAK_BF16["B200"] / TERA, 8.0, 900, 50, 6.0),
        _gpu("l40s", 48, PEAK_BF16["L40S"] / TERA, 0.864, 25, 12.5, 1.2),
        _gpu("l4", 24, PEAK_BF16["L4"] / TERA, 0.3, 25, 6.25, 0.7),
        _gpu("a10g", 24, 70, 0.6, 25, 6.25, 1.2),
        # chips; a Cloud TPU of four was $4.50 (v2) and $8 (v3) an hour, of which published costs are made
        Device("tpu_v2", 16 * GB, 46 * TERA, 0.6, 0.7 * TERA, 62 * GB, 62 * GB, 4, 4.50 / 4, "tpu"),
        Device("tpu_v3", 32 * GB, 123 * TERA, 0.6, 0.9 * TERA, 82 * GB, 82 * GB, 4, 8.0 / 4, "tpu"),
    )
}
LARGEST: Final = "b200"  # by memory of those that rent by the node: what an unknown GPU is taken for


def device_of(name: str) -> Device:
    """The device of a name in a cluster file. BadInput where there is none."""
    if name in DEVICES:
        return DEVICES[name]
    raise BadInput(f"hardware is {name!r}, allowed is {', '.join(DEVICES)}, or nothing: the devices of this machine")


def gpus_here() -> list[tuple[str, float]]:
    """Name and bytes of each GPU of this machine, as its driver says; [] where there is none."""
    if not (tool := shutil.which("nvidia-smi")):
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = [line.rpartition(",") for line in said.splitlines() if "," in line]
    return [(name.strip(), float(mib) * 2**20) for name, _, mib in found]


def gpu_here() -> Device | None:
    """The GPU of this machine, with the figures of its make; None where there is none."""
    if not (gpus := gpus_here()):
        return None
    (name, memory), number = gpus[0], len(gpus)
    flops = peak(name)
    near = flops or 100 * TERA
    alike = min(DEVICES.values(), key=lambda one: (abs(one.flops - near), abs(one.memory - memory)))
    return replace(alike, name=name, memory=memory, flops=flops or alike.flops, per_node=number)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def core_here(share: float = 1.0, workers: int = 1, *, timed: bool = True) -> Device:
    """`share` cores of this machine, for each of so many workers, with their part of its memory; how fast they are is
    measured, in a moment."""
    flops, bandwidth = _speed() if timed else (TERA, TERA)
    memory = psutil.virtual_memory().total / max(workers, cores() / share)
    speed = share * flops, 0.8, share * bandwidth
    return Device(HERE, memory, *speed, bandwidth / 4, 1.25 * GB, cores(), 0.0, "cpu", launch_s=1e-5)


@cache
def _speed() -> tuple[float, float]:
    """FLOP/s of products in float32 and bytes/s of copies of one core: the best of a few, each of a few hundredths of a
    second of all cores together, so that neither how many take part nor what else they do counts."""
    one = np.ones((384, 384), np.float32)
    many = np.ones(8_000_000, np.float32)
    flops = bandwidth = 0.0
    one @ one
    for _ in range(3):
        start = process_time()
        for _ in range(4):
            one @ one
        flops = max(flops, 4 * 2 * 384**3 / (process_time() - start))
        start = process_time()
        many.copy()
        bandwidth = max(bandwidth, 2 * many.nbytes / (process_time() - start))
    return flops, bandwidth
