"""Cores and memory that this process may use: those of the machine, or of the control groups that it is in.

Slurm, systemd, Docker and Kubernetes put processes into control groups, often nested and far below the root. Each group
on the way up to the root may have a limit, and the smallest holds (Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst of Linux). Whatever asks for cores or memory asks here.
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
UNLIMITED: Final = 2.0**60  # bytes: version 1 writes a number near 2^63 where there is no limit
LOOKED_AT: Final = 20_000  # groups of a machine, where a path does not say which is ours
# Bytes by which it is decided how many processes there are, where that is ours to say (measured: two workers of a tiny
# BERT with Ray and the command itself have 4.3 GB)
PROCESS: Final = 1e9  # of a worker that trains or evaluates
BESIDE: Final = 2e9  # of the command and of Ray


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes of the machine or of a control group."""

    limit: float
    free: float  # page cache that the kernel can give up counts as free
    where: str = ""  # the folder of the group; "": the machine

    @property
    def used(self) -> float:
        return self.limit - self.free


@dataclass(frozen=True)
class Cores:
    """Those that this process may use at the same time, which a quota may make less than one."""

    number: float
    where: str = ""  # the folder of the group with the quota; "": the machine, or the affinity of this process

    @property
    def whole(self) -> int:
        """How many processes or threads have a core each; at least one.

        >>> Cores(0.5).whole, Cores(2.5).whole
        (1, 2)
        """
        return max(1, math.floor(self.number + 1e-6))


def cores(root: Path = ROOT) -> Cores:
    """By the affinity of this process, and by the smallest quota of its groups."""
    found = [Cores(float(len(os.sched_getaffinity(0))))]
    for group in _groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            found.append(Cores(_quota(group), str(group)))
    return min(found, key=lambda one: one.number)


def memory(root: Path = ROOT) -> MemoryLimit:
    """The smallest limit, with what is free below every limit; `where` names the one that has least left."""
    levels = [_of_machine(root), *_of_groups(root)]
    tightest = min(levels, key=lambda one: one.free)
    return MemoryLimit(min(one.limit for one in levels), tightest.free, tightest.where)


def find_tightest_limit(root: Path = ROOT) -> MemoryLimit:
    """The machine, or the group, that has least memory left: which is full first."""
    return min([_of_machine(root), *_of_groups(root)], key=lambda one: one.free)


def processes(each: float = PROCESS, beside: float = BESIDE, root: Path = ROOT) -> int:
    """How many processes of so many bytes each: one a core, as many as the limit of memory holds beside the rest, at
    least one. It is the limit that counts, not what is free at the moment: the same command has as many each time."""
    return max(1, min(cores(root).whole, int((memory(root).limit - beside) // each)))


def _of_machine(root: Path) -> MemoryLimit:
    """By the kernel's own estimate of what is available."""
    found = dict(re.findall(r"^(\w+): +([0-9]+) kB", (root / "proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE))
    limit = 1024.0 * int(found["MemTotal"])
    return MemoryLimit(
        limit, min(limit, 1024.0 * int(found["MemAvailable"] if "MemAvailable" in found else found["MemFree"]))
    )


def _of_groups(root: Path) -> Iterator[MemoryLimit]:
    """Each limit of memory that holds for this process, from its own group up."""
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
    """Of version 2: above `memory.max` the kernel ends processes, above `memory.high` it all but stops them."""
    for name in ("memory.max", "memory.high"):
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            yield float(int((group / name).read_text(encoding="utf-8")))


def _limits_1(group: Path) -> Iterator[float]:
    """Of version 1, which also says the smallest limit above what can be seen from here."""
    with suppress(OSError, ValueError):
        yield float(int((group / "memory.limit_in_bytes").read_text(encoding="utf-8")))
    with suppress(OSError, ValueError):
        yield float(_stat(group).get("hierarchical_memory_limit", UNLIMITED))


def _reclaimable(group: Path) -> float:
    """Bytes of files, and of the kernel's own caches, that it gives up before it ends a process."""
    stat = _stat(group)
    of_all = "total_" if "total_inactive_file" in stat else ""  # version 1: with those of the groups below
    names = (f"{of_all}inactive_file", f"{of_all}active_file", "slab_reclaimable")
    return float(sum(stat.get(name, 0) for name in names))


def _stat(group: Path) -> dict[str, int]:
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
    except (OSError, ValueError):
        return {}


def _quota(group: Path) -> float:
    """Cores of a group; ValueError or OSError where it has no quota."""
    if (file := group / "cpu.max").exists():  # "max 100000" is no number: no quota
        quota, period = (int(word) for word in file.read_text(encoding="utf-8").split())
    else:
        quota, period = (
            int((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8")) for name in ("quota", "period")
        )
    if quota <= 0:
        raise ValueError(f"{group} has no quota")
    return quota / period


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's groups with such a controller: its own, and those above it as far as can be seen.

    Both versions may be there at once. Paths in /proc/self/cgroup and roots of mounts are as the namespace of this
    process sees them.
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
            _, folder, point = max(places, key=lambda place: place[0])  # one may be mounted at several places
            yield from _up(folder, point)


def _place(point: Path, top: str, path: str) -> tuple[bool, Path, Path]:
    """Whether it is certain, the folder of the group `path`, and where the mount is whose root is the group `top`.

    Where the path leads out of the mount, or of the namespace (/../..), the group that lists this process is looked
    for; else the longest end of the path that is there, as a container may see its group by its path on the host.
    """
    parts, above = _parts(path), _parts(top)
    below = parts[len(above) :]
    if parts[: len(above)] == above and ".." not in below:
        return point.joinpath(*below).is_dir(), point.joinpath(*below), point
    if ".." in parts or ".." in above:
        return False, _listing(point, os.getpid()) or point, point
    ends = (point.joinpath(*parts[first:]) for first in range(len(parts)))
    return False, next((end for end in ends if end.is_dir()), point), point


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


@cache
def _listing(point: Path, pid: int) -> Path | None:
    """The group below a mount that has a process; None where none of the first LOOKED_AT does."""
    for folder, _, _ in islice(os.walk(point), LOOKED_AT):
        with suppress(OSError):  # a group of threads lists none
            if str(pid) in (Path(folder) / "cgroup.procs").read_text(encoding="utf-8").split():
                return Path(folder)
    return None


def _up(folder: Path, point: Path) -> Iterator[Path]:
    """The folder and those above it, up to where the groups are mounted."""
    while True:
        if folder.is_dir():
            yield folder
        if folder == point:
            return
        folder = folder.parent


def _mounts(root: Path) -> Iterator[tuple[str, list[str], str, str]]:
    """Kind, options of the whole, root and place of each mount of control groups (proc_pid_mountinfo(5))."""
    for line in _lines(root / "proc/self/mountinfo"):
        first, _, last = line.partition(" - ")
        words, kind = first.split(), last.split()
        if len(words) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            yield kind[0], kind[2].split(","), _unescaped(words[3]), _unescaped(words[4])


def _unescaped(text: str) -> str:
    r"""
    >>> _unescaped(r"/mnt/with\040blank")
    '/mnt/with blank'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _lines(file: Path) -> list[str]:
    """Of a file of the kernel; none where there is no such file."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
