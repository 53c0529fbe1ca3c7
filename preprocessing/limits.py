"""Cores and memory that this process may use: those of the machine, or of its control groups.

Slurm, systemd, Docker and Kubernetes put processes into control groups, often nested and far below the root. Each group
on the path to the root may have a limit, and the smallest limit applies (Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst of Linux). All code of Sesame that needs the number of cores or the memory size uses this module.
"""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
UNLIMITED: Final = 2.0**60  # bytes; without a limit, version 1 writes a number near 2^63
LOOKED_AT: Final = 20_000  # maximum number of groups to search for this process if its path is ambiguous
# Memory in bytes from which the default number of processes is computed (measured: two workers of a tiny BERT with Ray
# and the command itself use 4.3 GB)
PROCESS: Final = 1e9  # a worker that trains or evaluates
BESIDE: Final = 2e9  # the command and Ray


@dataclass(frozen=True)
class MemoryLimit:
    """Memory limit and free memory of the machine or of a control group, in bytes."""

    limit: float
    free: float  # includes page cache that the kernel can reclaim
    where: str = ""  # the directory of the group; "" for the machine

    @property
    def used(self) -> float:
        return self.limit - self.free


@dataclass(frozen=True)
class Cores:
    """The number of cores that this process may use at the same time; with a quota it may be less than 1."""

    number: float
    where: str = ""  # the directory of the group with the quota; "" for the machine or the affinity of this process

    @property
    def whole(self) -> int:
        """The number of processes or threads that can have one core each; at least 1.

        >>> Cores(0.5).whole, Cores(2.5).whole
        (1, 2)
        """
        return max(1, math.floor(self.number + 1e-6))


def cores(root: Path = ROOT) -> Cores:
    """The cores of this process: the minimum of its affinity and of the quotas of its groups."""
    found = [Cores(float(len(os.sched_getaffinity(0))))]
    for group in _groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            found.append(Cores(_quota(group), str(group)))
    return min(found, key=lambda one: one.number)


def memory(root: Path = ROOT) -> MemoryLimit:
    """The smallest limit, and the memory that is free below all limits; `where` names the one with the least free."""
    levels = [_of_machine(root), *_of_groups(root)]
    tightest = min(levels, key=lambda one: one.free)
    return MemoryLimit(min(one.limit for one in levels), tightest.free, tightest.where)


def find_tightest_limit(root: Path = ROOT) -> MemoryLimit:
    """The machine or the group with the least free memory, which is the first to run out."""
    return min([_of_machine(root), *_of_groups(root)], key=lambda one: one.free)


