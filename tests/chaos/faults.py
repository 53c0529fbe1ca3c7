"""What strikes: each fault says which ends of the command it may lead to, whether it has hit anything, what the command
must have said of it, and how its cause is removed."""

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
HANG_S: Final = 6.0  # patience with a worker that is silent, in points that wait for it
RAN_ON: Final = frozenset({DONE})

# lines of the command that show that it has noticed a fault
DIED: Final = r"^WARNING: .*\bdied\b"  # workers or Ray, and the group starts again
HUNG: Final = r"^WARNING: .*\bstacks\b"  # the watchdog
OLDER: Final = r"looking for an older checkpoint"
UNTOLD: Final = r"^WARNING: .*MLflow"  # it lacks something
NO_SPACE: Final = r"disk|[Ss]pace left"
NO_MEMORY: Final = r"memory"


class Fault:
    """Nothing happens. Each fault overrides what it needs."""

    ends: frozenset[int] = RAN_ON  # what the start that it strikes may end with
    overrides: tuple[str, ...] = ()
    runs: Collection[int] = (1,)  # how many MLflow may have in the end

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

    def hit(self, scene: Scene, code: int) -> bool:
        """Whether it has struck anything, asked when the struck start has ended with this code. A point whose fault
        comes too late shows nothing."""
        return True

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        """What the struck start should have said or left, and has not."""
        yield from ()

    def relieve(self, scene: Scene) -> None:
        """Remove the cause, after the end of the start that it has struck."""


# Processes


def signalled(process: psutil.Process, number: int) -> bool:
    """Whether a process got a signal: it had not ended."""
    with suppress(psutil.NoSuchProcess):
        if process.status() != psutil.STATUS_ZOMBIE:
            process.send_signal(number)
            return True
    return False


class Kill(Fault):
    """SIGKILL, or another signal, of one process."""

    number = signal.SIGKILL
    target: psutil.Process
    sent = False  # and it had not ended

    def who(self, scene: Scene) -> list[psutil.Process]:
        raise NotImplementedError

    def aim(self, scene: Scene) -> None:
        self.target = self.who(scene)[-1]

    def strike(self, scene: Scene) -> None:
        self.sent = signalled(self.target, self.number)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent


class KillOfGroup(Kill):
    """A process without which a group of workers does not go on: the driver must say so, as long as it needs one."""

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and (scene.had_said("logging to MLflow") or bool(scene.told(DIED)))


class KillWorker(KillOfGroup):
    """The last worker. When the folder of weights is there, its part in gathering them is done: nobody misses it then,
    and nothing needs to be said."""

    is_done = False

    def strike(self, scene: Scene) -> None:
        self.is_done = (scene.run / WEIGHTS).exists()
        super().strike(scene)

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) or (self.sent and self.is_done)

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()


class KillFirstWorker(KillOfGroup):
    """The Ray actor that keeps the record and exports."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.workers()[:1]


class KillRaylet(KillOfGroup):
    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("raylet")


class KillHead(KillOfGroup):
    """Ray's global control store: the head of a cluster."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("gcs_server")


class KillDriver(Kill):
    ends = frozenset({KILLED})

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]

    def hit(self, scene: Scene, code: int) -> bool:
        return code == KILLED


class Terminate(KillDriver):
    """What a scheduler sends before it takes a machine away. While weights are written it comes too late to stop
    anything: then the run ends as it would have."""

    number = signal.SIGTERM
    ends = frozenset({PREEMPTED, DONE})
    is_late = False

    def strike(self, scene: Scene) -> None:
        self.is_late = scene.verb == "train" and (scene.run / WEIGHTS).exists()
        super().strike(scene)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and (code != DONE or self.is_late)


class TerminateTwice(Terminate):
    """By an impatient one."""

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(0.05, 1.5))
        signalled(self.target, self.number)  # it may have ended


class TerminateOnSlowDisk(Terminate):
    """The disk is slow while a checkpoint is written (25 s for each fsync): what is asked to stop waits for it, and for
    its own last checkpoint, and does not give up."""

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
            yield f"a slow disk cost the last checkpoint: {scene.now.last_line[:300]}"


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
    """SIGSTOP: nothing ends, nothing answers."""

    number = signal.SIGSTOP
    overrides = (f"cluster.hang_timeout_minutes={HANG_S / 60:g}",)

    def hit(self, scene: Scene, code: int) -> bool:
        return self.sent and bool(scene.told(HUNG))

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_stacks(scene)


