"""The connection to Ray: what happens where it is slow to start."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import session
from orchestration.signals import stop_signals
from preprocessing.errors import BadInput, ResourceError
from preprocessing.lock import OWNER, hold_lock

SLOW = Exception("The current node timed out during startup. This could happen because ...")
NO_STORE = RuntimeError("Timed out waiting for file /tmp/session/gcs_server_port_1")


def start(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> int:
    """How often Ray is started when its starts end like this."""
    left = list(outcomes)

    def begin(*args: Any) -> None:
        if error := left.pop(0):
            raise error

    monkeypatch.setattr(session, "_start_here", begin)
    session._start_with_retry(Path(), 1, 0, False, {})
    return len(outcomes) - len(left)


def test_a_start_that_was_too_slow_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, None) == 1
    assert start(monkeypatch, SLOW, None) == 2
    assert start(monkeypatch, NO_STORE, None) == 2


def test_a_machine_that_is_too_busy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match="too busy; repeat the command later"):
        start(monkeypatch, SLOW, SLOW)


def test_any_other_failure_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no space"):
        start(monkeypatch, OSError("no space"))


@pytest.mark.parametrize("name", session.PATIENCE)
def test_ray_gives_each_of_its_processes_minutes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    assert start(monkeypatch, None) == 1
    assert int(os.environ[name]) >= 180


def test_who_wants_to_wait_longer_says_so_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(session.PATIENCE))
    monkeypatch.setenv(name, "900")
    assert start(monkeypatch, None) == 1
    assert os.environ[name] == "900"


@pytest.mark.parametrize(
    ("workers", "cpus", "gpus", "fit"),
    [(1, 1, 0, 5), (2, 1, 0, 2), (1, 1, 1, 2), (2, 2, 1, 1), (3, 3, 0, 1), (1, 1, 4, 1)],
)
def test_groups_run_side_by_side_as_many_as_there_is_room_for_but_at_least_one(
    workers: int, cpus: int, gpus: int, fit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 5.0, "GPU": 2.0, "memory": 1e9})
    assert session.count_free_groups(workers, cpus, gpus) == fit
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 5.0})
    assert session.count_free_groups(1, 1, 1) == 1


@pytest.mark.parametrize(
    ("job", "ships"),
    [
        ({}, True),
        ({"runtime_env": None}, True),
        ({"runtime_env": {"env_vars": {"A": "1"}}}, True),
        ({"runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}}, False),
    ],
)
def test_a_ray_job_that_has_brought_the_code_is_not_given_it_again(
    job: dict[str, Any], ships: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray job submit --working-dir .` failed: "Failed to merge the Job's runtime env"."""
    monkeypatch.setenv(session.JOB, json.dumps(job))
    assert ("working_dir" in session._code_to_send()) == ships
    monkeypatch.delenv(session.JOB)
    assert "working_dir" in session._code_to_send()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("process", ["RAYLET_EXECUTABLE", "GCS_SERVER_EXECUTABLE"])
