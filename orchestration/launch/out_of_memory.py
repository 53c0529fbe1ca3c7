"""No memory left, in one line: what a worker had, of how much, and with which micro-batch.

An allocator's error is raised in the worker. A worker that the kernel or Ray ends for want of memory says nothing: its
driver then looks at what it had said before, and at the kernel's count of those that it has killed.
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

SAID: Final = re.compile(  # torch's allocators, CUDA's libraries and C++ each have their own words
    r"out of memory|not enough memory|can't allocate memory|Cannot allocate memory|bad_alloc|STATUS_ALLOC_FAILED", re.I
)
TRIED: Final = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB)?")
UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
FULL: Final = 0.9  # of a machine's memory in use, when a worker was last heard: it was killed for that
BY_RAY: Final = re.compile(r"NODE_OUT_OF_MEMORY|running low on memory|OutOfMemory")


class OutOfMemory(ResourceError):
    """A worker had no memory left. `used` and `limit` in bytes, of its device or of its machine; 0: not known."""

    def __init__(self, message: str, used: float = 0.0, limit: float = 0.0) -> None:
        super().__init__(message)
        self.used, self.limit = used, limit


@dataclass(frozen=True)
class MemoryUse:
    """Memory in bytes, as a worker sees it."""

    own: float = 0.0  # of its process
    machine: float = 0.0  # of all processes that share the limit
    limit: float = 0.0  # of the machine, or of the control group

    @property
    def is_full(self) -> bool:
        return self.limit > 0 and self.machine > FULL * self.limit

    def shared_by(self, workers: Sequence["MemoryUse"]) -> "MemoryUse":
        """The same with the limit of each of the `workers` on this machine, of which this is one.

        >>> MemoryUse(4e9, 11e9, 16e9).shared_by([MemoryUse(4e9), MemoryUse(3e9)]).limit
        6000000000.0
        """
        others = max(0.0, self.machine - sum(each.own for each in workers))
        return replace(self, limit=(self.limit - others) / max(1, len(workers)))

    @classmethod
    def now(cls) -> "MemoryUse":
        most = limits.find_tightest_limit()
        return cls(float(psutil.Process().memory_info().rss), most.used, most.limit)


@contextmanager
def explain_out_of_memory(run: Run, rank: int, doing: Callable[[], str]) -> Iterator[None]:
    """OutOfMemory in place of an allocator's error inside the block."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:
        if not is_of_memory(error):
            raise
        used, limit = _of_device(run)
        asked = _asked(str(error))
        more = f" and asked for {format_bytes(asked)} more" if asked else ""
        raise OutOfMemory(
            f"{run.folder}: worker {rank} had no memory left in {doing()}: it had {format_bytes(used)} of "
            f"{format_bytes(limit)}"
            f"{more}, with micro_tokens {run.engine.micro_batch_tokens:,}",
            used + asked,
            limit,
        ) from error


def is_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory, on a device or on the host.

    >>> is_of_memory(MemoryError()), is_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    (True, False)
    """
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and bool(SAID.search(str(error)))


def _asked(text: str) -> float:
    """Bytes that an allocator was asked for, as its error says.

    >>> _asked("Tried to allocate 1.50 GiB. GPU 0 has"), _asked("you tried to allocate 4096 bytes."), _asked("")
    (1610612736.0, 4096.0, 0.0)
    """
    found = TRIED.search(text)
    return float(found[1].rstrip(".")) * UNITS[found[2] or "bytes"] if found else 0.0


def _of_device(run: Run) -> tuple[float, float]:
    """Bytes that this worker has had at most of its device, and how many that has."""
    if run.engine.device == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated()), float(torch.cuda.mem_get_info()[1])
    now, (most, _) = MemoryUse.now(), resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and most < now.limit:
        return float(psutil.Process().memory_info().vms), float(most)  # ulimit -v counts addresses, not pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, now.limit


def count_oom_kills() -> int:
    """How many processes the kernel of this machine has ended for want of memory; 0 where it does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def describe_oom_kill(said: str, last: MemoryUse, kills: int) -> str:
    """That a worker died for want of memory, in words; "" where nothing speaks for it.

    `said` is Ray's, `last` what the worker had when it was heard last, `kills` how many the kernel has ended since.

    >>> describe_oom_kill("Worker exit type: SYSTEM_ERROR", MemoryUse(1e9, 2e9, 16e9), 0)
    ''
    >>> describe_oom_kill("Worker exit type: SYSTEM_ERROR", MemoryUse(7e9, 15.5e9, 16e9), 1)
    'the kernel has ended it for want of memory (it had 7.0 GB, its machine was using 15.5 GB of 16.0 GB)'
    """
    had = (
        f" (it had {format_bytes(last.own)}, its machine was using {format_bytes(last.machine)} of "
        f"{format_bytes(last.limit)})"
    )
    had = had if last.limit else ""
    if BY_RAY.search(said):
        return f"Ray has ended it for want of memory{had}"
    if kills:
        return f"the kernel has ended it for want of memory{had}"
    return f"probably for want of memory{had}" if last.is_full else ""


def format_bytes(size: float) -> str:
    """
    >>> format_bytes(7.25e10), format_bytes(3.1e6)
    ('72.5 GB', '3.1 MB')
    """
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
