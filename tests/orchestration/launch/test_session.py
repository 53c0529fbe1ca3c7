"""The Ray session: slow starts, limits, signals, and leftovers of killed commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestration.launch import processes, session
from orchestration.signals import stop_signals
from preprocessing.errors import BadInput, ResourceError
from preprocessing.lock import OWNER, hold_lock

SLOW = Exception("The current node timed out during startup. This could happen because ...")
NO_STORE = RuntimeError("Timed out waiting for file /tmp/session/gcs_server_port_1")


def start(monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> int:
    """Return how often Ray is started if its starts have these outcomes."""
    left = list(outcomes)

    def fake_start(*args: Any) -> None:
        if error := left.pop(0):
            raise error

    monkeypatch.setattr(session, "_start_here", fake_start)
    session._start_with_retry(Path(), 1, 0, False, {})
    return len(outcomes) - len(left)


def test_slow_start_is_retried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, None) == 1
    assert start(monkeypatch, SLOW, None) == 2
    assert start(monkeypatch, NO_STORE, None) == 2


def test_second_slow_start_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match="too busy; repeat the command later"):
        start(monkeypatch, SLOW, SLOW)


def test_other_failure_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no space"):
        start(monkeypatch, OSError("no space"))


@pytest.mark.parametrize("name", session.PATIENCE)
def test_process_timeouts_of_ray_are_at_least_three_minutes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    assert start(monkeypatch, None) == 1
    assert int(os.environ[name]) >= 180


def test_process_timeout_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(session.PATIENCE))
    monkeypatch.setenv(name, "900")
    assert start(monkeypatch, None) == 1
    assert os.environ[name] == "900"


@pytest.mark.parametrize(
    ("workers", "cpus", "gpus", "expected"),
    [(1, 1, 0, 5), (2, 1, 0, 2), (1, 1, 1, 2), (2, 2, 1, 1), (3, 3, 0, 1), (1, 1, 4, 1)],
)
def test_number_of_parallel_groups_is_limited_by_resources(
    workers: int, cpus: int, gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 5.0, "GPU": 2.0, "memory": 1e9})
    assert session.count_free_groups(workers, cpus, gpus) == expected
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 5.0})
    assert session.count_free_groups(1, 1, 1) == 1


@pytest.mark.parametrize(
    ("job", "includes_code"),
    [
        ({}, True),
        ({"runtime_env": None}, True),
        ({"runtime_env": {"env_vars": {"A": "1"}}}, True),
        ({"runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}}, False),
    ],
)
def test_code_is_not_uploaded_again_if_the_ray_job_has_it(
    job: dict[str, Any], includes_code: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray job submit --working-dir .` failed: "Failed to merge the Job's runtime env"."""
    monkeypatch.setenv(session.JOB, json.dumps(job))
    assert ("working_dir" in session._code_to_send()) == includes_code
    monkeypatch.delenv(session.JOB)
    assert "working_dir" in session._code_to_send()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("process", ["RAYLET_EXECUTABLE", "GCS_SERVER_EXECUTABLE"])
