"""What an evaluation is asked for: a net, tasks, and how they are to be done."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from orchestration.config import add_task, beside_first, task_of_csv, tasks_of
from orchestration.launch import WEIGHTS
from preprocessing.errors import BadInput
from training.finetuning import Features
from training.optimizers import Updates
from training.specs import EngineSettings
from training.tasks import LABELS, TASKS, TaskFile

log = logging.getLogger(__name__)

LEAST_LABELS: Final = 2
LEAST_LENGTH: Final = 8  # tokens of a row
TUNING_FLAGS: Final = (
    "grid",
    "learning_rates",
    "batch_sizes",
    "epochs",
    "max_steps",
    "max_seq_length",
    "frozen_features",
    "num_seeds",
    "max_train_samples",
)


@dataclass(frozen=True)
class EvalRequest:
    """What an evaluation is asked for; a value that is not given is that of the task or of its grid."""

    tasks: Sequence[TaskFile | str]
    task_data_dir: Path | None = None  # where the files of the tasks lie
    grid: str = ""  # name of a grid of the task files
    learning_rates: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    epochs: tuple[float, ...] = ()
    max_steps: int = 0
    max_seq_length: int = 0  # most tokens of a row of a fine-tuning
    frozen_features: Features | None = None  # what heads read of a frozen net
    num_seeds: int = 0  # fine-tunings of each cell; 0: as many as its grid says, or SEEDS
    max_train_samples: tuple[
        int, ...
    ] = ()  # labelled rows, one or several; (): all that a task has (of held-out documents 200)
    for_leaderboard: bool = False  # also answer the splits of a leaderboard, which have no labels
    with_baseline: bool = False  # random initialisation beside; of held-out documents always
    machine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def machine_of_cell(self) -> EngineSettings:
        """How one worker of a cell runs: an evaluation shares neither nets nor rows."""
        return replace(self.machine, tensor_parallel_size=1, pipeline_parallel_size=1, sequence_parallel_size=1)

    def __post_init__(self) -> None:
        if any(labels < LEAST_LABELS for labels in self.max_train_samples):
            raise BadInput(
                f"max_train_samples are {', '.join(map(str, self.max_train_samples))}, allowed are numbers from "
                f"{LEAST_LABELS} up"
            )
        for name, values, limit, allowed in (
            (
                "learning_rates",
                self.learning_rates,
                Updates.above_all_peaks,
                "learning rates above 0 and below 100, as 3e-5",
            ),
            ("batch_sizes", self.batch_sizes, inf, "whole numbers from 1 up"),
            ("epochs", self.epochs, inf, "numbers above 0"),
        ):
            if wrong := [value for value in values if not 0 < value < limit]:
                raise BadInput(f"{_option(name)} has {wrong[0]:g}, allowed are {allowed}")
        if self.epochs and self.max_steps:
            raise BadInput("--epochs and --max-steps are given, allowed is one of the two")
        for name, given in (("max_steps", self.max_steps), ("num_seeds", self.num_seeds)):
            if given < 0:
                raise BadInput(f"{name} is {given}, allowed is a whole number from 0 up")
        if self.max_seq_length and self.max_seq_length < LEAST_LENGTH:
            raise BadInput(
                f"max_seq_length is {self.max_seq_length}, allowed are numbers of tokens from {LEAST_LENGTH} up"
            )
        if self.task_data_dir is not None and not self.task_data_dir.is_dir():
            raise BadInput(f"--task-data-dir {self.task_data_dir}: no such directory; check the path")
        if self.task_data_dir is None:
            own = [task if isinstance(task, str) else beside_first(task) for task in self.tasks]
            object.__setattr__(self, "tasks", own)  # who reads the files need not ask which come first

    @property
    def held_out(self) -> list[str]:
        """The tasks that are made of documents that a corpus holds out."""
        return [task for task in self.tasks if isinstance(task, str)]

    @property
    def held_out_labels(self) -> int:
        """Labelled rows of each fine-tuning on held-out documents; of several numbers the smallest."""
        return min(self.max_train_samples, default=LABELS)

    @property
    def given(self) -> list[str]:
        """The flags about fine-tunings that are given."""
        return [_option(name) for name in TUNING_FLAGS if getattr(self, name)]

    def without(self, tasks: Sequence[str]) -> "EvalRequest":
        """The same, without these of held-out documents."""
        return dataclasses.replace(self, tasks=[task for task in self.tasks if task not in tasks])

    def by_labels(self) -> "list[EvalRequest]":
        """The same with one number of labelled rows each, the largest last."""
        return [
            dataclasses.replace(self, max_train_samples=(labels,)) for labels in sorted(set(self.max_train_samples))
        ] or [self]


def _option(name: str) -> str:
    """The option of a field: `--learning-rates` of learning_rates."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class EvalTarget:
    """The net that is evaluated."""

    folder: Path
    hash: str  # of what its weights depend on
    name: str  # of its recipe, or of its folder
    parameters: int
    corpus: Path | None = None  # whose documents are held out
    weights: str = WEIGHTS  # folder inside of its folder
    expected: Mapping[str, Any] = field(default_factory=dict)  # figures of its paper
    step: int | None = None  # of a checkpoint; None: the finished run
    is_published: bool = False  # whether it has the size of a published net
    paper: str = ""  # whose grids are its own: bert, electra_small; "": the paper that its name begins with
    why: str = ""  # what says so
    longest_row: int = (
        0  # tokens of its pretraining, behind which it has positions without training; 0: none, or unknown
    )


def tasks_from_words(words: str | Sequence[str], tables: Sequence[str] = ()) -> list[TaskFile | str]:
    """The tasks of names, groups and files (`glue,squad2,mine.yaml`, `next_sentence`) and of tables
    (`my.csv:text,label`), each of them once.

    BadInput where one has no such name, a table does not have the form, two of them have one name, or words name none.
    """
    found = dict[str, tuple[TaskFile | str, str]]()  # by name: the task, and what it was given as
    for word in filter(None, map(str.strip, words.split(",") if isinstance(words, str) else words)):
        for task in [word] if word in TASKS else tasks_of(word):
            add_task(found, task, word)
    if words and not found:
        raise BadInput(f"--tasks {words!r} names no task; `sesame tasks` lists them")
    said = list[str]()
    for given in tables:
        task, line = task_of_csv(given)
        if add_task(found, task, given):
            said.append(line)
    for line in said:
        log.warning("%s", line)
    return [task for task, _ in found.values()]
