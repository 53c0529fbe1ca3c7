"""Identify processes although the kernel reuses PIDs and clocks may change."""

from functools import cache
from pathlib import Path


def read_start_id(pid: int) -> str:
    """The boot ID of this machine and the start time of a process in clock ticks since boot.

    No other process with this PID has the same pair. Returns "" if there is no such process, or if it is a zombie.
    """
    fields = _stat(pid)
    return "" if not fields or fields[0] in "ZX" else f"{_boot()}:{fields[19]}"


def is_stopped(pid: int) -> bool:
    """Whether a process exists and is stopped until it receives SIGCONT."""
    return _stat(pid)[:1] in (["T"], ["t"])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third field, the state; [] if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
