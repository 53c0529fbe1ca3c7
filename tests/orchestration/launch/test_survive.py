"""Groups of two Ray workers on the mini-world: SIGSTOP, a killed raylet, a full disk, and early signals."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from orchestration.launch import group as launch
from orchestration.launch import heartbeat, running_workers, stacks, worker_polls
from orchestration.launch.processes import ProcessIdentity
from orchestration.launch.worker import StartedWorker
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput, Preempted
from tests.orchestration.launch.mini_group import losses, once_at, run_of, start, trainers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("session"), pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[3]


def raylet() -> psutil.Process:
    (found,) = [each for each in psutil.Process().children() if each.name() == "raylet"]
    return found


def check_same_run(folder: Path, reference_run: Any) -> None:
    """Check that weights and losses equal the undisturbed run to the last bit, and that no partial file is left."""
    for name in ("weights/weights.safetensors", "export/model.safetensors"):
        assert (folder / name).read_bytes() == (reference_run[0] / name).read_bytes()
    assert losses(folder) == losses(reference_run[0])
    assert not list(folder.rglob(".tmp-*"))
    assert not (reference_run[0] / stacks.FOLDER).exists()
    assert not trainers()


def test_stopped_worker_causes_a_restart_with_the_stacks_of_all_workers(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "OTHERS", 15)  # allow two minutes for imports, and for a stop inside a checkpoint
    stop = once_at(20, lambda: trainers()[0].suspend())
    assert (
        start(run_of(corpus, tmp_path), place, on_progress=stop, restart_policy=launch.RestartPolicy(hang_s=8.0))
        == reference_run[1]
    )
    check_same_run(tmp_path, reference_run)
    stacks_by_rank = [stacks.file_of(tmp_path, rank).read_text() for rank in (0, 1)]
    assert sum("its state is stopped" in each for each in stacks_by_rank) == 1
    assert (
        sum("training/loop.py" in each for each in stacks_by_rank) == 1
    )  # the stack of the waiting worker is complete


class UnresponsiveWorker:
    """A worker that stops answering."""

    def start(self, folder: Path) -> StartedWorker:
        self.stacks = stacks.Stacks(folder, 0)
        return StartedWorker(ProcessIdentity.me(), ("", 0), ray.get_runtime_context().get_node_id())

    def hang(self) -> None:
        time.sleep(600)


def test_unresponsive_worker_on_another_node_writes_its_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local signal cannot reach the worker, so a Ray task on its node sends one."""
    worker = ray.remote(UnresponsiveWorker).remote()
    begun = ray.get(worker.start.remote(tmp_path))
    worker.hang.remote()
    elsewhere = replace(begun, node="0a" * (len(begun.node) // 2))
    monkeypatch.setattr(running_workers, "platform", SimpleNamespace(node=lambda: "elsewhere"))
    workers = running_workers.RunningWorkers(started=(begun, elsewhere))
    states = workers.request_stacks(tmp_path, [0, 1])
    assert states[0] in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
    assert states[1] == "on a machine that does not answer either"
    time.sleep(1.0)
    assert "in hang" in stacks.file_of(tmp_path, 0).read_text()
    ray.kill(worker)


def test_sigterm_works_while_a_worker_is_stopped(
    corpus: Path, place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_s = []

    def act() -> None:
        trainers()[0].suspend()
        os.kill(os.getpid(), signal.SIGTERM)
        asked_s.append(time.monotonic())

    with pytest.raises(Preempted, match=r"without a checkpoint of this step, because worker \d did not answer"):
        start(run_of(corpus, tmp_path), place, on_progress=once_at(20, act))
    assert time.monotonic() - asked_s[0] < worker_polls.ANSWER_S + 20
    assert not trainers()


def test_killed_raylet_is_replaced_by_a_new_ray(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    assert start(run_of(corpus, tmp_path), place, on_progress=once_at(20, lambda: raylet().kill())) == reference_run[1]
    check_same_run(tmp_path, reference_run)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a memory file system of this size at `folder`; skip the test if this process may not mount."""
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True
    ).returncode:
        pytest.skip("this process may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def checkpoint_names(folder: Path) -> list[str]:
    """Return the names of the complete checkpoints."""
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.mark.parametrize("at", ["checkpoint", "end"])
def test_full_disk_in_a_worker_gives_a_one_line_error(
    at: str, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "64m"):
        run = run_of(corpus, disk / "run", **({"save_every": 15} if at == "checkpoint" else {"save_every": 1000}))

        kept: list[str] = []

        def fill() -> None:
            workers = trainers()
            while at == "checkpoint" and not checkpoint_names(disk / "run" / "checkpoints"):
                time.sleep(0.01)
            for worker in workers:  # the workers write to the disk too
                worker.suspend()
            kept[:] = checkpoint_names(disk / "run" / "checkpoints")
            with (disk / "other").open("wb") as file:
                left = os.statvfs(disk)
                file.write(b"x" * (left.f_bavail * left.f_frsize - 40_000))
            for worker in workers:
                worker.resume()

        with pytest.raises(
            BadInput, match=rf"{disk}/run/checkpoints: .* \(No space left on device\); free space"
        ) as error:
            start(run, place, on_progress=once_at(20, fill))
        assert "\n" not in str(error.value)
        assert not list(disk.rglob(".tmp-*"))
        assert not (disk / "run" / "weights").exists()
        assert bool(kept) == (at == "checkpoint")
        left = {path.name for path in (disk / "run" / "checkpoints").glob("*")}
        assert set(kept) <= left == set(checkpoint_names(disk / "run" / "checkpoints"))
        (disk / "other").unlink()
        assert start(run, place).finished


PROGRAM = """
import sys
from pathlib import Path
from orchestration import tracking
from orchestration.launch import pretrain
from preprocessing.errors import SesameError
from training.run import Run
folder, out = map(Path, sys.argv[1:])
run = Run.from_json((folder / "asked.json").read_text())
metadata = tracking.Metadata("mini")
def refuse(message, code):
    print(f"sesame: {message}", file=sys.stderr)
    return code
try:
    pretrain(run, num_workers=1, place=tracking.tracking_store(out), metadata=metadata,
             on_progress=lambda event: print(event["stage"], event.get("done", ""), flush=True))
except SesameError as error:
    sys.exit(refuse(str(error), error.exit_code))
except KeyboardInterrupt as error:
    sys.exit(refuse(str(error), 130))
"""


@pytest.mark.parametrize(
    ("stage", "number", "code"),
    [
        ("opening MLflow", signal.SIGTERM, 75),
        ("starting Ray", signal.SIGTERM, 75),
        ("starting Ray", signal.SIGINT, 130),
        ("starting workers", signal.SIGTERM, 75),
        ("importing torch", signal.SIGTERM, 75),
    ],
)
def test_signal_before_the_first_step_ends_with_one_line_and_no_process(
    stage: str, number: int, code: int, corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "asked.json").write_text(run_of(corpus, folder).to_json())
    of_ray = Path(tempfile.mkdtemp(prefix="s-", dir="/tmp"))  # a short path for Ray's sockets
    environment = os.environ | {"RAY_TMPDIR": str(of_ray)}
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "out")]
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE, text=True)
    below: list[psutil.Process] = []
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(stage):
            time.sleep(0.7)
            below = psutil.Process(child.pid).children(recursive=True)
            child.send_signal(number)
            break
    asked_s = time.monotonic()
    _, message = child.communicate(timeout=300)
    assert (child.returncode, len(message.splitlines())) == (code, 1), message
    assert "repeat the command to resume" in message
    assert time.monotonic() - asked_s < 60
    psutil.wait_procs(below, timeout=10)
    assert not [each for each in below if each.is_running()]
    of_ray.rmdir()  # fails if the directory is not empty