def without_stacks(scene: Scene) -> Iterator[str]:
    """Where the watchdog has ended a group, the ranks that have left no stacks."""
    for rank in (0, 1) if scene.told(HUNG) else ():
        file = stacks.file_of(scene.run, rank)
        if not file.is_file() or not file.stat().st_size:
            yield f"{file.relative_to(scene.run)} is missing or empty after: {scene.told(HUNG)[:200]}"


class Pause(Kill):
    """SIGSTOP, and some seconds later SIGCONT: nothing is lost."""

    number = signal.SIGSTOP
    away_s = (2.0, 6.0)

    def strike(self, scene: Scene) -> None:
        super().strike(scene)
        time.sleep(scene.rng.uniform(*self.away_s))
        was_stopped = self.target.is_running() and self.target.status() == psutil.STATUS_STOPPED
        self.sent = signalled(self.target, signal.SIGCONT) and was_stopped


class StopRaylet(Pause):
    """Of Ray's part of a machine: what a partition of it looks like to the others."""

    away_s = (2.0, 8.0)

    def who(self, scene: Scene) -> list[psutil.Process]:
        return scene.of_ray("raylet")


class StopDriver(Pause):
    """Ctrl-Z and `fg`."""

    def who(self, scene: Scene) -> list[psutil.Process]:
        return [scene.driver()]


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
        self.is_cut = self.link(scene, "down")
        self.away(scene)
        self.is_back = self.link(scene, "up")

    def away(self, scene: Scene) -> None:
        """Wait for as long as it lasts."""
        time.sleep(scene.rng.uniform(*self.away_s))

    def hit(self, scene: Scene, code: int) -> bool:
        return self.is_cut and (self.is_back or code == RESOURCES)

    def link(self, scene: Scene, state: str) -> bool:
        """Whether the interface is so now; False where the command has ended meanwhile."""
        words = ["nsenter", "-t", str(scene.now.process.pid), "-n", "ip", "link", "set", "lo", state]
        return subprocess.run(words, capture_output=True).returncode == 0


class LongPartition(Partition):
    """It is away until the watchdog has ended the group and the driver starts again, or ends."""

    overrides = (f"cluster.hang_timeout_minutes={HANG_S / 60:g}",)

    def away(self, scene: Scene) -> None:
        with suppress(Missed):
            scene.now.until(lambda: scene.told(DIED) or scene.told(r"restarting"), 180)
        time.sleep(scene.rng.uniform(0, 2))

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) and (bool(scene.told(HUNG)) or code == RESOURCES)

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_stacks(scene)


class FullDisk(Fault):
    """The output folder is a small disk, and something else fills it."""

    ends = frozenset({BAD_INPUT, RESOURCES, DONE})  # done: it could do without what it could not write

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
        spared = scene.rng.choice([0, 40_000])
        for _ in range(20):  # what runs writes too
            left = os.statvfs(scene.out)
            with (scene.out / "other").open("wb") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - spared)
                break

    def hit(self, scene: Scene, code: int) -> bool:
        return code in (BAD_INPUT, RESOURCES) or bool(scene.told(NO_SPACE))

    def relieve(self, scene: Scene) -> None:
        (scene.out / "other").unlink(missing_ok=True)


class LimitMemory(KillWorker):
    """A worker gets no more memory from the system: an allocation fails, and the end says which micro-batch would fit.
    Done: it could do without, or was ended and started again."""

    ends = frozenset({DONE, RESOURCES})

    def strike(self, scene: Scene) -> None:
        with suppress(psutil.NoSuchProcess):
            has = self.target.memory_info().vms
            self.target.rlimit(resource.RLIMIT_AS, (has, has))

    def hit(self, scene: Scene, code: int) -> bool:
        return code == RESOURCES or bool(scene.told(DIED) or scene.told(NO_MEMORY))

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_micro_batch(scene, code)


def without_micro_batch(scene: Scene, code: int) -> Iterator[str]:
    """Where a start has ended for want of memory, that it does not say which micro-batch would fit."""
    said = scene.now.last_line
    if code == RESOURCES and not ("micro_batch_tokens" in said and "would fit" in said):  # the first it had, too
        yield f"says not which micro_batch_tokens would fit: {said[:300]}"