def processes(each: float = PROCESS, beside: float = BESIDE, root: Path = ROOT) -> int:
    """The default number of processes: one per core, as many as fit into the memory limit, and at least 1.

    Each process needs `each` bytes, and everything else needs `beside` bytes. The result depends on the limit, not on
    the memory that is free at the moment, so that a command always starts the same number of processes.
    """
    return max(1, min(cores(root).whole, int((memory(root).limit - beside) // each)))


def _of_machine(root: Path) -> MemoryLimit:
    """The memory of the machine, with the kernel's estimate of the available memory."""
    found = dict(re.findall(r"^(\w+): +([0-9]+) kB", (root / "proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE))
    limit = 1024.0 * int(found["MemTotal"])
    return MemoryLimit(
        limit, min(limit, 1024.0 * int(found["MemAvailable"] if "MemAvailable" in found else found["MemFree"]))
    )


def _of_groups(root: Path) -> Iterator[MemoryLimit]:
    """Each memory limit that applies to this process, from its own group up to the root."""
    for group in _groups("memory", root):
        limits = [limit for read in (_limits_2, _limits_1) for limit in read(group) if limit < UNLIMITED]
        if not limits:
            continue
        limit, used = min(limits), 0.0
        for name in ("memory.current", "memory.usage_in_bytes"):
            with suppress(OSError, ValueError):
                used = max(0.0, int((group / name).read_text(encoding="utf-8")) - _reclaimable(group))
        yield MemoryLimit(limit, max(0.0, limit - used), str(group))


def _limits_2(group: Path) -> Iterator[float]:
    """Limits of version 2: the kernel kills processes above `memory.max`, and almost stops them above `memory.high`."""
    for name in ("memory.max", "memory.high"):
        with suppress(OSError, ValueError):  # "max", which is not a number, means no limit
            yield float(int((group / name).read_text(encoding="utf-8")))


def _limits_1(group: Path) -> Iterator[float]:
    """Limits of version 1, including the smallest limit of the groups above, even if those are not visible here."""
    with suppress(OSError, ValueError):
        yield float(int((group / "memory.limit_in_bytes").read_text(encoding="utf-8")))
    with suppress(OSError, ValueError):
        yield float(_stat(group).get("hierarchical_memory_limit", UNLIMITED))


def _reclaimable(group: Path) -> float:
    """Bytes of cached files and kernel caches that the kernel reclaims before it kills a process."""
    stat = _stat(group)
    prefix = "total_" if "total_inactive_file" in stat else ""  # version 1; includes the groups below
    names = (f"{prefix}inactive_file", f"{prefix}active_file", "slab_reclaimable")
    return float(sum(stat.get(name, 0) for name in names))


def _stat(group: Path) -> dict[str, int]:
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
    except (OSError, ValueError):
        return {}


def _quota(group: Path) -> float:
    """The quota of a group in cores; ValueError or OSError if it has none."""
    if (file := group / "cpu.max").exists():  # "max 100000" is not two numbers and means no quota
        quota, period = (int(word) for word in file.read_text(encoding="utf-8").split())
    else:
        quota, period = (
            int((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8")) for name in ("quota", "period")
        )
    if quota <= 0:
        raise ValueError(f"{group} has no quota")
    return quota / period


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The directories of this process's groups with a controller: its own group, and the visible groups above it.

    Both versions of control groups may be mounted at the same time. Paths in /proc/self/cgroup and roots of mounts are
    relative to the namespace of this process.
    """
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        is_second = number == "0" and not controllers
        if not is_second and controller not in controllers.split(","):
            continue
        places = [
            _place(root / point.lstrip("/"), top, path)
            for kind, options, top, point in mounts
            if (kind == "cgroup2") == is_second and (is_second or controller in options)
        ]
        if places:
            _, folder, point = max(places, key=lambda place: place[0])  # a hierarchy may have several mounts
            yield from _up(folder, point)


def _place(point: Path, top: str, path: str) -> tuple[bool, Path, Path]:
    """Find the directory of the group `path`: return whether it is certain, the directory, and `point`.

    `top` is the group at the root of the mount. If the path leads out of the mount or of the namespace (/../..), the
    result is the group that lists this process. Otherwise it is the longest suffix of the path that exists, because a
    container may see the path of its group on the host.
    """
    parts, above = _parts(path), _parts(top)
    below = parts[len(above) :]
    if parts[: len(above)] == above and ".." not in below:
        return point.joinpath(*below).is_dir(), point.joinpath(*below), point
    if ".." in parts or ".." in above:
        return False, _find_group(point, os.getpid()) or point, point
    ends = (point.joinpath(*parts[first:]) for first in range(len(parts)))
    return False, next((end for end in ends if end.is_dir()), point), point


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


@cache
def _find_group(point: Path, pid: int) -> Path | None:
    """The group below a mount that lists a process; None if none of the first LOOKED_AT groups does."""
    for folder, _, _ in islice(os.walk(point), LOOKED_AT):
        with suppress(OSError):  # a group of threads lists no processes
            if str(pid) in (Path(folder) / "cgroup.procs").read_text(encoding="utf-8").split():
                return Path(folder)
    return None


def _up(folder: Path, point: Path) -> Iterator[Path]:
    """The directories from a group up to its mount point."""
    while True:
        if folder.is_dir():
            yield folder
        if folder == point:
            return
        folder = folder.parent


def _mounts(root: Path) -> Iterator[tuple[str, list[str], str, str]]:
    """Type, super options, root and mount point of each mount of control groups (proc_pid_mountinfo(5))."""
    for line in _lines(root / "proc/self/mountinfo"):
        first, _, last = line.partition(" - ")
        words, kind = first.split(), last.split()
        if len(words) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            yield kind[0], kind[2].split(","), _unescape(words[3]), _unescape(words[4])


def _unescape(text: str) -> str:
    r"""
    >>> _unescape(r"/mnt/with\040blank")
    '/mnt/with blank'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _lines(file: Path) -> list[str]:
    """The lines of a file of the kernel; [] if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
