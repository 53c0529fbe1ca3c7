"""Options that several verbs share, as dataclasses. A verb has one parameter for a group, and the command line has an
option for each field of the group."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from orchestration.cli import options

WORK = Path("work")


@dataclass(frozen=True)
class TextOptions:
    """The scale of a recipe, its text, and the directory of the results."""

    scale: options.Scale = ""
    data: options.Data = None
    holdout_ratio: options.HoldoutRatio = None
    output_dir: options.OutputDir = WORK


@dataclass(frozen=True)
class RunOptions(TextOptions):
    """The options that identify a run: those of its text, and its seed."""

    seed: options.Seed = None


@dataclass(frozen=True)
class TrainingOptions:
    """The options for logging, evaluation, checkpoints and profiling of pretraining."""

    max_steps: options.MaxTrainSteps = None
    resume: options.Resume = "allow"
    log_every: options.LogEvery = None
    eval_every: options.EvalEvery = None
    save_every: options.SaveEvery = None
    profile_steps: options.ProfileSteps = None
    ray_dashboard: options.RayDashboard = False

    def overrides(self) -> list[str]:
        """The options as overrides of the cluster.

        >>> TrainingOptions(log_every=5, ray_dashboard=True).overrides()
        ['cluster.log_every=5', 'cluster.ray_dashboard=true']
        """
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("max_steps", "resume")]
        values = {name: "true" if getattr(self, name) is True else getattr(self, name) for name in names}
        return [f"cluster.{name}={value}" for name, value in values.items() if value not in (None, False)]


@dataclass(frozen=True)
class FinetuningOptions:
    """Values that replace those of the grid of a task. Commas separate the numbers of an option."""

    grid: options.Grid = ""
    learning_rates: options.LearningRates = ""
    batch_sizes: options.BatchSizes = ""
    epochs: options.Epochs = ""
    max_steps: options.MaxSteps = 0
    max_seq_length: options.MaxSeqLength = 0
    frozen_features: options.FrozenFeatures = None
    num_seeds: options.GridSeeds = None
    max_train_samples: options.MaxTrainSamples = ""
    best: options.Best = False
    num_evaluations: options.NumEvaluations = 0
    early_stopping_patience: options.EarlyStoppingPatience = 0

    def values(self) -> dict[str, Any]:
        """The options as arguments of `EvalRequest`. BadInput if a number is invalid."""
        return {
            "grid": self.grid,
            "learning_rates": options.parse_numbers("--learning-rates", self.learning_rates, float),
            "batch_sizes": options.parse_numbers("--batch-sizes", self.batch_sizes, int),
            "epochs": options.parse_numbers("--epochs", self.epochs, float),
            "max_steps": self.max_steps,
            "max_seq_length": self.max_seq_length,
            "frozen_features": self.frozen_features,
            "num_seeds": self.num_seeds or 0,
            "max_train_samples": options.parse_numbers("--max-train-samples", self.max_train_samples, int, least=2),
            "best": self.best,
            "num_evaluations": self.num_evaluations,
            "early_stopping_patience": self.early_stopping_patience,
        }


@dataclass(frozen=True)
class OutputOptions:
    """The format of the result and of the progress."""

    as_json: options.Json = False
    progress: options.Progress = "auto"


@dataclass(frozen=True)
class JobOptions(OutputOptions):
    """The format of the result and of the progress, and --dry-run."""

    dry_run: options.DryRun = field(default=False)


def flatten_options(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb as typer reads it: a parameter for each field of its groups.

    >>> def verb(recipe: str, given: TextOptions) -> int: ...
    >>> list(inspect.signature(flatten_options(verb)).parameters)
    ['recipe', 'scale', 'data', 'holdout_ratio', 'output_dir']
    """
    parameters = inspect.signature(verb).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in parameters.items() if dataclasses.is_dataclass(one.annotation)
    }
    flat: list[inspect.Parameter] = []
    for name, one in parameters.items():
        fields = dataclasses.fields(groups[name]) if name in groups else ()
        flat += [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields
        ]
        flat += [] if name in groups else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @wraps(verb)
    def call_verb(**values: Any) -> int:
        options = {
            name: group(**{each.name: values.pop(each.name) for each in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return verb(**values, **options)

    call_verb.__signature__ = inspect.Signature(flat, return_annotation=int)  # type: ignore[attr-defined]
    call_verb.__annotations__ = {one.name: one.annotation for one in flat} | {"return": int}
    return call_verb
