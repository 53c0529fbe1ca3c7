"""The options of an evaluation: tasks, hyperparameters, resources; and the model that is evaluated."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from orchestration.config import beside_first
from orchestration.jobs import FinetunedSource
from orchestration.launch import WEIGHTS
from preprocessing.errors import BadInput
from training.evaluation.tasks import LABELS, TaskFile
from training.finetuning import Features
from training.optimizers import Updates
from training.specs import EngineSettings

LEAST_LABELS: Final = 2
LEAST_LENGTH: Final = 8  # tokens of a sequence
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
    "best",
    "num_evaluations",
    "early_stopping_patience",
)
BEST_OF: Final = 10  # evaluations on dev with `best`, if neither the command nor the grid sets a number


@dataclass(frozen=True)
class EvalRequest:
    """The options of an evaluation. Options that are not set have the value of the task or of its grid."""

    tasks: Sequence[TaskFile | str]
    task_data_dir: Path | None = None  # directory of the task files
    grid: str = ""  # name of a grid in the task files
    learning_rates: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    epochs: tuple[float, ...] = ()
    max_steps: int = 0
    max_seq_length: int = 0  # maximum tokens of a sequence in fine-tuning
    frozen_features: Features | None = None  # features that heads read from the frozen model
    num_seeds: int = 0  # number of seeds per setting; 0: as in the grid, or SEEDS
    max_train_samples: tuple[int, ...] = ()  # numbers of labeled examples; (): all of a task, or 200 of held-out text
    best: bool = False  # keep the weights with the best dev score of several evaluations
    num_evaluations: int = 0  # evaluations on dev; 0: as in the grid, or BEST_OF with `best`
    early_stopping_patience: int = 0  # evaluations without a better score after which a fine-tuning stops; 0: never
    for_leaderboard: bool = False  # also predict the unlabeled splits of a leaderboard
    with_baseline: bool = False  # also fine-tune a randomly initialized baseline; always set for held-out text
    machine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def machine_of_cell(self) -> EngineSettings:
        """Engine settings of one worker of a trial. An evaluation splits neither models nor sequences between
        workers."""
        return replace(self.machine, tensor_parallel_size=1, pipeline_parallel_size=1, sequence_parallel_size=1)

    def __post_init__(self) -> None:
        if any(labels < LEAST_LABELS for labels in self.max_train_samples):
            raise BadInput(
                f"invalid --max-train-samples: got {', '.join(map(str, self.max_train_samples))}, expected integers "
                f"of at least {LEAST_LABELS}; raise them"
            )
        for name, values, limit, allowed in (
            (
                "learning_rates",
                self.learning_rates,
                Updates.above_all_peaks,
                "learning rates above 0 and below 100, e.g. 3e-5",
            ),
            ("batch_sizes", self.batch_sizes, inf, "integers of at least 1"),
            ("epochs", self.epochs, inf, "numbers above 0"),
        ):
            if wrong := [value for value in values if not 0 < value < limit]:
                raise BadInput(f"invalid {_option(name)}: got {wrong[0]:g}, expected {allowed}; change this value")
        if self.epochs and self.max_steps:
            raise BadInput("--epochs and --max-steps are both given, but only one is allowed; leave one out")
        for name in ("max_steps", "num_seeds", "num_evaluations", "early_stopping_patience"):
            value = getattr(self, name)
            if value < 0:
                raise BadInput(f"invalid {_option(name)}: got {value}, expected an integer of at least 0; raise it")
        if self.max_seq_length and self.max_seq_length < LEAST_LENGTH:
            raise BadInput(
                f"invalid --max-seq-length: got {self.max_seq_length}, expected at least {LEAST_LENGTH} tokens; "
                "raise it"
            )
        if self.task_data_dir is not None and not self.task_data_dir.is_dir():
            raise BadInput(f"--task-data-dir {self.task_data_dir}: no such directory; check the path")
        if self.task_data_dir is None:
            tasks = [task if isinstance(task, str) else beside_first(task) for task in self.tasks]
            object.__setattr__(self, "tasks", tasks)  # code that reads these files need not search for them again

    @property
    def held_out(self) -> list[str]:
        """The tasks that use held-out documents of a corpus."""
        return [task for task in self.tasks if isinstance(task, str)]

    @property
    def held_out_labels(self) -> int:
        """Labeled examples of each fine-tuning on held-out documents; the smallest number if there are several."""
        return min(self.max_train_samples, default=LABELS)

    @property
    def fine_tuning_options(self) -> list[str]:
        """The fine-tuning options that are set, by their command-line names."""
        return [_option(name) for name in TUNING_FLAGS if getattr(self, name)]

    def without(self, tasks: Sequence[str]) -> "EvalRequest":
        """The request without these held-out tasks."""
        return dataclasses.replace(self, tasks=[task for task in self.tasks if task not in tasks])

    def by_labels(self) -> "list[EvalRequest]":
        """One request per number of labeled examples, in ascending order."""
        return [
            dataclasses.replace(self, max_train_samples=(labels,)) for labels in sorted(set(self.max_train_samples))
        ] or [self]


def _option(name: str) -> str:
    """The command-line option of a field, e.g. `--learning-rates` of learning_rates."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class EvalTarget:
    """The model that is evaluated."""

    folder: Path
    hash: str  # hash of everything that its weights depend on
    name: str  # name of its recipe, or of its directory
    parameters: int
    corpus: Path | None = None  # corpus of its held-out documents
    finetuned: FinetunedSource | None = None  # the task head of a fine-tuned model, which is scored without training
    weights: str = WEIGHTS  # directory of the weights, inside `folder`
    expected: Mapping[str, Any] = field(default_factory=dict)  # reported results of its paper
    step: int | None = None  # step of the checkpoint; None: the finished run
    is_published: bool = False  # whether it has the size of a published model
    paper: str = ""  # paper whose grids apply, e.g. bert, electra_small; "": the paper that `name` begins with
    why: str = ""  # the reason for `paper`
    longest_row: int = 0  # longest pretraining sequence in tokens, if later positions are untrained; 0: none or unknown
