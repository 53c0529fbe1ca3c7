"""A point while it is played: its folders, its commands, its processes."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestration import tracking
from orchestration.launch import stacks
from tests.chaos.command import Command, marked, sesame
from tests.chaos.ground import CLUSTER, ENVIRONMENT, Ground, Store


@dataclass
class Scene:
    """What faults and moments act upon."""

    ground: Ground
    folder: Path  # of the point: all that it writes is below
    mark: int
    rng: random.Random
    verb: str = "train"
    overrides: Sequence[str] = ()
    prefix: Sequence[str] = ()  # words before the command
    environment: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # where and what the fault has hit
    struck_s: float = 0.0  # when it struck, by the monotonic clock
    tries: int = 0  # how often the point was played before, as the fault had hit nothing

    @property
    def out(self) -> Path:
        """The output folder of the command."""
        return self.folder / "out"

    @property
    def ray(self) -> Path:
        """Where Ray's temporary folders are made; a short path, for its sockets."""
        return Path("/tmp") / f"chaos-{self.mark}"

    @property
    def store(self) -> Store:
        """MLflow's, of this point."""
        return Store(self.out / "mlflow.db")

    @property
    def run(self) -> Path:
        """The run's folder; one that does not exist where it is not made yet."""
        return next(iter((self.out / "runs").glob("bert_base*")), self.out / "runs" / "none")

    @property
    def exported(self) -> Path:
        """Where the verb `export` writes."""
        return self.out / "exported"

    @property
    def run_id(self) -> str:
        """Of MLflow's run; "" where none is known."""
        with suppress(OSError, ValueError, TypeError):
            if tracked := tracking.existing_run(self.run):
                return tracked.run_id
        return ""

    @property
    def now(self) -> Command:
        """The command that runs, or ran last."""
        return self.commands[-1]

    def told(self, pattern: str) -> str:
        """The first line of the command since the strike in which a pattern is found; "" where there is none."""
        return self.now.told(pattern, self.struck_s)

    def had_said(self, begins: str) -> bool:
        """Whether the command had said a line that begins so before the strike."""
        return 0 < self.now.said_s(begins) < self.struck_s

    def part(self, most_s: float) -> float:
        """A part of so many seconds; a smaller one each time that the point is played again."""
        return self.rng.uniform(0, most_s / 2**self.tries)

    def start(self) -> Command:
        """The command, from the start or again."""
        for folder in (self.ray, self.folder / "tmp"):
            folder.mkdir(exist_ok=True)
        environment = {**ENVIRONMENT, "RAY_TMPDIR": str(self.ray), "TMPDIR": str(self.folder / "tmp")}
        words = self.ground.words("train", self.out, *CLUSTER, *self.overrides)
        if self.verb == "export":
            words = sesame("export", str(self.run), str(self.exported))
        command = Command(
            [*self.prefix, *words], environment | self.environment, self.folder / "command.log", self.mark
        )
        self.commands.append(command)
        return command

    @property
    def step(self) -> int:
        """The last step in the record; 0 where there is none."""
        try:
            with (self.run / tracking.METRICS_FILE).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - 4096))
                lines = file.read().split(b"\n")
            return json.loads(lines[-2])["step"]
        except (OSError, ValueError, LookupError):
            return 0

    def workers(self) -> list[psutil.Process]:
        """The processes that train, by rank: each has the file for its stacks open."""
        found = dict[int, psutil.Process]()
        files = {str(stacks.file_of(self.run.resolve(), rank)): rank for rank in (0, 1)}
        for process in self.now.below():
            with suppress(psutil.Error):
                if "ray::" in " ".join(process.cmdline()):
                    ranks = [files[opened.path] for opened in process.open_files() if opened.path in files]
                    found |= dict.fromkeys(ranks, process)
        return [found[rank] for rank in sorted(found)]

    def is_at_work(self) -> bool:
        """Whether a process has a file of the run open: workers outlive a driver that is killed by a moment."""
        for process in marked(self.mark):
            with suppress(psutil.Error):
                if any(Path(opened.path).is_relative_to(self.run.resolve()) for opened in process.open_files()):
                    return True
        return False

    def of_ray(self, name: str) -> list[psutil.Process]:
        """The processes of this Ray with a name: raylet, gcs_server."""
        found = []
        for process in self.now.below():
            with suppress(psutil.Error):
                if process.name() == name:
                    found.append(process)
        return found

    def driver(self) -> psutil.Process:
        """The process of the command, below whatever has started it."""
        process = psutil.Process(self.now.process.pid)
        return process
