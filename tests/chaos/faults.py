"""Faults: each one defines its allowed exit codes, whether it hit anything, required messages, and its removal."""

import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from orchestration import tracking
from orchestration.launch import RUN, WEIGHTS, stacks
from orchestration.tracking.store_timeout import BEHIND
from preprocessing.lock import OWNER
from tests.chaos.command import Command, Missed, new_mark
from tests.chaos.ground import ENVIRONMENT, ROOT, START_S, is_root
from tests.chaos.scene import Scene
from training.run import CHECKPOINTS

DONE, BAD_INPUT, RESOURCES, PREEMPTED, INTERRUPTED = 0, 2, 4, 75, 130
KILLED: Final = -signal.SIGKILL
HANG_S: Final = 6.0  # hang timeout of points with a silent worker
RAN_ON: Final = frozenset({DONE})

# lines of the command that show that it has detected a fault
DIED: Final = r"^WARNING: .*\bdied\b"  # workers or Ray died, and the group starts again
HUNG: Final = r"^WARNING: .*\bstacks\b"  # the watchdog
OLDER: Final = r"looking for an older checkpoint"
NOT_SYNCED: Final = r"^WARNING: .*MLflow"  # MLflow lacks updates
NO_SPACE: Final = r"disk|[Ss]pace left"
NO_MEMORY: Final = r"memory"


class Fault:
    """The base class of faults, which does nothing; each fault overrides some methods."""

    ends: frozenset[int] = RAN_ON  # allowed exit codes of the start that it strikes
    overrides: tuple[str, ...] = ()
    runs: Collection[int] = (1,)  # allowed numbers of runs in MLflow

    def lacks(self) -> str:
        """The reason why this machine cannot inject the fault; "" if it can."""
        return ""

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        """The environment of the fault, for the whole duration of the point."""
        yield

    def aim(self, scene: Scene) -> None:
        """Find the process to hit."""

    def strike(self, scene: Scene) -> None:
        """Inject the fault."""

    def hit(self, scene: Scene, code: int) -> bool:
        """Whether the fault hit anything, given the exit code of the start. If it came too late, the point proves
        nothing."""
        return True

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        """The messages and files that the start should have produced, but did not."""
        yield from ()

    def relieve(self, scene: Scene) -> None:
        """Remove the cause after the end of the start."""


# Processes


def send_signal(process: psutil.Process, number: int) -> bool:
    """Send a signal to a process; return False if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        if process.status() != psutil.STATUS_ZOMBIE:
            process.send_signal(number)
            return True
    return False


class Kill(Fault):
    """SIGKILL, or another signal, to one process."""

    number = signal.SIGKILL
    target: psutil.Process
    sent = False  # whether the process still existed

    def who(self, scene: Scene) -> list[psutil.Process]:
        raise NotImplementedError

    def aim(self, scene: Scene) -> None:
        self.target = self.who(scene)[-1]

    def strike(self, scene: Scene) -> None:
        self.sent = send_signal(self.target, self.number)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent


class KillOfGroup(Kill):
    """SIGKILL to a process that a group of workers needs; the driver must report it, as long as it needs the group."""

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and (scene.had_printed("logging to MLflow") or bool(scene.find_line(DIED)))


class KillWorker(KillOfGroup):
    """SIGKILL to the last worker. If the directory of weights exists, the worker is no longer needed, and no message is
    required."""

    is_done = False

    def strike(self, scene: Scene) -> None:
        self.is_done = (scene.run / WEIGHTS).exists()
        super().strike(scene)

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) or (self.sent and self.is_done)

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()


class KillFirstWorker(KillOfGroup):
    """SIGKILL to the first worker, which writes metrics.jsonl and exports the weights."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()[:1]


class KillRaylet(KillOfGroup):
    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("raylet")


