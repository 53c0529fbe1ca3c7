"""Which process has a number now: numbers are given again, and clocks are set."""

from functools import cache
from pathlib import Path


def began(pid: int) -> str:
    """The boot of this machine and the tick after it at which a process began: no other process of this number has
    both.

    "" where there is no such process, or it has ended and nobody has waited for it (a zombie).
    """
    fields = _stat(pid)
    return "" if not fields or fields[0] in "ZX" else f"{_boot()}:{fields[19]}"


def is_stopped(pid: int) -> bool:
    """Whether a process is there and does nothing until it gets SIGCONT."""
    return _stat(pid)[:1] in (["T"], ["t"])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on, the state."""
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
