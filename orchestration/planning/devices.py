"""Kinds of devices: what a plan knows of them. Data sheets of the makers, dense rates; prices are assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30


@dataclass(frozen=True)
class Device:
    """One accelerator, or one machine's cores, and how it is connected to others."""

    memory: float  # bytes
    half: float  # FLOP/s in 16 bits with sums in 32
    single: float  # FLOP/s in float32
    bandwidth: float  # bytes/s between its memory and its cores
    near: float  # bytes/s to the others of its machine, in one direction
    far: float  # bytes/s to other machines, in one direction: its share of the machine's network
    per_node: int  # of them in a machine, as they are usually sold
    matmul: float  # share of the peak that large matrix products reach
    price: float = 0.0  # dollars an hour for one; 0: not known


# Rates and sizes: data sheets (NVIDIA V100, A100, H100, H200, B200; Google Cloud TPU v2, v3). `far` is eight 100, 200
# or 400 Gbit/s ports for eight devices. `matmul` is what cuBLAS reaches for matrices of some thousand rows, by the
# throughputs that arXiv:2104.04473 (A100: 163 of 312 TFLOP/s with all else) and arXiv:1909.08053 (V100) report.
# Prices are what clouds asked for in 2026, to be written into the cluster file by who knows better.
DEVICES: Final[Mapping[str, Device]] = {
    "tpu_v2": Device(16 * GIB, 46e12, 3e12, 0.70e12, 31e9, 31e9, 4, 0.50, 1.1),
    "tpu_v3": Device(32 * GIB, 123e12, 4e12, 0.90e12, 41e9, 41e9, 4, 0.50, 2.0),
    "v100_16": Device(16 * GIB, 125e12, 15.7e12, 0.90e12, 130e9, 12.5e9, 8, 0.62, 2.5),
    "v100_32": Device(32 * GIB, 125e12, 15.7e12, 0.90e12, 130e9, 12.5e9, 8, 0.62, 3.0),
    "a100_40": Device(40 * GIB, 312e12, 19.5e12, 1.55e12, 250e9, 25e9, 8, 0.70, 1.5),
    "a100_80": Device(80 * GIB, 312e12, 19.5e12, 2.00e12, 250e9, 25e9, 8, 0.70, 1.8),
    "h100": Device(80 * GIB, 989e12, 67e12, 3.35e12, 400e9, 50e9, 8, 0.65, 2.5),
    "h200": Device(141 * GIB, 989e12, 67e12, 4.80e12, 400e9, 50e9, 8, 0.65, 3.5),
    "b200": Device(180 * GIB, 2250e12, 80e12, 8.00e12, 800e9, 50e9, 8, 0.60, 5.0),
}