class KillHead(KillOfGroup):
    """SIGKILL to the global control store of Ray, the head of a cluster."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("gcs_server")


class KillDriver(Kill):
    ends = frozenset({KILLED})

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]

    def hit(self, scene: Scene, code: int) -> bool:
        return code == KILLED


class Terminate(KillDriver):
    """SIGTERM, which a scheduler sends before it takes a machine away. While weights are written it is too late to
    stop, and the run finishes."""

    number = signal.SIGTERM
    ends = frozenset({PREEMPTED, DONE})
    is_late = False

    def strike(self, scene: Scene) -> None:
        self.is_late = scene.verb == "train" and (scene.run / WEIGHTS).exists()
        super().strike(scene)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and (code != DONE or self.is_late)


class TerminateTwice(Terminate):
    """SIGTERM twice, as some schedulers send it."""

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(0.05, 1.5))
        send_signal(self.target, self.number)  # the process may have ended


class TerminateOnSlowDisk(Terminate):
    """SIGTERM while a checkpoint is written to a slow disk (25 s for each fsync): the run must wait for it and for its
    last checkpoint."""

    SLOW_S = 25.0

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        site, self.slow = scene.folder / "site", scene.folder / "slow"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SLOW_FSYNC.format(slow=str(self.slow)))
        scene.environment["PYTHONPATH"] = f"{site}:{ROOT}"
        yield

    def strike(self, scene: Scene) -> None:
        self.slow.touch()
        super().strike(scene)
        time.sleep(self.SLOW_S)
        self.slow.unlink()

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        if "without a checkpoint" in scene.now.last_line:
            yield f"lost the last checkpoint because of a slow disk: {scene.now.last_line[:300]}"


SLOW_FSYNC: Final = """
import os, time
fast = os.fsync

def slow(handle):
    fast(handle)
    while os.path.exists({slow!r}):
        time.sleep(0.05)

os.fsync = slow
"""


class Interrupt(Terminate):
    """Ctrl-C."""

    number = signal.SIGINT
    ends = frozenset({INTERRUPTED, DONE})


class StopWorker(KillWorker):
    """SIGSTOP to a worker, which then neither ends nor responds."""

    number = signal.SIGSTOP
    overrides = (f"cluster.hang_timeout_minutes={HANG_S / 60:g}",)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and bool(scene.find_line(HUNG))

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_stacks(scene)


def without_stacks(scene: Scene) -> Iterator[str]:
    """The ranks without a file of stack traces, after the watchdog has ended a group."""
    for rank in (0, 1) if scene.find_line(HUNG) else ():
        file = stacks.file_of(scene.run, rank)
        if not file.is_file() or not file.stat().st_size:
            yield f"{file.relative_to(scene.run)} is missing or empty after: {scene.find_line(HUNG)[:200]}"


class Pause(Kill):
    """SIGSTOP, and SIGCONT some seconds later; nothing may be lost."""

    number = signal.SIGSTOP
    away_s = (2.0, 6.0)

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(*self.away_s))
        was_stopped = self.target.is_running() and self.target.status() == psutil.STATUS_STOPPED
        self.sent = send_signal(self.target, signal.SIGCONT) and was_stopped


class StopRaylet(Pause):
    """A pause of the raylet, which other machines see as a network partition."""

    away_s = (2.0, 8.0)

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("raylet")


class StopDriver(Pause):
    """A pause of the driver, as with Ctrl-Z and `fg`."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]


# Machines


