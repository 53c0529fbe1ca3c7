"""What strikes: each fault says which ends of the command it may lead to, and how its cause is removed."""

import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from orchestration import tracking
from orchestration.launch import RUN
from orchestration.tracking.patience import BEHIND
from preprocessing.lock import OWNER
from tests.chaos.command import Command, new_mark
from tests.chaos.ground import ENVIRONMENT, START_S, is_root
from tests.chaos.scene import Scene
from training.run import CHECKPOINTS

DONE, BAD_INPUT, RESOURCES, PREEMPTED, INTERRUPTED = 0, 2, 4, 75, 130
KILLED: Final = -signal.SIGKILL
HANG_S: Final = 6.0  # patience with a worker that is silent, in points that wait for it
RAN_ON: Final = frozenset({DONE})


class Fault:
    """Nothing happens. Each fault overrides what it needs."""

    ends: frozenset[int] = RAN_ON  # what the start that it strikes may end with
    overrides: tuple[str, ...] = ()

    def lacks(self) -> str:
        """Why it cannot be done on this machine; "" where it can."""
        return ""

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        """What is there as long as the point."""
        yield

    def aim(self, scene: Scene) -> None:
        """Find out whom it will hit."""

    def strike(self, scene: Scene) -> None:
        """Do it."""

    def relieve(self, scene: Scene) -> None:
        """Remove the cause, after the end of the start that it has struck."""


# Processes


class Kill(Fault):
    """SIGKILL, or another signal, of one process."""

    number = signal.SIGKILL
    target: psutil.Process

    def who(self, scene: Scene) -> list[psutil.Process]:
        raise NotImplementedError

    def aim(self, scene: Scene) -> None:
        self.target = self.who(scene)[-1]

    def strike(self, scene: Scene) -> None:
        with suppress(psutil.NoSuchProcess):
            self.target.send_signal(self.number)


class KillWorker(Kill):
    """The last worker."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()


class KillFirstWorker(Kill):
    """The Ray actor that keeps the record and exports."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()[:1]


class KillRaylet(Kill):
    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("raylet")


class KillHead(Kill):
    """Ray's global control store: the head of a cluster."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("gcs_server")


class KillDriver(Kill):
    ends = frozenset({KILLED})

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]


class Terminate(KillDriver):
    """What a scheduler sends before it takes a machine away."""

    number = signal.SIGTERM
    ends = frozenset({PREEMPTED, DONE})  # done: it came when nothing was left to do


class TerminateTwice(Terminate):
    """By an impatient one."""

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(0.05, 1.5))
        super().strike(scene)


class Interrupt(Terminate):
    """Ctrl-C."""

    number = signal.SIGINT
    ends = frozenset({INTERRUPTED, DONE})


class StopWorker(KillWorker):
    """SIGSTOP: nothing ends, nothing answers."""

    number = signal.SIGSTOP
    overrides = (f"cluster.hang_minutes={HANG_S / 60:g}",)


class StopRaylet(KillRaylet):
    """The same of Ray's part of a machine: what a partition of it looks like to the others. It comes back."""

    number = signal.SIGSTOP

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(2, 8))
        with suppress(psutil.NoSuchProcess):
            self.target.send_signal(signal.SIGCONT)


class StopDriver(Kill):
    """Ctrl-Z, and some seconds later `fg`."""

    number = signal.SIGSTOP

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(2, 6))
        self.target.send_signal(signal.SIGCONT)


# Machines


class Partition(Fault):
    """The run has a network of its own (a namespace), whose only interface goes down: all between driver, Ray and
    workers is lost. It comes back after some seconds, before anybody gives up."""

    away_s = (1.0, 4.0)
    ends = frozenset({DONE, RESOURCES})

    def lacks(self) -> str:
        return "" if is_root() else "a network of its own wants root"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        scene.prefix = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
        yield

    def strike(self, scene: Scene) -> None:
        self.link(scene, "down")
        time.sleep(scene.rng.uniform(*self.away_s))
        self.link(scene, "up")

    def link(self, scene: Scene, state: str) -> None:
        with suppress(subprocess.CalledProcessError):  # it has ended meanwhile
            number = str(scene.now.process.pid)
            subprocess.run(["nsenter", "-t", number, "-n", "ip", "link", "set", "lo", state], check=True)


