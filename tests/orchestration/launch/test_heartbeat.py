"""Detection of silent and slow workers from their heartbeats."""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestration import full_disk
from orchestration.launch.heartbeat import (
    EVERY_S,
    IN_A_ROW,
    MEETING,
    OTHERS,
    STEP,
    STEP_TIMES,
    Heartbeat,
    HeartbeatMonitor,
)
from preprocessing.errors import BadInput


def monitor_after_steps(num: int, hang_s: float, step_s: float, steps: int = 10) -> HeartbeatMonitor:
    """Return a monitor of workers that have made equally long updates; the first update starts at time 0."""
    monitor = HeartbeatMonitor(num, hang_s, 0.0)
    for done in range(steps):
        for rank in range(num):
            monitor.record(rank, Heartbeat(done + 1, done, STEP if done else "first step"), done * step_s)
    return monitor


def test_group_that_makes_steps_is_never_silent() -> None:
    monitor = monitor_after_steps(2, hang_s=5.0, step_s=3.0)
    assert monitor.silent_s([0, 1], now_s=9 * 3.0 + 4.0) == 0.0


def test_one_silent_worker_makes_the_group_silent() -> None:
    monitor = monitor_after_steps(2, hang_s=5.0, step_s=0.1)
    monitor.record(0, Heartbeat(99, 10, STEP), 5.0)
    assert monitor.silent_s([0, 1], now_s=5.5) == 0.0
    assert monitor.silent_s([0, 1], now_s=7.2) == pytest.approx(7.2 - 0.9)


def test_timeout_grows_with_the_step_time() -> None:
    monitor = monitor_after_steps(1, hang_s=5.0, step_s=60.0)
    assert monitor.step_s() == 60.0
    last_s = 9 * 60.0
    assert monitor.silent_s([0], last_s + STEP_TIMES * 60.0 - 1) == 0.0
    assert monitor.silent_s([0], last_s + STEP_TIMES * 60.0 + 1) > 0.0


@pytest.mark.parametrize("doing", ["start", "first step", "checkpoint", "evaluation", "exporting weights"])
def test_work_other_than_steps_has_a_longer_timeout(doing: str) -> None:
    monitor = monitor_after_steps(2, hang_s=5.0, step_s=0.1)
    monitor.record(0, Heartbeat(99, 10, doing), 1.0)
    assert monitor.silent_s([0, 1], 5.0 * OTHERS) == 0.0
    assert monitor.silent_s([0, 1], 5.0 * OTHERS + 2.0) > 0.0


def test_workers_that_cannot_connect_have_the_connection_timeout() -> None:
    """With a firewall between workers, the first error once came after an hour."""
    monitor = HeartbeatMonitor(2, 60.0, 0.0, timeout_s=100)
    for rank in (0, 1):
        monitor.record(rank, Heartbeat(2, -1, MEETING), 0.0)
    assert (monitor.silent_s([0, 1], 99.0), monitor.silent_s([0, 1], 101.0)) == (0.0, 101.0)
    monitor.record(1, Heartbeat(3, -1, "importing DeepSpeed"), 0.0)
    assert monitor.silent_s([0, 1], 300.0) == 0.0


def test_finished_workers_are_ignored_and_zero_disables_the_timeout() -> None:
    assert monitor_after_steps(2, hang_s=5.0, step_s=0.1).silent_s([], 1e9) == 0.0
    assert monitor_after_steps(2, hang_s=0.0, step_s=0.1).silent_s([0, 1], 1e9) == 0.0


def compare_times(compute_s: list[float], times: int, stages: int = 1) -> list[tuple[float, Mapping[int, float]]]:
    """Return the results of `times` comparisons between workers with these compute times per update."""
    monitor, found = HeartbeatMonitor(len(compute_s), 600.0, 0.0, stages), []
    for turn in range(times + 1):
        for rank, each_s in enumerate(compute_s):
            monitor.record(
                rank,
                Heartbeat(turn + 1, turn, STEP, compute_s=100 * turn * each_s, timed_updates=100 * turn),
                turn * EVERY_S,
            )
        if answer := monitor.compare(turn * EVERY_S + EVERY_S):
            found.append(answer)
    return found


def test_repeatedly_slow_worker_is_reported_once() -> None:
    found = compare_times([0.1, 0.1, 0.3], times=IN_A_ROW + 2)
    assert [list(slow) for _, slow in found] == [[]] * (IN_A_ROW - 1) + [[2]] + [[]] * 2
    assert {round(slowest, 6) for slowest, _ in found} == {3.0}


def test_pipeline_stages_are_compared_separately() -> None:
    assert not any(slow for _, slow in compare_times([0.1, 0.1, 0.3, 0.3], 2 * IN_A_ROW, stages=2))
    assert list(compare_times([0.1, 0.1, 0.3, 0.6], IN_A_ROW, stages=2)[-1][1]) == [3]


