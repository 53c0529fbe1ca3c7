"""Processes of a benchmark that train together: the same module on this machine, once for each rank."""

import json
import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import psutil


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(module: str, case: Any, world: int, *, timeout: float = 600) -> list[Any]:
    """What each of `world` processes prints as its last line, in JSON, by rank; `case` is their argument `--worker`.

    RANK, WORLD_SIZE and the like are in their environment. RuntimeError with the end of what a process said where it
    fails; none of them is left behind.
    """
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", module, "--worker", json.dumps(case)]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        said = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, (_, error)) in enumerate(zip(processes, said, strict=True)):
        if process.returncode:
            raise RuntimeError(f"{module}, rank {rank} of {world}, {case}: {error[-2_000:]}")
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def hardware() -> str:
    """This machine and how busy it is, in a line."""
    memory = psutil.virtual_memory().total / 1e9
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    cores = len(os.sched_getaffinity(0))
    return f"{_processor()}, {cores} cores, {memory:.0f} GB; load over 1, 5 and 15 minutes {load}"


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