class LongPartition(Partition):
    """It is away until the driver says that it starts again, or ends."""

    overrides = (f"cluster.hang_minutes={HANG_S / 60:g}",)

    def strike(self, scene: Scene) -> None:
        self.link(scene, "down")
        with suppress(Exception):
            scene.now.until(lambda: scene.now.said_s("WARNING: "), 60)
        time.sleep(scene.rng.uniform(0, 2))
        self.link(scene, "up")


class FullDisk(Fault):
    """The output folder is a small disk, and something else fills it."""

    ends = frozenset({BAD_INPUT, RESOURCES, DONE})  # done: nothing was left to write

    def lacks(self) -> str:
        return "" if is_root() else "a mount wants root"

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
        left = os.statvfs(scene.out)
        room = left.f_bavail * left.f_frsize - scene.rng.choice([0, 40_000])
        with (scene.out / "other").open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, room)

    def relieve(self, scene: Scene) -> None:
        (scene.out / "other").unlink(missing_ok=True)


class LimitMemory(KillWorker):
    """A worker gets no more memory from the system: an allocation fails."""

    ends = frozenset({DONE, RESOURCES})

    def strike(self, scene: Scene) -> None:
        with suppress(psutil.NoSuchProcess):
            has = self.target.memory_info().vms
            self.target.rlimit(resource.RLIMIT_AS, (has, has))


class KillForMemory(KillWorker):
    """A worker's control group has no memory left: the kernel ends it."""

    def lacks(self) -> str:
        return "" if memory_groups() else "no control groups of memory that may be written"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        groups = memory_groups()
        assert groups
        self.group = groups / f"chaos-{scene.mark}"
        self.group.mkdir()
        try:
            yield
        finally:
            _removed(self.group)

    def strike(self, scene: Scene) -> None:
        limit = "memory.max" if (self.group / "memory.max").exists() else "memory.limit_in_bytes"
        (self.group / limit).write_text(str(1 << 20))
        with suppress(OSError):
            (self.group / "cgroup.procs").write_text(str(self.target.pid))


def memory_groups() -> Path | None:
    """Where control groups of memory are; None where this process may make none."""
    for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.procs").exists() and os.access(path, os.W_OK):
            return path
    return None