def test_slower_of_two_workers_is_reported() -> None:
    assert list(compare_times([0.2, 0.1], IN_A_ROW)[-1][1]) == [0]
    assert not any(slow for _, slow in compare_times([0.14, 0.1], 2 * IN_A_ROW))
    assert compare_times([0.1], IN_A_ROW) == []


def test_two_slow_workers_have_their_own_factors() -> None:
    assert compare_times([0.1, 0.1, 0.1, 0.2, 0.7], IN_A_ROW)[-1][1] == pytest.approx({3: 2.0, 4: 7.0})


def test_time_without_polling_does_not_count() -> None:
    monitor = monitor_after_steps(2, hang_s=5.0, step_s=0.1)
    monitor.exclude_gap(1000.0)
    assert monitor.silent_s([0, 1], now_s=1000.9 + 4.0) == 0.0
    assert monitor.step_s() == pytest.approx(0.1)
    assert monitor.silent_s([0, 1], now_s=1000.9 + 6.0) > 0.0


# Full disk


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/x/y"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_full_disk_gives_a_one_line_error_with_its_file_system(error: Exception, tmp_path: Path) -> None:
    words = r"no disk space in checkpoint.*the file system at /.* has .* MB left"
    with pytest.raises(BadInput, match=words) as found, full_disk.explain_full_disk(tmp_path, lambda: "checkpoint"):
        raise error
    assert "\n" not in str(found.value)


def test_torch_write_error_means_a_full_disk_only_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    usage = full_disk.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(full_disk.shutil, "disk_usage", lambda _: usage._replace(free=1 << 40))
    assert not full_disk.is_full(error, tmp_path)
    monkeypatch.setattr(full_disk.shutil, "disk_usage", lambda _: usage._replace(free=4096))
    assert full_disk.is_full(error, tmp_path)
    assert not full_disk.is_full(ValueError("a bug"), tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EFBIG, "File too large", "/x/y"),
        shutil.Error([("a", "b", "[Errno 27] File too large: 'a' -> 'b'")]),
        RuntimeError("a worker said: OSError: [Errno 27] File too large"),
    ],
)
def test_file_size_limit_is_named(error: Exception) -> None:
    assert "or the limit of the file size (ulimit -f) is too low; free some space, and repeat" in full_disk.describe(
        error
    )


def test_other_errors_are_not_described_as_a_full_disk() -> None:
    assert (
        full_disk.describe(ValueError("a bug")) == full_disk.describe(PermissionError(errno.EACCES, "no", "/x")) == ""
    )
    assert full_disk.describe(OSError(errno.ENOSPC, "No space left on device", 3)).startswith("no disk space")


TORCH = "unable to write to file </torch_91_2_0>: No space left on device (28)"


@pytest.mark.parametrize(
    ("error", "shm", "disk", "shared"),
    [
        (RuntimeError(TORCH), 1 << 40, 1 << 40, True),
        (RuntimeError(f"Caught RuntimeError in DataLoader worker process 0.\n{TORCH}"), 0, 0, True),
        (OSError(errno.ENOSPC, "No space left on device"), 0, 1 << 40, True),
        (OSError(errno.ENOSPC, "No space left on device"), 0, 4096, False),
        # the failed file has already been removed
        (OSError(errno.ENOSPC, "No space left on device"), 1 << 40, 1 << 40, False),
        (OSError(errno.ENOSPC, "No space left on device", "/run/a"), 0, 1 << 40, False),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 0, 1 << 40, False),
    ],
)
def test_full_shared_memory_is_distinguished_from_a_full_disk(
    error: Exception, shm: int, disk: int, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = full_disk.shutil.disk_usage(tmp_path)
    free = {full_disk.SHM: shm, tmp_path: disk}
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(full_disk.shutil, "disk_usage", lambda folder: usage._replace(free=free[folder]))
    with pytest.raises(BadInput) as found, full_disk.explain_full_disk(tmp_path, lambda: "step 3"):
        raise error
    message = str(found.value)
    assert ("no shared memory in step 3: /dev/shm" in message, "--shm-size" in message) == (shared, shared)
    assert ("no disk space in step 3" in message) == (not shared)
    assert "\n" not in message


def test_other_errors_are_raised_unchanged(tmp_path: Path) -> None:
    for error in (ValueError("a bug"), BadInput("no such file"), OSError(errno.EACCES, "denied")):
        with pytest.raises(type(error)) as found, full_disk.explain_full_disk(tmp_path, lambda: "step"):
            raise error
        assert found.value is error


def test_file_system_of_a_directory_is_the_deepest_mount() -> None:
    assert full_disk.find_mount(Path("/proc/self"))[0].startswith("/proc")
    assert os.path.ismount(full_disk.find_mount(Path.cwd())[0])
