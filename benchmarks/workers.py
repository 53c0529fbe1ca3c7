"""Starts the worker processes of a benchmark on this machine, one for each rank."""

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Timer
from typing import Any

import psutil


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(
    module: str, cases: Sequence[Any], world: int, *, timeout: float = 3_600
) -> Iterator[list[dict[str, Any]]]:
    """Yield the results of `world` processes for each case, by rank.

    The processes run the module with all cases as JSON in the argument `--worker`, and print a line of JSON for each
    case. Their environment contains RANK, WORLD_SIZE and the other variables of torch. RuntimeError with the end of
    stderr if a process fails, or if all cases together take more than `timeout` seconds. All processes are ended.
    """
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", module, "--worker", json.dumps(list(cases))]
    with ExitStack() as cleanup:
        errors = [cleanup.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(world)]
        processes = []
        for rank, error in enumerate(errors):
            environment = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=error, text=True)
            cleanup.callback(_end, process)
            processes.append(process)

        def end_all() -> None:
            for process in processes:
                process.kill()

        late = Timer(timeout, end_all)
        late.start()
        cleanup.callback(late.cancel)
        for case in cases:
            lines = [_read_result(process) for process in processes]
            if not all(lines):
                rank = lines.index("")
                errors[rank].seek(0)
                raise RuntimeError(f"{module}, rank {rank} of {world}, {case}: {errors[rank].read()[-2_000:]}")
            yield [json.loads(line) for line in lines]


def _read_result(process: subprocess.Popen[str]) -> str:
    """The next line of JSON that a process prints; "" if the process has ended."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):
            return line
    return ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def hardware() -> str:
    """The processor, cores, memory and load of this machine, in one line."""
    memory = psutil.virtual_memory().total / 1e9
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    cores = len(os.sched_getaffinity(0))
    return f"{_processor()}, {cores} cores, {memory:.0f} GB; load over 1, 5 and 15 minutes {load}"


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def now() -> str:
    """The current time in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