class Partition(Fault):
    """The run has its own network namespace, whose only interface goes down for some seconds, less than any timeout.
    Meanwhile driver, Ray and workers cannot communicate."""

    away_s = (1.0, 4.0)
    ends = frozenset({DONE, RESOURCES})

    def lacks(self) -> str:
        return "" if is_root() else "a network namespace needs root"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        scene.prefix = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
        yield

    def strike(self, scene: Scene) -> None:
        self.is_cut = self.link(scene, "down")
        self.away(scene)
        self.is_back = self.link(scene, "up")

    def away(self, scene: Scene) -> None:
        """Wait for the duration of the partition."""
        time.sleep(scene.rng.uniform(*self.away_s))

    def hit(self, scene: Scene, code: int) -> bool:
        return self.is_cut and (self.is_back or code == RESOURCES)

    def link(self, scene: Scene, state: str) -> bool:
        """Set the state of the interface; return False if the command has ended in the meantime."""
        words = ["nsenter", "-t", str(scene.now.process.pid), "-n", "ip", "link", "set", "lo", state]
        return subprocess.run(words, capture_output=True).returncode == 0


class LongPartition(Partition):
    """The interface is down until the watchdog has ended the group, and the driver restarts it or ends."""

    overrides = (f"cluster.hang_timeout_minutes={HANG_S / 60:g}",)

    def away(self, scene: Scene) -> None:
        with suppress(Missed):
            scene.now.until(lambda: scene.find_line(DIED) or scene.find_line(r"restarting"), 180)
        time.sleep(scene.rng.uniform(0, 2))

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) and (bool(scene.find_line(HUNG)) or code == RESOURCES)

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_stacks(scene)


class FullDisk(Fault):
    """The output directory is a small disk, which another file fills."""

    ends = frozenset({BAD_INPUT, RESOURCES, DONE})  # DONE if the missing files were not essential

    def lacks(self) -> str:
        return "" if is_root() else "a mount needs root"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        kept = scene.folder / "kept"
        scene.out.rename(kept)
        scene.out.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "none", str(scene.out)], check=True)
        try:
            shutil.copytree(kept, scene.out, dirs_exist_ok=True)
            shutil.rmtree(kept)
            yield
        finally:
            subprocess.run(["umount", "-l", str(scene.out)], check=True)

    def strike(self, scene: Scene) -> None:
        spared = scene.rng.choice([0, 40_000])
        for _ in range(20):  # the run writes at the same time
            left = os.statvfs(scene.out)
            with (scene.out / "other").open("wb") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - spared)
                break

    def hit(self, scene: Scene, code: int) -> bool:
        return code in (BAD_INPUT, RESOURCES) or bool(scene.find_line(NO_SPACE))

    def relieve(self, scene: Scene) -> None:
        (scene.out / "other").unlink(missing_ok=True)


class LimitMemory(KillWorker):
    """A worker gets no more memory from the system. An allocation fails; the error names a micro-batch that fits."""

    ends = frozenset({DONE, RESOURCES})  # DONE if it needed no more memory, or was restarted

    def strike(self, scene: Scene) -> None:
        with suppress(psutil.NoSuchProcess):
            has = self.target.memory_info().vms
            self.target.rlimit(resource.RLIMIT_AS, (has, has))

    def hit(self, scene: Scene, code: int) -> bool:
        return code == RESOURCES or bool(scene.find_line(DIED) or scene.find_line(NO_MEMORY))

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_micro_batch(scene, code)


def without_micro_batch(scene: Scene, code: int) -> Iterator[str]:
    """A fault if a start ran out of memory and did not name a micro-batch that fits."""
    line = scene.now.last_line
    if code == RESOURCES and not (
        "micro_batch_tokens" in line and "would fit" in line
    ):  # an error without a proposal names the key too
        yield f"does not name micro_batch_tokens that would fit: {line[:300]}"


