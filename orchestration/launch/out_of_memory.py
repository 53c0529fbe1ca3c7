"""Errors of exhausted memory in one line: memory use of the worker, the limit, and the size of the micro-batch.

An error of an allocator is raised in the worker. A worker that the kernel or Ray kills raises nothing. For a killed
worker, the driver uses the last reported memory use and the number of processes that the kernel has killed.
"""

import errno
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

from preprocessing import limits
from preprocessing.errors import ResourceError, SesameError
from training.run import Run

MESSAGE: Final = re.compile(  # wording of torch's allocators, of CUDA's libraries and of C++
    r"out of memory|not enough memory|can't allocate memory|Cannot allocate memory|bad_alloc|STATUS_ALLOC_FAILED", re.I
)
REQUESTED: Final = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB)?")
UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# if this fraction of memory was in use at the last report, a dead worker was probably killed to free memory
FULL: Final = 0.9
BY_RAY: Final = re.compile(r"NODE_OUT_OF_MEMORY|running low on memory|OutOfMemory")


class OutOfMemory(ResourceError):
    """A worker ran out of memory. `used` and `limit` are bytes of its device or of its machine; 0 if unknown."""

    def __init__(self, message: str, used: float = 0.0, limit: float = 0.0) -> None:
        super().__init__(message)
        self.used, self.limit = used, limit


@dataclass(frozen=True)
class MemoryUse:
    """Memory in bytes, as a worker measures it."""

    process: float = 0.0  # used by its process
    machine: float = 0.0  # used by all processes that share the limit
    limit: float = 0.0  # limit of the machine or of the control group

    @property
    def is_full(self) -> bool:
        return self.limit > 0 and self.machine > FULL * self.limit

    def divide_among(self, workers: Sequence["MemoryUse"]) -> "MemoryUse":
        """A copy whose limit is the part of one worker. `workers` are all workers of this machine, this one included.

        >>> MemoryUse(4e9, 11e9, 16e9).divide_among([MemoryUse(4e9), MemoryUse(3e9)]).limit
        6000000000.0
        """
        others = max(0.0, self.machine - sum(each.process for each in workers))
        return replace(self, limit=(self.limit - others) / max(1, len(workers)))

    @classmethod
    def now(cls) -> "MemoryUse":
        tightest = limits.find_tightest_limit()
        return cls(float(psutil.Process().memory_info().rss), tightest.used, tightest.limit)


@contextmanager
def explain_out_of_memory(run: Run, rank: int, activity: Callable[[], str]) -> Iterator[None]:
    """Inside the block, an error of an allocator becomes OutOfMemory; its message contains `activity()`."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:
        if not is_of_memory(error):
            raise
        used, limit = _device_memory(run)
        requested = _parse_requested_bytes(str(error))
        more = f" and requested {format_bytes(requested)} more" if requested else ""
        raise OutOfMemory(
            f"{run.folder}: worker {rank} ran out of memory in {activity()}: it used {format_bytes(used)} of "
            f"{format_bytes(limit)}"
            f"{more}, with cluster.engine.micro_batch_tokens {run.engine.micro_tokens:,}",
            used + requested,
            limit,
        ) from error


def is_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted, on a device or on the host.

    >>> is_of_memory(MemoryError()), is_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    (True, False)
    """
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and bool(MESSAGE.search(str(error)))


def _parse_requested_bytes(text: str) -> float:
    """The bytes that an allocator could not provide, according to its error message; 0 if it does not say.

    >>> _parse_requested_bytes("Tried to allocate 1.50 GiB. GPU 0 has")
    1610612736.0
    >>> _parse_requested_bytes("you tried to allocate 4096 bytes.")
    4096.0
    """
    match = REQUESTED.search(text)
    return float(match[1].rstrip(".")) * UNITS[match[2] or "bytes"] if match else 0.0


def _device_memory(run: Run) -> tuple[float, float]:
    """The largest memory use of this worker on its device so far, and the limit of that device, in bytes."""
    if run.engine.device == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated()), float(torch.cuda.mem_get_info()[1])
    now, (address_limit, _) = MemoryUse.now(), resource.getrlimit(resource.RLIMIT_AS)
    if address_limit != resource.RLIM_INFINITY and address_limit < now.limit:
        return float(psutil.Process().memory_info().vms), float(address_limit)  # ulimit -v counts addresses, not pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, now.limit


def count_oom_kills() -> int:
    """How many processes the kernel of this machine has killed to free memory; 0 if the kernel does not count them."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def describe_oom_kill(message: str, last: MemoryUse, kills: int) -> str:
    """Text that says whether the kernel or Ray killed a worker to free memory; "" if there is no sign of this.

    `message` comes from Ray. `last` is the last reported memory use of the worker. `kills` is the number of processes
    that the kernel has killed since the start of the workers.

    >>> describe_oom_kill("Worker exit type: SYSTEM_ERROR", MemoryUse(1e9, 2e9, 16e9), 0)
    ''
    >>> describe_oom_kill("Worker exit type: SYSTEM_ERROR", MemoryUse(7e9, 15.5e9, 16e9), 1)
    'the kernel killed it to free memory; it used 7.0 GB, its machine 15.5 GB of 16.0 GB'
    """
    use = ""
    if last.limit:
        machine, limit = format_bytes(last.machine), format_bytes(last.limit)
        use = f"; it used {format_bytes(last.process)}, its machine {machine} of {limit}"
    if BY_RAY.search(message):
        return f"Ray killed it to free memory{use}"
    if kills:
        return f"the kernel killed it to free memory{use}"
    return f"probably because memory was exhausted{use}" if last.is_full else ""


def format_bytes(size: float) -> str:
    """
    >>> format_bytes(7.25e10), format_bytes(3.1e6)
    ('72.5 GB', '3.1 MB')
    """
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
