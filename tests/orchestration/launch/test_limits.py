"""What Ray is given of this machine is what the control groups of this process allow."""

from pathlib import Path
from typing import Any

import pytest
import ray

from orchestration import launch
from orchestration.launch import session
from orchestration.launch.out_of_memory import MemoryUse
from preprocessing import limits


def test_ray_has_the_cores_and_the_memory_of_a_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cores", lambda root=limits.ROOT: limits.Cores(3.5))
    monkeypatch.setattr(limits, "memory", lambda root=limits.ROOT: limits.MemoryLimit(4e9, 3e9))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    given: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda *_, **more: given.update(more))
    session._start_here(tmp_path, launch.cores(), 0, dashboard=False, quiet={})
    assert (given["num_cpus"], given["_memory"]) == (2, 3_000_000_000)  # 1 GB a process, and 2 for Ray and the command


def test_a_worker_is_full_by_the_group_that_has_least_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit was looked for in the root group alone, and page cache counted as used."""
    monkeypatch.setattr(limits, "find_tightest_limit", lambda: limits.MemoryLimit(8e9, 0.5e9, "/sys/fs/cgroup/job"))
    now = MemoryUse.now()
    assert (now.machine, now.limit, now.is_full) == (7.5e9, 8e9, True)