def test_ray_starts_though_its_processes_take_longer_than_it_gives_them_by_itself(
    process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in Ray 2.60: should a later one call its limits by other names, this test fails after 30 seconds."""
    import ray
    from ray._private import services

    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 40\nexec "{getattr(services, process)}" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(services, process, str(slow))
    monkeypatch.setattr(session, "TOO_SLOW", ())
    with session.ray_session(cpus=1):
        assert ray.is_initialized()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_have_the_priority_of_who_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv(session.NICENESS, raising=False)
    with session.ray_session(cpus=1):
        niceness = ray.remote(lambda: os.nice(0)).remote()
        assert ray.get(niceness) == os.nice(0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigterm_is_ours_while_ray_ends_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray 2.60 puts the system's action in its place, in C, where signal.getsignal does not see it."""
    from ray._private.node import Node

    ends, seen = Node.kill_all_processes, list[bool]()

    def look(node: Node, *args: Any, **how: Any) -> None:
        seen.append(caught(signal.SIGTERM))
        ends(node, *args, **how)

    monkeypatch.setattr(Node, "kill_all_processes", look)
    with stop_signals(), session.ray_session(cpus=1):
        pass
    assert seen
    assert all(seen)


def caught(number: signal.Signals) -> bool:
    """Whether this process has a handler for a signal, as the system knows it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def test_folders_of_ray_whose_command_was_killed_are_removed_and_others_are_not(tmp_path: Path) -> None:
    of_killed, of_living, of_others = (tmp_path / f"{session.PREFIX}{name}" for name in ("killed", "living", "others"))
    for folder in (of_killed, of_living, of_others):
        (folder / "session" / "logs").mkdir(parents=True)
    (of_killed / OWNER).write_text('{"pid": 1, "host": "here", "since": "yesterday"}')
    (tmp_path / "raylet").symlink_to(shutil.which("sleep") or "")
    left = subprocess.Popen([str(of_killed), "60"], executable=tmp_path / "raylet")
    other = subprocess.Popen([str(of_killed), "60"], executable="sleep")  # somebody reads its logs
    with (of_killed / "session" / "logs" / "agent.log").open("w") as log:  # its title hides its arguments
        agent = subprocess.Popen(["ray::DashboardAgent", "60"], executable="sleep", stdout=log)
    with hold_lock(of_living):
        session._remove_abandoned(tmp_path)
    assert agent.wait(10) == -signal.SIGKILL  # its raylet was gone before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raylet", of_living.name, of_others.name]
    assert left.wait(10) == -signal.SIGKILL  # a Ray that outlived its command
    assert other.poll() is None
    other.kill()
    other.wait()


def test_folders_of_another_user_and_links_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp anybody can make them; one of mode 0700 ended the command, and a link led its lock to a file of ours."""
    folder, link = tmp_path / f"{session.PREFIX}killed", tmp_path / f"{session.PREFIX}link"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    folder.mkdir()
    for owner in (folder / OWNER, elsewhere / OWNER):
        owner.write_text("of a killed command")
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: os.geteuid() + 1)
        session._remove_abandoned(tmp_path)
    assert (folder / OWNER).read_text() == (elsewhere / OWNER).read_text() == "of a killed command"
    session._remove_abandoned(tmp_path)
    assert (folder.exists(), (elsewhere / OWNER).exists()) == (False, True)


def test_a_folder_that_cannot_be_looked_into_ends_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError

    (tmp_path / f"{session.PREFIX}of-another").mkdir()
    monkeypatch.setattr(Path, "is_file", denied)
    session._remove_abandoned(tmp_path)


def test_a_folder_for_ray_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "none", tmp_path / "file"):
        monkeypatch.setenv("RAY_TMPDIR", str(wrong))
        said = rf"^invalid RAY_TMPDIR: got {wrong} \(.*\), expected a writable directory .*; set RAY_TMPDIR to one$"
        with pytest.raises(BadInput, match=said), session.ray_session(cpus=1):
            pytest.fail("begun")


@pytest.mark.parametrize(
    ("soft", "hard", "is_enough"),
    [
        (1 << 20, 1 << 20, False),
        (0, 0, False),
        (1 << 20, 1 << 40, False),
        (1 << 20, -1, False),
        (-1, -1, True),
        (1 << 30, 1 << 30, True),
    ],
)
def test_a_limit_of_files_that_ray_cannot_start_with_is_one_line_at_once(
    soft: int, hard: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ulimit -f` left "starting Ray" for three minutes, twice; then it was raised without a word."""
    monkeypatch.setattr(session.resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(session.resource, "setrlimit", lambda kind, both: pytest.fail("raised"))
    said = r"file size limit too low \(ulimit -f\): got .* MB, expected .* `ulimit -f unlimited`"
    with nullcontext() if is_enough else pytest.raises(ResourceError, match=said):
        session._check_file_limit()
