"""The grid of hyperparameters for fine-tuning a model: that of its paper, or one for small models."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestration.config import is_shipped_task, load_task
from orchestration.evaluation.eval_request import BEST_OF, EvalRequest, EvalTarget
from preprocessing.errors import BadInput
from preprocessing.files import parse_json
from training.evaluation.tasks import Grid, TaskFile
from training.finetuning import Tuning

SEEDS: Final = 3  # number of seeds if neither the command nor the grid sets one
SMALL: Final = Grid(
    learning_rates=(1e-3, 3e-4),
    batch_sizes=(32,),
    epochs=(4.0,),
    citation="Sesame: for scaled-down and custom models below 20 million parameters",
)
BERT: Final = Grid(
    learning_rates=(5e-5, 3e-5, 2e-5),
    batch_sizes=(16, 32),
    epochs=(3.0,),
    citation="BERT, appendix A.3",
    unverified=True,
)
# names of BERT's grid in a task file, and of `BERT`, which is used if the file has none
BERTS: Final = ("bert", "of BERT")
SMALL_MODEL: Final = 20_000_000  # parameters; smaller models without a published size get larger learning rates
MINIATURES: Final = frozenset({"bert_tiny", "bert_mini", "bert_small", "bert_medium"})
_OF_TYPE: Final = (  # model_type of transformers, minimum parameters of a published model, the paper of its grids
    ("bert", 30_000_000, "bert"),
    ("bert", 4_000_000, "miniatures"),
    ("electra", 200_000_000, "electra_large"),
    ("electra", 50_000_000, "electra_base"),
    ("electra", 10_000_000, "electra_small"),
    ("albert", 10_000_000, "albert"),
    ("gpt2", 20_000_000, "gpt1"),
    ("openai-gpt", 20_000_000, "gpt1"),
)


def paper_of_run(run: Mapping[str, Any], name: str) -> str:
    """The paper whose grids apply to a run of a published size; "" for the paper that the name of the run begins
    with."""
    if name in MINIATURES:
        return "miniatures"
    return "gpt1" if run["model"]["kind"] == "decoder" else ""  # later models were not fine-tuned on labels


def paper_of_folder(folder: Path, parameters: int) -> tuple[str, bool, str]:
    """For a directory of transformers: the paper of its grids, whether its size is published, and the reason."""
    file = folder / "config.json"
    try:
        of_type = str(parse_json(file.read_text(encoding="utf-8"))["model_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{file}: model_type is missing; write the directory with save_pretrained of transformers"
        ) from error
    papers = [paper for name, least, paper in _OF_TYPE if name == of_type and parameters >= least]
    why = f"model_type {of_type}, {parameters / 1e6:,.1f} million parameters"
    return (papers or [of_type])[0], bool(papers), why


def tunings_of(target: EvalTarget, task: TaskFile, request: EvalRequest) -> tuple[list[Tuning | None], str, str]:
    """The trials of the requested grid, a description of the grid, and a remark to print beside the scores."""
    name, grid = grid_of(target, task, request.grid)
    options = {"learning_rates": request.learning_rates, "batch_sizes": request.batch_sizes, "epochs": request.epochs}
    changed: dict[str, Any] = {key: tuple(dict.fromkeys(value or getattr(grid, key))) for key, value in options.items()}
    if request.max_steps:
        changed |= {"max_steps": request.max_steps, "epochs": ()}
    elif request.epochs:
        changed["max_steps"] = 0
    if request.max_seq_length:
        changed["max_seq_length"] = request.max_seq_length
    if request.frozen_features:
        changed["frozen_features"] = request.frozen_features
    changed |= _select_evaluations(grid, request)
    if "max_steps" in changed:  # a warmup in steps would not match the new number of steps
        changed["warmup_steps"] = grid.warmup_ratio
    try:
        requested = dataclasses.replace(grid, num_seeds=request.num_seeds or grid.num_seeds or SEEDS, **changed)
        cells: list[Tuning | None] = list(requested.cells())
    except ValueError as error:  # an option contradicts another key of this grid
        raise BadInput(f"task {task.name}, grid {name}: {error}; give another grid with --grid") from None
    remark = "" if request.grid else _remark_on_borrowed_grid(target, task, name)
    why = "" if request.grid else _explain_grid(target, task, name, remark)
    settings = f"{requested.describe()}{_describe_differences(grid, requested)}"
    return cells, f"{task.name}: grid {name}{f' ({why})' if why else ''}: {settings}", remark


def _select_evaluations(grid: Grid, request: EvalRequest) -> dict[str, int]:
    """The number of evaluations on dev during a fine-tuning, and when it stops early."""
    if not (request.best or request.num_evaluations or request.early_stopping_patience):
        return {}
    count = request.num_evaluations or grid.num_evaluations or BEST_OF
    if request.early_stopping_patience >= count:
        raise BadInput(
            f"invalid --early-stopping-patience: got {request.early_stopping_patience}, expected less than the number "
            f"of evaluations ({count}); lower it, or raise --num-evaluations"
        )
    patience = request.early_stopping_patience or grid.early_stopping_patience
    return {"num_evaluations": count, "early_stopping_patience": min(patience, count - 1)}


def _is_own(task: TaskFile) -> bool:
    """Whether a user wrote the task; its grids then also apply to the user's models."""
    return bool(task.grids) and not is_shipped_task(task.name)