def _removed(group: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


# MLflow


class LockedStore(Fault):
    """Another process holds MLflow's file, until the command has ended."""

    ends = frozenset({DONE, RESOURCES})

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


class DeadServer(Fault):
    """MLflow is a server of its own, which is killed and comes back when the command has ended."""

    ends = frozenset({DONE, RESOURCES})

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
        words = [sys.executable, "-m", "sesame", "ui", "--out", str(scene.out), "--port", str(self.port)]
        self.mark = new_mark()
        self.server = Command(words, ENVIRONMENT, scene.folder / "server.log", self.mark)
        self.server.until(self.listens, START_S, 0.1)

    def listens(self) -> bool:
        """Whether the server takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def strike(self, scene: Scene) -> None:
        self.server.kill_all(self.mark)

    def relieve(self, scene: Scene) -> None:
        self.begin(scene)


class HangingServer(DeadServer):
    """It takes calls and never answers."""

    def strike(self, scene: Scene) -> None:
        os.killpg(self.server.process.pid, signal.SIGSTOP)

    def relieve(self, scene: Scene) -> None:
        os.killpg(self.server.process.pid, signal.SIGCONT)


# Files


class Damage(Fault):
    """A file of the run is damaged while nothing runs: the command is killed first."""

    ends = frozenset({KILLED})
    then = frozenset({DONE})  # what the next start may end with
    cut = False  # its end is missing; else one byte is another one

    def file(self, scene: Scene) -> Path:
        raise NotImplementedError

    def strike(self, scene: Scene) -> None:
        scene.driver().kill()

    def damage(self, scene: Scene) -> None:
        """After the end."""
        self.path = self.file(scene)
        self.before = self.path.read_bytes()
        self.path.write_bytes(damaged(scene, self.before, self.cut))
        scene.notes.append(f"{self.path.relative_to(scene.out)} {'cut' if self.cut else 'with another byte'}")

    def mend(self, scene: Scene) -> None:
        """Bring the file back, where it was refused."""
        self.path.write_bytes(self.before)


def damaged(scene: Scene, content: bytes, cut: bool) -> bytes:
    """Bytes with one that is another one, or without their end."""
    at = scene.rng.randrange(len(content))
    return content[:at] if cut else content[:at] + bytes([content[at] ^ 0x80]) + content[at + 1 :]


class Checkpoint(Damage):
    """A file of the newest one."""

    pattern = "rank-*.safetensors"

    def file(self, scene: Scene) -> Path:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        return scene.rng.choice(sorted(newest.glob(self.pattern)))


class CutCheckpoint(Checkpoint):
    cut = True


class CheckpointManifest(Checkpoint):
    pattern = "manifest.json"


class CutCheckpointState(Checkpoint):
    pattern, cut = "state.json", True


class Shard(Damage):
    """Of the corpus; without it no step can be made again."""

    then = frozenset({BAD_INPUT})

    def file(self, scene: Scene) -> Path:
        return next((scene.out / "corpora").glob("*/train-*.arrow"))


class CutShard(Shard):
    cut = True


class CorpusManifest(Shard):
    def file(self, scene: Scene) -> Path:
        return next((scene.out / "corpora").glob("*/manifest.json"))


class CutRecord(Damage):
    """metrics.jsonl ends within its last line."""

    def file(self, scene: Scene) -> Path:
        return scene.run / tracking.METRICS_FILE

    def damage(self, scene: Scene) -> None:
        path = self.file(scene)
        whole = path.read_bytes()
        begins = whole[:-1].rfind(b"\n") + 1
        path.write_bytes(whole[: scene.rng.randrange(begins, len(whole) - 1)])
        scene.notes.append("metrics.jsonl ends within its last line")


class Record(Damage):
    """A byte of metrics.jsonl that is none of a number."""

    then = frozenset({BAD_INPUT})

    def file(self, scene: Scene) -> Path:
        return scene.run / tracking.METRICS_FILE


class RunFile(Damage):
    """pretrain.json, which each start writes anew."""

    name = RUN

    def file(self, scene: Scene) -> Path:
        return scene.run / self.name


class CutTracked(RunFile):
    """Which MLflow run it is."""

    name, cut, then = tracking.RUN_FILE, True, frozenset({DONE, BAD_INPUT})


class Code(RunFile):
    name = "code.json"
    then = frozenset({DONE, BAD_INPUT})


class Lacks(RunFile):
    """What MLflow lacks, in a file that is garbled."""

    name = BEHIND

    def damage(self, scene: Scene) -> None:
        self.file(scene).write_bytes(b'{"points": 3, "fil')
        scene.notes.append(f"{self.name} cut")


class Lock(RunFile):
    """The name of who holds the lock."""

    name = OWNER

    def damage(self, scene: Scene) -> None:
        self.file(scene).write_bytes(scene.rng.randbytes(20))
        scene.notes.append(f"{self.name} garbled")


class DamageAtWork(KillWorker):
    """A file of the newest checkpoint is damaged while training goes on, then a worker is killed."""

    def strike(self, scene: Scene) -> None:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        path = scene.rng.choice([path for path in newest.iterdir() if path.is_file()])
        path.write_bytes(damaged(scene, path.read_bytes(), scene.rng.random() < 0.5))
        scene.notes.append(f"{path.relative_to(scene.run)} damaged")
        super().strike(scene)