class KillForMemory(KillWorker):
    """A worker's control group has no memory left: the kernel ends it, and the driver says that it was for that."""

    kills = 0  # by the kernel, in that group

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
        with suppress(ProcessLookupError):  # it has ended
            (self.group / "cgroup.procs").write_text(str(self.target.pid))

    def hit(self, scene: Scene, code: int) -> bool:
        return kills_in(self.group) > 0

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        if not (scene.told(DIED) and scene.told(NO_MEMORY)):
            yield f"does not say that a worker died for want of memory ({scene.now.last_line[:200]})"
        yield from without_micro_batch(scene, code)


class KillForMemoryAtLast(KillForMemory):
    """The same where no worker is started again: the end says which micro-batch would fit."""

    ends = frozenset({RESOURCES})
    overrides = ("cluster.max_restarts=0",)

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        return without_micro_batch(scene, code)


def kills_in(group: Path) -> int:
    """How many processes of a control group the kernel has ended for want of memory."""
    for name in ("memory.events", "memory.oom_control"):  # version 2, and version 1
        if (group / name).exists():
            found = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(found.get("oom_kill", 0))
    return 0


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


class NoStore(Fault):
    """MLflow takes nothing: the command says so, or ends."""

    ends = frozenset({DONE, RESOURCES})

    def hit(self, scene: Scene, code: int) -> bool:
        return code == RESOURCES or bool(scene.told(UNTOLD))


class LockedStore(NoStore):
    """Another process holds MLflow's file, until the command has ended."""

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
    """MLflow is a server of its own, which is killed and comes back when the command has ended."""

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


# Between two starts


class Between(Fault):
    """Something happens between two starts: the command is killed first, and the same one must cope with it."""

    ends = frozenset({KILLED})
    then: frozenset[int] = RAN_ON  # what the next start may end with
    of_workers = False  # what happens would be undone, or done to, by workers of the killed command that still write

    def strike(self, scene: Scene) -> None:
        signalled(scene.driver(), signal.SIGKILL)

    def hit(self, scene: Scene, code: int) -> bool:
        return code == KILLED

    def between(self, scene: Scene) -> None:
        """After the end."""

    def seen(self, scene: Scene, code: int) -> bool:
        """Whether the next start, which has ended with this code, has noticed it."""
        return True

    def after(self, scene: Scene, code: int) -> None:
        """Remove the cause, after the next start has ended with this code."""


class LockedBetween(Between):
    """MLflow's file is held by another process when the command starts again, until it has ended."""

    then = frozenset({DONE, RESOURCES})

    def __init__(self) -> None:
        self.store = LockedStore()

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        with self.store.around(scene):
            yield

    def between(self, scene: Scene) -> None:
        self.store.strike(scene)
        scene.notes.append("MLflow's file locked")

    def seen(self, scene: Scene, code: int) -> bool:
        return self.store.hit(scene, code)

    def after(self, scene: Scene, code: int) -> None:
        self.store.relieve(scene)


class Damage(Between):
    """A file of the run is damaged; a start that refuses it names it."""

    cut = False  # its end is missing; else one bit is another one

    def file(self, scene: Scene) -> Path:
        raise NotImplementedError

    def between(self, scene: Scene) -> None:
        self.path = self.file(scene)
        self.before = self.path.read_bytes()
        self.path.write_bytes(self.damaged(scene))
        scene.notes.append(f"{self.path.relative_to(scene.out)} {'cut' if self.cut else 'with another bit'}")

    def damaged(self, scene: Scene) -> bytes:
        """What the file is then."""
        return damaged(scene.rng, self.before, self.cut)

    def seen(self, scene: Scene, code: int) -> bool:
        return code == BAD_INPUT and self.path.name in scene.now.last_line

    def after(self, scene: Scene, code: int) -> None:
        """Bring the file back, where it was refused."""
        if code:
            self.path.write_bytes(self.before)


def damaged(rng: random.Random, content: bytes, cut: bool) -> bytes:
    """Bytes with one bit that is another one, or without their end. A text with another bit is mostly a text."""
    at = rng.randrange(len(content))
    return content[:at] if cut else content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