def test_ray_starts_with_processes_slower_than_its_default_timeout(
    process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the limits are those of Ray 2.60. If a later version renames them, this test fails after 30
    seconds."""
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
def test_workers_inherit_the_priority_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv(session.NICENESS, raising=False)
    with session.ray_session(cpus=1):
        niceness = ray.remote(lambda: os.nice(0)).remote()
        assert ray.get(niceness) == os.nice(0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigterm_is_handled_while_ray_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray 2.60 restores the default action in C code, which signal.getsignal does not show."""
    from ray._private.node import Node

    ends, seen = Node.kill_all_processes, list[bool]()

    def look(node: Node, *args: Any, **how: Any) -> None:
        seen.append(has_handler(signal.SIGTERM))
        ends(node, *args, **how)

    monkeypatch.setattr(Node, "kill_all_processes", look)
    with stop_signals(), session.ray_session(cpus=1):
        pass
    assert seen
    assert all(seen)


def has_handler(number: signal.Signals) -> bool:
    """Return whether this process has a handler for a signal, according to the kernel."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def test_ray_directories_of_killed_commands_are_deleted(tmp_path: Path) -> None:
    of_killed, of_living, of_others = (tmp_path / f"{session.PREFIX}{name}" for name in ("killed", "living", "others"))
    for folder in (of_killed, of_living, of_others):
        (folder / "session" / "logs").mkdir(parents=True)
    (of_killed / OWNER).write_text('{"pid": 1, "host": "here", "since": "yesterday"}')
    (tmp_path / "raylet").symlink_to(shutil.which("sleep") or "")
    left = subprocess.Popen([str(of_killed), "60"], executable=tmp_path / "raylet")
    other = subprocess.Popen([str(of_killed), "60"], executable="sleep")  # another program reads its logs
    with (of_killed / "session" / "logs" / "agent.log").open("w") as log:  # the process title hides its arguments
        agent = subprocess.Popen(["ray::DashboardAgent", "60"], executable="sleep", stdout=log)
    with hold_lock(of_living):
        session._remove_abandoned(tmp_path)
    assert agent.wait(10) == -signal.SIGKILL  # its raylet had already ended
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raylet", of_living.name, of_others.name]
    assert left.wait(10) == -signal.SIGKILL  # this Ray outlived its command
    assert other.poll() is None
    other.kill()
    other.wait()


def test_an_agent_that_has_just_started_is_found_by_its_arguments_and_a_reader_of_logs_is_not(tmp_path: Path) -> None:
    """A signal during the start of Ray once left such an agent, which then wrote into a removed directory."""
    script = tmp_path / "site-packages" / "ray" / "agent" / "main.py"
    script.parent.mkdir(parents=True)
    script.write_text("import time; time.sleep(60)")
    own = tmp_path / "r"
    agent = subprocess.Popen([sys.executable, str(script), f"--session-dir={own}"])
    reader = subprocess.Popen(["tail", "-f", "/dev/null", str(own / "raylet.err")], stderr=subprocess.DEVNULL)
    try:
        assert [process.pid for process in processes.find_leftover_ray_processes(own)] == [agent.pid]
    finally:
        for child in (agent, reader):
            child.kill()
            child.wait()


def test_directories_of_other_users_and_links_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp, any user can create them. A directory of mode 0700 once ended the command, and a link once made it lock
    a file of the user."""
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


def test_unreadable_directory_does_not_end_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError

    (tmp_path / f"{session.PREFIX}of-another").mkdir()
    monkeypatch.setattr(Path, "is_file", denied)
    session._remove_abandoned(tmp_path)


def test_invalid_ray_tmpdir_gives_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "none", tmp_path / "file"):
        monkeypatch.setenv("RAY_TMPDIR", str(wrong))
        message = rf"^invalid RAY_TMPDIR: got {wrong} \(.*\), expected a writable directory .*; set RAY_TMPDIR to one$"
        with pytest.raises(BadInput, match=message), session.ray_session(cpus=1):
            pytest.fail("Ray was started")


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
def test_too_low_file_size_limit_gives_a_one_line_error_at_once(
    soft: int, hard: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a low `ulimit -f`, the stage "starting Ray" once hung twice for three minutes; the limit must not be raised
    silently."""
    monkeypatch.setattr(session.resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(session.resource, "setrlimit", lambda kind, both: pytest.fail("the limit was raised"))
    message = r"file size limit too low \(ulimit -f\): got .* MB, expected .* `ulimit -f unlimited`"
    with nullcontext() if is_enough else pytest.raises(ResourceError, match=message):
        session._check_file_limit()


DETACHED = """
import os, sys, time
from pathlib import Path
if os.fork():
    os._exit(0)  # the parent ends, so that the process that starts Ray is a child of init
os.setsid()
while os.getppid() != 1:
    time.sleep(0.01)
from orchestration.launch import processes, session
with session.ray_session(cpus=1):
    session._services["raylet"].kill()
    session._services["raylet"].wait()
    assert session.find_fault() == "Ray's raylet"
    session.renew()
    assert session.find_fault() == ""
    Path(sys.argv[1]).write_text("renewed")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_without_parent_survives_its_raylet(tmp_path: Path) -> None:
    """`nohup sesame run &` and a logout; Ray ended such a driver without a message."""
    mark, log = tmp_path / "mark", tmp_path / "log"
    with log.open("wb") as output:
        subprocess.run([sys.executable, "-c", DETACHED, str(mark)], check=True, stdout=output, stderr=output)
    until_s = time.monotonic() + 300
    while not mark.exists() and time.monotonic() < until_s:
        time.sleep(0.5)
    assert mark.exists(), log.read_text()