class KillForMemory(KillWorker):
    """The kernel kills a worker because its control group has no memory left, and the driver reports the reason."""

    kills = 0  # number of processes that the kernel killed in the group

    def lacks(self) -> str:
        return "" if memory_groups() else "control groups of memory are not writable"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        groups = memory_groups()
        assert groups
        self.group = groups / f"chaos-{scene.mark}"
        self.group.mkdir()
        try:
            yield
        finally:
            _remove_group(self.group)

    def strike(self, scene: Scene) -> None:
        limit = "memory.max" if (self.group / "memory.max").exists() else "memory.limit_in_bytes"
        (self.group / limit).write_text(str(1 << 20))
        with suppress(ProcessLookupError):  # the process has ended
            (self.group / "cgroup.procs").write_text(str(self.target.pid))

    def hit(self, scene: Scene, code: int) -> bool:
        return kills_in(self.group) > 0

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        if not (scene.find_line(DIED) and scene.find_line(NO_MEMORY)):
            yield f"does not report that a worker ran out of memory ({scene.now.last_line[:200]})"
        yield from without_micro_batch(scene, code)


class KillForMemoryAtLast(KillForMemory):
    """The same without restarts; the error of the command names a micro-batch that fits."""

    ends = frozenset({RESOURCES})
    overrides = ("cluster.max_restarts=0",)

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_micro_batch(scene, code)


def kills_in(group: Path) -> int:
    """The number of processes of a control group that the kernel killed because they ran out of memory."""
    for name in ("memory.events", "memory.oom_control"):  # versions 2 and 1 of control groups
        if (group / name).exists():
            found = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(found.get("oom_kill", 0))
    return 0


def memory_groups() -> Path | None:
    """The directory of memory control groups; None if this process may not create groups."""
    for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.procs").exists() and os.access(path, os.W_OK):
            return path
    return None


