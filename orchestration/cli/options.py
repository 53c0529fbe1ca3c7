"""The arguments and options of the verbs, with their help texts and shell completion."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from orchestration.terminal import complete
from preprocessing.errors import BadInput
from preprocessing.folders import require_local_path

Number = TypeVar("Number", int, float)

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="Recipe name from `sesame recipes`, or a .yaml file.", autocompletion=complete.recipe
    ),
]
RecipeOrCorpus = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|CORPUS",
        help="Recipe, or a corpus: its .yaml file or its name.",
        autocompletion=complete.recipe,
    ),
]
Tokenizer = Annotated[
    str,
    typer.Option(
        metavar="TOKENIZER",
        help="Tokenizer of a CORPUS: file, directory, recipe, or '{kind: KIND, vocab_size: N}'.",
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run directory, run name, or the recipe that was trained.", autocompletion=complete.run
    ),
]
AnyRecipe = Annotated[
    str,
    typer.Argument(
        metavar="[RECIPE]", help="Recipe name or a .yaml file; without it, all recipes.", autocompletion=complete.recipe
    ),
]
OtherRecipe = Annotated[
    str, typer.Option(metavar="RECIPE", help="Compare with this recipe.", autocompletion=complete.recipe)
]
Part = Annotated[
    str,
    typer.Argument(
        metavar="[PART]",
        help="Part, kind or key, e.g. optimizer, adamw, data.tokenizer.",
        autocompletion=complete.part,
    ),
]
AnyTable = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]", help="Ablation table, e.g. albert-sp; without it, list all.", autocompletion=complete.table
    ),
]
AnyTask = Annotated[
    str,
    typer.Argument(
        metavar="[TASK]",
        help="Task, group or .yaml file, e.g. cola, glue; without it, all.",
        autocompletion=complete.task,
    ),
]


def _existing_directory(path: Path | None) -> Path | None:
    """A directory of task files. BadInput if it does not exist."""
    if path is not None and not path.is_dir():
        raise BadInput(f"--task-data-dir {path}: no such directory; check the path")
    return path


def _local_directory(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> Path | None:
    """A directory for results. BadInput if it is not a path of this machine, e.g. a URL."""
    name = option.opts[0] if option.opts[0].startswith("-") else "DIR"
    return path if path is None else require_local_path(name, path)


TaskDataDir = Annotated[
    Path | None,
    typer.Option(
        "--task-data-dir",
        metavar="DIR",
        callback=_existing_directory,
        help="Directory of the task files, as distributed.",
    ),
]
RunOrRecipe = Annotated[
    str,
    typer.Argument(metavar="RUN|RECIPE", help="Run directory, run name, or recipe.", autocompletion=complete.run),
]
RunRecipeOrCorpus = Annotated[
    str,
    typer.Argument(
        metavar="RUN|RECIPE|DIR",
        help="Run directory, run name, recipe, or the directory of a corpus or of its text.",
        autocompletion=complete.run,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Overrides, e.g. optimizer.learning_rate=2e-4; see `sesame keys`.",
        autocompletion=complete.override,
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        metavar="tiny|small",
        help="Shrink the recipe; tiny takes minutes on two cores.",
        autocompletion=complete.scale,
    ),
]
ClusterName = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="CLUSTER",
        help="Cluster name, e.g. one_gpu, 8xh100, or a .yaml file.",
        autocompletion=complete.cluster,
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH", help="Use other text: file, directory, glob or corpus.", autocompletion=complete.corpus
    ),
]
HoldoutRatio = Annotated[
    float | None,
    typer.Option(
        "--holdout-ratio",
        metavar="RATIO",
        help="Hold out this fraction of --data: half for validation, half for tasks.",
        show_default="0.01",
    ),
]
OutputDir = Annotated[
    Path,
    typer.Option("--output-dir", "-o", metavar="DIR", callback=_local_directory, help="Write all results to DIR."),
]
NewFolder = Annotated[Path, typer.Argument(metavar="DIR", callback=_local_directory, help="New directory.")]
Port = Annotated[int, typer.Option(help="Port of the UI on 127.0.0.1.", min=1, max=65535)]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Replace the seed of the recipe.")]
Resume = Annotated[Literal["allow", "never", "must"], typer.Option(help="Resume from the latest checkpoint.")]
Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="URL",
        help="Dashboard of a Ray cluster, http://HOST:8265.",
        show_default="RAY_API_SERVER_ADDRESS",
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Job ID from `sesame submit` or `sesame status`.")]
AnyJob = Annotated[str, typer.Argument(metavar="[JOB]", help="Job ID; without it, all jobs of the cluster.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, all else on stderr.")]
Progress = Annotated[
    Literal["auto", "rich", "plain", "none"], typer.Option(help="Show progress bars, or print a line every 10 s.")
]
Tasks = Annotated[
    str,
    typer.Option(
        "--tasks",
        "--task",
        metavar="A,B",
        help="Evaluate on these tasks, groups or files; see `sesame tasks`.",
        show_default="eval_tasks of the recipe",
        autocompletion=complete.task,
    ),
]
Csv = Annotated[
    list[str] | None,
    typer.Option("--csv", metavar="FILE:TEXT,LABEL", help="Also evaluate on a table with these columns."),
]
NumSeeds = Annotated[int, typer.Option("--num-seeds", metavar="N", min=1, help="Fine-tune each trial with N seeds.")]
GridSeeds = Annotated[
    int | None,
    typer.Option(
        "--num-seeds",
        metavar="N",
        min=1,
        help="Fine-tune each trial with N seeds.",
        show_default="num_seeds of the grid, or 3",
    ),
]
FrozenFeatures = Annotated[
    Literal["none", "last", "last_four", "scalar_mix"] | None,
    typer.Option("--frozen-features", help="Freeze the model and train a head on its hidden states."),
]
MaxTrainSamples = Annotated[
    str,
    typer.Option(
        "--max-train-samples",
        metavar="A,B",
        help="Fine-tune on A (and B) labeled examples.",
        show_default="all; 200 for held-out text",
    ),
]
Grid = Annotated[
    str,
    typer.Option(
        "--grid",
        metavar="NAME",
        help="Use this grid of the task, e.g. bert.",
        show_default="grid of the recipe's paper",
    ),
]
LearningRates = Annotated[
    str, typer.Option("--learning-rates", metavar="A,B", help="Replace the learning rates of the grid.")
]
BatchSizes = Annotated[str, typer.Option("--batch-sizes", metavar="A,B", help="Replace the batch sizes of the grid.")]
Epochs = Annotated[str, typer.Option("--epochs", metavar="A,B", help="Replace the epochs of the grid.")]
MaxSeqLength = Annotated[
    int,
    typer.Option(
        "--max-seq-length", metavar="N", min=0, help="Truncate examples to N tokens.", show_default="value of the task"
    ),
]
MaxTrainSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps", metavar="N", min=2, help="Train for N steps; all phases and the warm-up become shorter."
    ),
]
MaxSteps = Annotated[
    int, typer.Option("--max-steps", metavar="N", min=0, help="Fine-tune for N steps, not epochs.", show_default=False)
]
CheckpointsEvery = Annotated[
    int,
    typer.Option(
        "--checkpoints-every",
        metavar="N",
        min=0,
        help="Also evaluate checkpoints saved every N steps.",
        show_default=False,
    ),
]
Best = Annotated[bool, typer.Option("--best", help="Keep the weights with the best dev score, not the last weights.")]
NumEvaluations = Annotated[
    int,
    typer.Option(
        "--num-evaluations",
        metavar="N",
        min=0,
        help="Evaluate dev N times per fine-tuning, and keep the best weights.",
        show_default="10 with --best",
    ),
]
EarlyStoppingPatience = Annotated[
    int,
    typer.Option(
        "--early-stopping-patience",
        metavar="N",
        min=0,
        help="Stop a fine-tuning after N evaluations without a better dev score.",
        show_default=False,
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="DIR",
        callback=_local_directory,
        help="Save the fine-tuned model to DIR for `transformers`; several to DIR/TASK.",
    ),
]
LeaderboardDir = Annotated[
    Path | None,
    typer.Option(
        "--leaderboard-dir",
        metavar="DIR",
        callback=_local_directory,
        help="Write the files of GLUE's leaderboard to DIR.",
    ),
]
Baseline = Annotated[
    Literal["none", "random_init"],
    typer.Option("--baseline", help="Also fine-tune a randomly initialized baseline."),
]
LogEvery = Annotated[
    int | None,
    typer.Option("--log-every", metavar="N", min=1, help="Log mean metrics every N steps.", show_default="10"),
]
EvalEvery = Annotated[
    int | None,
    typer.Option(
        "--eval-every", metavar="N", min=1, help="Compute the held-out loss every N steps.", show_default="--save-every"
    ),
]
SaveEvery = Annotated[
    int | None,
    typer.Option(
        "--save-every", metavar="N", min=1, help="Save a checkpoint every N steps.", show_default="a quarter of the run"
    ),
]
ProfileSteps = Annotated[
    int | None, typer.Option("--profile-steps", metavar="N", min=1, help="Profile N steps, by phase and operator.")
]
RayDashboard = Annotated[
    bool, typer.Option("--ray-dashboard", help="Serve Ray's dashboard on 127.0.0.1 and print its address.")
]


def parse_numbers(option: str, given: str, kind: type[Number], least: int = 0) -> tuple[Number, ...]:
    """The numbers of an option, separated by commas. BadInput if one is not a number, or is too small.

    >>> parse_numbers("--learning-rates", "1e-3,3e-4", float)
    (0.001, 0.0003)
    """
    try:
        found = tuple(kind(word) for word in given.split(",") if word)
    except ValueError:
        noun = "integers" if kind is int else "numbers"
        raise BadInput(f"invalid {option}: got {given}, expected {noun} with commas; write them like 16,32") from None
    if any(one <= 0 or one < least for one in found):
        limit = f"of at least {least}" if least else "above 0"
        raise BadInput(f"invalid {option}: got {given}, expected numbers {limit}; correct them")
    return found


def parse_amount(option: str, given: str, units: Mapping[str, float], example: str) -> float:
    """The value of a number with a unit, in the unit whose factor is 1.0; 0 for an empty text. BadInput if it is not
    above 0.

    >>> parse_amount("--deadline", "3d", {"d": 24.0, "h": 1.0}, "3d")
    72.0
    """
    if not given:
        return 0.0
    found = re.fullmatch(r"([0-9.eE+]+?)\s*([a-zA-Z]*)", given.strip().lstrip("$"))
    try:
        value = float(found[1]) * units[found[2].lower()] if found else 0.0
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < math.inf:
        raise BadInput(f"invalid {option}: got {given}, expected a number above 0 with a unit; write it like {example}")
    return value


def parse_flops(option: str, given: str, least: float, most: float) -> float:
    """A number of training FLOPs. BadInput if it is not a number from `least` to `most`.

    >>> parse_flops("--compute-optimal", "5.76e23", 1e12, 1e32)
    5.76e+23
    """
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        limits = f"training FLOPs from {least:.0e} to {most:.0e}".replace("e+", "e")
        raise BadInput(f"invalid {option}: got {given or 'an empty value'}, expected {limits}; write them like 1e21")
    return value
