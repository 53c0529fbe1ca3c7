"""The state of a point while it is played: its directories, commands and processes."""

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
    """The directories, commands and processes of a point, which faults and moments use."""

    ground: Ground
    folder: Path  # directory of the point, which has all of its files
    mark: int
    rng: random.Random
    verb: str = "train"
    overrides: Sequence[str] = ()
    prefix: Sequence[str] = ()  # words before the command
    environment: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # when the fault was injected, and what it hit
    struck_s: float = 0.0  # time of the strike on the monotonic clock
    tries: int = 0  # number of earlier tries in which the fault hit nothing

    @property
    def out(self) -> Path:
        """The output directory of the command."""
        return self.folder / "out"

    @property
    def ray(self) -> Path:
        """The directory for temporary files of Ray; its path is short because of sockets."""
        return Path("/tmp") / f"chaos-{self.mark}"

    @property
    def store(self) -> Store:
        """The MLflow store of this point."""
        return Store(self.out / "mlflow.db")

    @property
    def run(self) -> Path:
        """The directory of the run; a path that does not exist if there is no run yet."""
        return next(iter((self.out / "runs").glob("bert_base*")), self.out / "runs" / "none")

    @property
    def exported(self) -> Path:
        """The output directory of `sesame export`."""
        return self.out / "exported"

    @property
    def run_id(self) -> str:
        """The ID of the MLflow run; "" if it is not known."""
        with suppress(OSError, ValueError, TypeError):
            if tracked := tracking.existing_run(self.run):
                return tracked.run_id
        return ""

    @property
    def now(self) -> Command:
        """The last command, which may still run."""
        return self.commands[-1]

    def find_line(self, pattern: str) -> str:
        """The first line of the command since the strike that matches a pattern; "" if none does."""
        return self.now.find_line(pattern, self.struck_s)

    def had_printed(self, begins: str) -> bool:
        """Whether the command printed a line with this beginning before the strike."""
        return 0 < self.now.line_time_s(begins) < self.struck_s

    def part(self, most_s: float) -> float:
        """A random time of at most `most_s` seconds, which is halved for each earlier try."""
        return self.rng.uniform(0, most_s / 2**self.tries)

    def start(self) -> Command:
        """Start the command, for the first time or again."""
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
        """The last step in metrics.jsonl; 0 if there is none."""
        try:
            with (self.run / tracking.METRICS_FILE).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - 4096))
                lines = file.read().split(b"\n")
            return json.loads(lines[-2])["step"]
        except (OSError, ValueError, LookupError):
            return 0

    def workers(self) -> list[psutil.Process]:
        """The processes of the workers, ordered by rank; each has the file for its stack traces open."""
        found = dict[int, psutil.Process]()
        files = {str(stacks.file_of(self.run.resolve(), rank)): rank for rank in (0, 1)}
        for process in self.now.below():
            with suppress(psutil.Error):
                if "ray::" in " ".join(process.cmdline()):
                    ranks = [files[opened.path] for opened in process.open_files() if opened.path in files]
                    found |= dict.fromkeys(ranks, process)
        return [found[rank] for rank in sorted(found)]

    def is_at_work(self) -> bool:
        """Whether a process has a file of the run open; workers outlive a killed driver for a short time."""
        for process in marked(self.mark):
            with suppress(psutil.Error):
                if any(Path(opened.path).is_relative_to(self.run.resolve()) for opened in process.open_files()):
                    return True
        return False

    def of_ray(self, name: str) -> list[psutil.Process]:
        """The processes of Ray with a name, such as raylet or gcs_server."""
        found = []
        for process in self.now.below():
            with suppress(psutil.Error):
                if process.name() == name:
                    found.append(process)
        return found

    def driver(self) -> psutil.Process:
        """The process of the command itself, not of its prefix."""
        process = psutil.Process(self.now.process.pid)
        return process