def _remove_group(group: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


# MLflow


class NoStore(Fault):
    """MLflow accepts no updates; the command reports it or ends."""

    ends = frozenset({DONE, RESOURCES})

    def hit(self, scene: Scene, code: int) -> bool:
        return code == RESOURCES or bool(scene.find_line(NOT_SYNCED))


class LockedStore(NoStore):
    """Another process locks the database of MLflow until the command has ended."""

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        self.holder: sqlite3.Connection | None = None
        try:
            yield
        finally:
            self.relieve(scene)

    def strike(self, scene: Scene) -> None:
        self.holder = sqlite3.connect(scene.store.file, isolation_level=None, timeout=60, check_same_thread=False)
        self.holder.execute("BEGIN EXCLUSIVE")

    def relieve(self, scene: Scene) -> None:
        if self.holder:
            self.holder.close()
            self.holder = None


class DeadServer(NoStore):
    """The MLflow server is killed, and started again when the command has ended."""

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        scene.environment["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.port}"
        self.begin(scene)
        try:
            yield
        finally:
            self.server.kill_all(self.mark)

    def begin(self, scene: Scene) -> None:
        """Start the server, and wait until it listens."""
        words = [sys.executable, "-m", "sesame", "ui", "--output-dir", str(scene.out), "--port", str(self.port)]
        self.mark = new_mark()
        self.server = Command(words, ENVIRONMENT, scene.folder / "server.log", self.mark)
        self.server.until(self.listens, START_S, 0.1)

    def listens(self) -> bool:
        """Whether the server accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def strike(self, scene: Scene) -> None:
        self.server.kill_all(self.mark)

    def relieve(self, scene: Scene) -> None:
        self.begin(scene)


class HangingServer(DeadServer):
    """The MLflow server accepts requests and never responds."""

    def strike(self, scene: Scene) -> None:
        os.killpg(self.server.process.pid, signal.SIGSTOP)

    def relieve(self, scene: Scene) -> None:
        os.killpg(self.server.process.pid, signal.SIGCONT)


# Between two starts


class Between(Fault):
    """The command is killed, something happens, and the next start of the command must handle it."""

    ends = frozenset({KILLED})
    then: frozenset[int] = RAN_ON  # allowed exit codes of the next start
    of_workers = False  # whether workers of the killed command may still write the affected file

    def strike(self, scene: Scene) -> None:
        send_signal(scene.driver(), signal.SIGKILL)

    def hit(self, scene: Scene, code: int) -> bool:
        return code == KILLED

    def between(self, scene: Scene) -> None:
        """Inject the fault after the end of the first start."""

    def seen(self, scene: Scene, code: int) -> bool:
        """Whether the next start, which ended with this code, detected the fault."""
        return True

    def after(self, scene: Scene, code: int) -> None:
        """Remove the cause after the next start, which ended with this code."""


class LockedBetween(Between):
    """Another process locks the database of MLflow during the next start of the command."""

    then = frozenset({DONE, RESOURCES})

    def __init__(self) -> None:
        self.store = LockedStore()

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        with self.store.around(scene):
            yield

    def between(self, scene: Scene) -> None:
        self.store.strike(scene)
        scene.notes.append("database of MLflow locked")

    def seen(self, scene: Scene, code: int) -> bool:
        return self.store.hit(scene, code)

    def after(self, scene: Scene, code: int) -> None:
        self.store.relieve(scene)


class Damage(Between):
    """A file of the run is damaged; a start that rejects the file names it."""

    cut = False  # whether the file is truncated; otherwise one bit is flipped

    def file(self, scene: Scene) -> Path:
        raise NotImplementedError

    def between(self, scene: Scene) -> None:
        self.path = self.file(scene)
        self.before = self.path.read_bytes()
        self.path.write_bytes(self.damaged(scene))
        scene.notes.append(f"{self.path.relative_to(scene.out)} {'truncated' if self.cut else 'with a flipped bit'}")

    def damaged(self, scene: Scene) -> bytes:
        """The damaged content of the file."""
        return damaged(scene.rng, self.before, self.cut)

    def seen(self, scene: Scene, code: int) -> bool:
        return code == BAD_INPUT and self.path.name in scene.now.last_line

    def after(self, scene: Scene, code: int) -> None:
        """Restore the file if it was rejected."""
        if code:
            self.path.write_bytes(self.before)


def damaged(rng: random.Random, content: bytes, cut: bool) -> bytes:
    """Bytes with one flipped bit, or truncated. A text with a flipped bit usually still is a valid text."""
    at = rng.randrange(len(content))
    return content[:at] if cut else content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


class Checkpoint(Damage):
    """A damaged file of the newest checkpoint."""

    pattern, of_workers = "rank-*.safetensors", True

    def file(self, scene: Scene) -> Path:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        return scene.rng.choice(sorted(newest.glob(self.pattern)))

    def seen(self, scene: Scene, code: int) -> bool:
        return takes_an_older_one(scene)


def takes_an_older_one(scene: Scene) -> bool:
    """Whether the command detected a damaged checkpoint."""
    return bool(scene.find_line(OLDER)) or any((scene.run / CHECKPOINTS).glob("broken-*"))


class CutCheckpoint(Checkpoint):
    cut = True


class CheckpointManifest(Checkpoint):
    pattern = "manifest.json"


class CutCheckpointState(Checkpoint):
    pattern, cut = "state.json", True


class Shard(Damage):
    """A damaged shard of the corpus, without which no step can be repeated."""

    then = frozenset({BAD_INPUT})

    def file(self, scene: Scene) -> Path:
        return next((scene.out / "corpora").glob("*/train-*.arrow"))


class CutShard(Shard):
    cut = True


class CorpusManifest(Shard):
    def file(self, scene: Scene) -> Path:
        return next((scene.out / "corpora").glob("*/manifest.json"))


class CutRecord(Damage):
    """metrics.jsonl ends within its last line, as after a kill, so that no message is required."""

    of_workers = True

    def file(self, scene: Scene) -> Path:
        return scene.run / tracking.METRICS_FILE

    def damaged(self, scene: Scene) -> bytes:
        begins = self.before[:-1].rfind(b"\n") + 1
        self.cut = True
        return self.before[: scene.rng.randrange(begins, len(self.before) - 1)]

    def seen(self, scene: Scene, code: int) -> bool:
        return True


class Record(Damage):
    """A bit of metrics.jsonl is flipped, so that a line becomes invalid. The lines have no checksum, so a changed digit
    or letter need not be detected."""

    then, of_workers = frozenset({BAD_INPUT}), True

    def file(self, scene: Scene) -> Path:
        return scene.run / tracking.METRICS_FILE

    def damaged(self, scene: Scene) -> bytes:
        while True:
            found = super().damaged(scene)
            if not all(map(is_point, found.split(b"\n")[:-1])):
                return found


def is_point(line: bytes) -> bool:
    """Whether a line of metrics.jsonl has the keys and the types of values of a valid line.

    >>> is_point(b'{"step": 2, "time": 1.5, "metrics": {"train/loss": null}}'), is_point(b'{"step": 2, "tame": 1.5}')
    (True, False)
    """
    try:
        value = json.loads(line)
        numbers = [value["step"], value["time"], *(one or 0.0 for one in value["metrics"].values())]
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return all(isinstance(number, int | float) for number in numbers)


class RunFile(Damage):
    """A damaged pretrain.json, which each start writes again without reading it."""

    name = RUN

    def file(self, scene: Scene) -> Path:
        return scene.run / self.name

    def seen(self, scene: Scene, code: int) -> bool:
        return self.path.read_bytes() == self.before


class CutTracked(RunFile):
    """A damaged file with the ID of the MLflow run: a new run replaces it, and the command reports it."""

    name, cut, then, runs = tracking.RUN_FILE, True, frozenset({DONE, BAD_INPUT}), (1, 2)

    def seen(self, scene: Scene, code: int) -> bool:
        return bool(scene.find_line(self.name))


class Code(RunFile):
    """A damaged digest of the code that started the run, which is reported as a change of the code."""

    name = "code.json"
    then = frozenset({DONE, BAD_INPUT})

    def seen(self, scene: Scene, code: int) -> bool:
        return bool(scene.find_line("made by different code")) or code == BAD_INPUT


class Lacks(RunFile):
    """A damaged file of pending updates of MLflow: MLflow receives all points again, so that no message is required."""

    name = BEHIND

    def between(self, scene: Scene) -> None:
        self.file(scene).write_bytes(b'{"points": 3, "fil')
        scene.notes.append(f"{self.name} cut")

    def seen(self, scene: Scene, code: int) -> bool:
        return True

    def after(self, scene: Scene, code: int) -> None:
        """Do not restore the file, because nothing needs it."""


class Lock(RunFile):
    """A damaged name of the owner of the lock, which has no effect while nobody holds the lock."""

    name = OWNER

    def between(self, scene: Scene) -> None:
        self.file(scene).write_bytes(scene.rng.randbytes(20))
        scene.notes.append(f"{self.name} garbled")

    def seen(self, scene: Scene, code: int) -> bool:
        return True

    def after(self, scene: Scene, code: int) -> None:
        """Do not restore the file, because nobody holds the lock."""


class DamageAtWork(KillWorker):
    """A file of the newest checkpoint is damaged during training, and a worker is killed. The restarted workers must
    detect the damage, unless there is a newer checkpoint."""

    is_newest = False

    def strike(self, scene: Scene) -> None:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        path = scene.rng.choice(sorted(path for path in newest.iterdir() if path.is_file()))
        with suppress(FileNotFoundError):  # a newer checkpoint has replaced it
            path.write_bytes(damaged(scene.rng, path.read_bytes(), scene.rng.random() < 0.5))
            scene.notes.append(f"{path.relative_to(scene.run)} damaged")
        super().strike(scene)
        with suppress(Missed):
            scene.now.until(lambda: scene.find_line(DIED), START_S)
        self.is_newest = path.exists() and max((scene.run / CHECKPOINTS).glob("step-*")) == newest

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) and self.is_newest

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        if not takes_an_older_one(scene):
            yield f"did not detect the damage: {scene.notes[-1]}"