class Checkpoint(Damage):
    """A file of the newest one."""

    pattern, of_workers = "rank-*.safetensors", True

    def file(self, scene: Scene) -> Path:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        return scene.rng.choice(sorted(newest.glob(self.pattern)))

    def seen(self, scene: Scene, code: int) -> bool:
        return takes_an_older_one(scene)


def takes_an_older_one(scene: Scene) -> bool:
    """Whether the command has found a checkpoint to be damaged."""
    return bool(scene.told(OLDER)) or any((scene.run / CHECKPOINTS).glob("broken-*"))


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
    """metrics.jsonl ends within its last line: as a kill may leave it, so that nothing is said of it."""

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
    """A bit of metrics.jsonl is another one, so that a line is no point any more. Its lines have no checksum: a digit
    that has become another digit, or a letter of a name another letter, is not promised to be noticed."""

    then, of_workers = frozenset({BAD_INPUT}), True

    def file(self, scene: Scene) -> Path:
        return scene.run / tracking.METRICS_FILE

    def damaged(self, scene: Scene) -> bytes:
        while True:
            found = super().damaged(scene)
            if not all(map(is_point, found.split(b"\n")[:-1])):
                return found


def is_point(line: bytes) -> bool:
    """Whether a line of metrics.jsonl has the keys and kinds of values of one.

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
    """pretrain.json, which each start writes anew without reading it."""

    name = RUN

    def file(self, scene: Scene) -> Path:
        return scene.run / self.name

    def seen(self, scene: Scene, code: int) -> bool:
        return self.path.read_bytes() == self.before


class CutTracked(RunFile):
    """Which MLflow run it is: another one takes its place, and the command says so."""

    name, cut, then, runs = tracking.RUN_FILE, True, frozenset({DONE, BAD_INPUT}), (1, 2)

    def seen(self, scene: Scene, code: int) -> bool:
        return bool(scene.told(self.name))


class Code(RunFile):
    """By which code the run was begun: a digest that has changed is told as code that has."""

    name = "code.json"
    then = frozenset({DONE, BAD_INPUT})

    def seen(self, scene: Scene, code: int) -> bool:
        return bool(scene.told("made by different code")) or code == BAD_INPUT


class Lacks(RunFile):
    """What MLflow lacks, in a file that is garbled: it gets all points again, so that nothing needs to be said."""

    name = BEHIND

    def between(self, scene: Scene) -> None:
        self.file(scene).write_bytes(b'{"points": 3, "fil')
        scene.notes.append(f"{self.name} cut")

    def seen(self, scene: Scene, code: int) -> bool:
        return True

    def after(self, scene: Scene, code: int) -> None:
        """It is of no use to bring it back."""


class Lock(RunFile):
    """The name of who holds the lock, which is of no use where nobody holds it."""

    name = OWNER

    def between(self, scene: Scene) -> None:
        self.file(scene).write_bytes(scene.rng.randbytes(20))
        scene.notes.append(f"{self.name} garbled")

    def seen(self, scene: Scene, code: int) -> bool:
        return True

    def after(self, scene: Scene, code: int) -> None:
        """The lock is taken from nobody."""


class DamageAtWork(KillWorker):
    """A file of the newest checkpoint is damaged while training goes on, then a worker is killed: the workers must
    notice it when they start again, unless there is a newer one then."""

    is_newest = False

    def strike(self, scene: Scene) -> None:
        newest = max((scene.run / CHECKPOINTS).glob("step-*"))
        path = scene.rng.choice(sorted(path for path in newest.iterdir() if path.is_file()))
        with suppress(FileNotFoundError):  # a newer one has taken its place
            path.write_bytes(damaged(scene.rng, path.read_bytes(), scene.rng.random() < 0.5))
            scene.notes.append(f"{path.relative_to(scene.run)} damaged")
        super().strike(scene)
        with suppress(Missed):
            scene.now.until(lambda: scene.told(DIED), START_S)
        self.is_newest = path.exists() and max((scene.run / CHECKPOINTS).glob("step-*")) == newest

    def hit(self, scene: Scene, code: int) -> bool:
        return super().hit(scene, code) and self.is_newest

    def wrong(self, scene: Scene, code: int) -> Iterator[str]:
        if not takes_an_older_one(scene):
            yield f"did not notice the damage: {scene.notes[-1]}"