def _explain_grid(target: EvalTarget, task: TaskFile, grid: str, remark: str) -> str:
    """The reason why a model gets a grid; "" if it is obvious."""
    if _is_own(task) and len(task.grids) == 1:
        return "the only grid of its file"
    is_another = _is_own(task) and (grid not in task.grids or remark)
    others = f"its file has {', '.join(task.grids)}; select one with --grid" if is_another else ""
    return "; ".join(filter(None, (target.why, remark, others)))


def _remark_on_borrowed_grid(target: EvalTarget, task: TaskFile, grid: str) -> str:
    """A remark if a model gets BERT's grid because the task has no grid of its own paper."""
    paper = target.paper or target.name
    if (_is_own(task) and len(task.grids) == 1) or grid not in BERTS or paper.partition("_")[0] == "bert":
        return ""
    return f"{paper} has no grid for this task; BERT's grid is used"


def _describe_differences(paper: Grid, grid: Grid) -> str:
    """The differences from the grid of the paper that a reader would not expect."""
    differences = f"; its paper has {paper.num_seeds} runs" if paper.num_seeds not in (0, grid.num_seeds) else ""
    if grid.num_seeds > 1 and paper.reported_statistic == "best":
        differences += "; its paper reports the best run, the score here is the median"
    if grid.num_evaluations != paper.num_evaluations:
        differences += f"; the best weights of {grid.num_evaluations} evaluations on dev"
    if grid.early_stopping_patience != paper.early_stopping_patience:
        differences += f", stops after {grid.early_stopping_patience} without a better score"
    if grid.warmup_steps != paper.warmup_steps:
        differences += f"; warmup over {100 * grid.warmup_steps:.2g} % of the steps, as in the grid"
    return differences


def grid_of(target: EvalTarget, task: TaskFile, requested: str) -> tuple[str, Grid]:
    """The requested grid, or the grid of the model's paper; for small unpublished models, one with larger learning
    rates.

    The only grid of a user's own task applies to all models. Raises BadInput if the task has no grid with this name.
    """
    if requested:
        if requested not in task.grids:
            names = ", ".join(task.grids) or "none"
            raise BadInput(
                f"task {task.name}: invalid --grid: got {requested}, expected one of its grids ({names}); use one"
            )
        return requested, task.grids[requested]
    if _is_own(task) and len(task.grids) == 1:
        return next(iter(task.grids.items()))
    if target.parameters < SMALL_MODEL and not target.is_published:
        return "of small models", SMALL
    paper = target.paper or target.name
    named = [name for name in task.grids if paper == name or paper.startswith(f"{name}_")]
    if named:
        return (name := max(named, key=len)), task.grids[name]
    return (BERTS[0], task.grids[BERTS[0]]) if BERTS[0] in task.grids else (BERTS[1], BERT)


def intermediate_task(
    target: EvalTarget, task: TaskFile, tuning: Tuning | None, request: EvalRequest
) -> tuple[TaskFile, Tuning] | None:
    """The task that a model is fine-tuned on first, with its hyperparameters: the first trial of the same paper's grid.

    Raises BadInput if the files of that task are missing.
    """
    if tuning is None or not tuning.init_task:
        return None
    before, data = load_task(tuning.init_task), request.task_data_dir or Path()
    if not before.files["train"].is_there(data):
        raise BadInput(
            f"task {task.name}: its grid first fine-tunes on {before.name}, which has no train split in {data}; add "
            "it, or select another grid with --grid"
        )
    first = grid_of(target, before, request.grid if request.grid in before.grids else "")[1].cells()[0]
    return before, dataclasses.replace(first, seed=tuning.seed)
