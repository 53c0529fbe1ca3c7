"""Ray gets only the cores and the memory that the control groups of this process allow."""

from pathlib import Path
from typing import Any

import pytest
import ray

from orchestration import launch
from orchestration.launch import session
from orchestration.launch.out_of_memory import MemoryUse
from preprocessing import limits


def test_ray_gets_the_cores_and_memory_of_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cores", lambda root=limits.ROOT: limits.Cores(3.5))
    monkeypatch.setattr(limits, "memory", lambda root=limits.ROOT: limits.MemoryLimit(4e9, 3e9))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    settings: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda *_, **more: settings.update(more))
    session._start_here(tmp_path, launch.cores(), 0, dashboard=False, quiet={})
    # 1 GB per process, and 2 GB for Ray and the command
    assert (settings["num_cpus"], settings["_memory"]) == (2, 3_000_000_000)


def test_memory_is_full_if_the_tightest_group_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a parent group counts, and page cache does not count as used."""
    monkeypatch.setattr(limits, "find_tightest_limit", lambda: limits.MemoryLimit(8e9, 0.5e9, "/sys/fs/cgroup/job"))
    now = MemoryUse.now()
    assert (now.machine, now.limit, now.is_full) == (7.5e9, 8e9, True)
