"""The arguments and options that the verbs of cli.py share or complete, and what `--help` says of them."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from orchestration.terminal import complete
from preprocessing.errors import BadInput
from preprocessing.folders import local

Number = TypeVar("Number", int, float)

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A name from `sesame recipes`, or a .yaml file.", autocompletion=complete.recipe
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run folder, its name, or the recipe that was trained.", autocompletion=complete.run
    ),
]
AnyRecipe = Annotated[
    str,
    typer.Argument(
        metavar="[RECIPE]", help="A name or a .yaml file; none: all of them.", autocompletion=complete.recipe
    ),
]
OtherRecipe = Annotated[
    str, typer.Option(metavar="RECIPE", help="Say how this other recipe differs.", autocompletion=complete.recipe)
]
Part = Annotated[
    str,
    typer.Argument(
        metavar="[PART]",
        help="As optim, optim.adamw, spans, data.tokenizer, optimizer.learning_rate; none: all.",
        autocompletion=complete.part,
    ),
]
AnyTable = Annotated[
    str,
    typer.Argument(metavar="[NAME]", help="albert-sp, ...; none: the tables there are.", autocompletion=complete.table),
]
AnyTask = Annotated[
    str,
    typer.Argument(
        metavar="[TASK]", help="cola, glue, a .yaml file, ...; none: all of them.", autocompletion=complete.task
    ),
]


def _folder(given: Path | None) -> Path | None:
    """A folder of data, before anything begins; BadInput where it is not there."""
    if given is not None and not given.is_dir():
        raise BadInput(f"--data-dir {given}: no such folder; check the path")
    return given


def _to_write(context: typer.Context, option: typer.CallbackParam, given: Path | None) -> Path | None:
    """A folder of this machine, in which results are written; BadInput, before anything begins, where it is none."""
    what = option.opts[-1] if option.opts[-1].startswith("-") else "DIR"
    return given if given is None else local(what, given)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", callback=_folder, help="Where the files of the tasks lie, as distributed."
    ),
]
RunOrRecipe = Annotated[
    str,
    typer.Argument(metavar="RUN|RECIPE", help="A run folder or its name, or a recipe.", autocompletion=complete.run),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="As optimizer.learning_rate=2e-4; `sesame keys` lists the keys.",
        autocompletion=complete.override,
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        metavar="tiny|small",
        help="Shrink the recipe: tiny takes minutes on two cores.",
        autocompletion=complete.scale,
    ),
]
On = Annotated[
    str,
    typer.Option(
        metavar="CLUSTER", help="local, one_gpu, 8xh100, ..., or a .yaml file.", autocompletion=complete.cluster
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Other text: file, folder, glob, corpus.", autocompletion=complete.corpus),
]
HoldOut = Annotated[float | None, typer.Option(metavar="SHARE", help="Of --data, for validation and tasks; else .01.")]
Out = Annotated[Path, typer.Option(metavar="DIR", callback=_to_write, help="Where everything is written.")]
NewFolder = Annotated[Path, typer.Argument(metavar="DIR", callback=_to_write, help="A new folder.")]
Port = Annotated[int, typer.Option(help="Of the UI, on 127.0.0.1.", min=1, max=65535)]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Another seed than the recipe's.")]
Resume = Annotated[Literal["allow", "never", "must"], typer.Option(help="Whether to go on from a checkpoint.")]
Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="URL",
        help="The dashboard of a Ray cluster: http://HOST:8265; else RAY_API_SERVER_ADDRESS.",
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Its id, from `sesame submit` or `sesame status`.")]
AnyJob = Annotated[str, typer.Argument(metavar="[JOB]", help="Its id; none: all jobs of the cluster.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")]
Progress = Annotated[Literal["auto", "rich", "plain", "none"], typer.Option(help="Bars, or a line every ten seconds.")]
Tasks = Annotated[
    str,
    typer.Option(
        "--tasks",
        "--task",
        metavar="A,B",
        help="As glue,squad2,mine.yaml; `sesame tasks` lists them. None: those of its recipe.",
        autocompletion=complete.task,
    ),
]
Csv = Annotated[
    list[str] | None, typer.Option("--csv", metavar="FILE:TEXT,LABEL", help="A task of your own table; with --task.")
]
Seeds = Annotated[int, typer.Option(metavar="N", min=1, help="Fine-tunings of each cell of a grid.")]
GridSeeds = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", min=1, help="Fine-tunings of each cell; else as its grid says, or 3."),
]
Features = Annotated[
    Literal["none", "last", "last_four", "mix"] | None,
    typer.Option("--features", help="Freeze the net: the head reads its last states, those of four layers, or a mix."),
]
Labels = Annotated[
    str,
    typer.Option(metavar="A,B", help="Labelled rows of a fine-tuning; else all, of held-out text 200."),
]
Grid = Annotated[str, typer.Option("--grid", metavar="NAME", help="As bert, roberta; else the one of the net's paper.")]
Rates = Annotated[str, typer.Option("--rates", metavar="A,B", help="Learning rates, in place of the grid's.")]
Batches = Annotated[str, typer.Option("--batches", metavar="A,B", help="Batches of examples, in place of the grid's.")]
Epochs = Annotated[str, typer.Option("--epochs", metavar="A,B", help="Epochs, in place of the grid's.")]
Length = Annotated[
    int, typer.Option("--length", metavar="N", min=0, help="Most tokens of a row of a fine-tuning; else the task's.")
]
TuningSteps = Annotated[int, typer.Option("--steps", metavar="N", min=0, help="Updates, in place of epochs.")]
Every = Annotated[
    int, typer.Option("--every", metavar="STEPS", min=0, help="Also the weights that were kept every so many steps.")
]
Submit = Annotated[
    Path | None,
    typer.Option(
        "--submit", metavar="DIR", callback=_to_write, help="Also write the files for GLUE's leaderboard there."
    ),
]
Against = Annotated[
    Literal["nothing", "random"], typer.Option("--against", help="Also fine-tune the same net from random weights.")
]
LogEvery = Annotated[
    int | None, typer.Option("--log-every", metavar="STEPS", min=1, help="Between points of the metrics (means); 10.")
]
EvalEvery = Annotated[
    int | None, typer.Option("--eval-every", metavar="STEPS", min=1, help="Between held-out losses; as --save-every.")
]
SaveEvery = Annotated[
    int | None, typer.Option("--save-every", metavar="STEPS", min=1, help="Between checkpoints; a quarter of the run.")
]
Profile = Annotated[
    int | None, typer.Option("--profile", metavar="STEPS", min=1, help="Trace so many: where does the time go?")
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Ray's own page of what runs, on 127.0.0.1; its address is said.")
]


def numbers(option: str, given: str, kind: type[Number], least: int = 0) -> tuple[Number, ...]:
    """The numbers of an option with commas between; BadInput where a word is none, or is below what is allowed.

    >>> numbers("--rates", "1e-3,3e-4", float)
    (0.001, 0.0003)
    """
    try:
        found = tuple(kind(word) for word in given.split(",") if word)
    except ValueError:
        raise BadInput(f"{option} is {given}, allowed are numbers with commas between, as 16,32") from None
    if any(one <= 0 or one < least for one in found):
        raise BadInput(f"{option} is {given}, allowed are numbers {f'from {least} up' if least else 'above 0'}")
    return found


def amount(option: str, given: str, units: Mapping[str, float], example: str) -> float:
    """A number with its unit, in that of 1.0; 0 where nothing is given. BadInput where it is none above 0.

    >>> amount("--deadline", "3d", {"d": 24.0, "h": 1.0}, "3d")
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
        raise BadInput(f"{option} is {given}, allowed is a number above 0 with its unit, as {example}")
    return value
