"""Which grid of hyper-parameters a net is fine-tuned with: that of its paper, or one for small nets."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestration.config import is_shipped_task, load_task
from orchestration.jobs.eval_request import EvalRequest, EvalTarget
from preprocessing.errors import BadInput
from preprocessing.files import parse_json
from training.finetuning import Tuning
from training.tasks import Grid, TaskFile

SEEDS: Final = 3  # fine-tunings of each cell where neither the command nor the grid says anything
SMALL: Final = Grid(
    learning_rates=(1e-3, 3e-4),
    batch_sizes=(32,),
    epochs=(4.0,),
    citation="Sesame: for shrunk and own nets below 20 million parameters",
)
BERT: Final = Grid(
    learning_rates=(5e-5, 3e-5, 2e-5),
    batch_sizes=(16, 32),
    epochs=(3.0,),
    citation="BERT, appendix A.3",
    unverified=True,
)
BERTS: Final = ("bert", "of BERT")  # its grid: that of the task, or where this has none
SMALL_NET: Final = 20_000_000  # parameters; below it, nets that are not of a published size get larger rates
MINIATURES: Final = frozenset({"bert_tiny", "bert_mini", "bert_small", "bert_medium"})
_OF_TYPE: Final = (  # model_type of transformers, fewest parameters of a published net, the paper of its grids
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
    """Whose grids a run of a published size takes, where its own paper has none; "" where its name says it."""
    if name in MINIATURES:
        return "miniatures"
    return "gpt1" if run["model"]["kind"] == "decoder" else ""  # later ones were not fine-tuned on labels


def paper_of_folder(given: Path, parameters: int) -> tuple[str, bool, str]:
    """Whose grids are those of a folder of transformers, whether its size is a published one, and what says so."""
    file = given / "config.json"
    try:
        of_type = str(parse_json(file.read_text(encoding="utf-8"))["model_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file}: names no model_type; write the folder with save_pretrained of transformers") from error
    papers = [paper for name, least, paper in _OF_TYPE if name == of_type and parameters >= least]
    why = f"model_type {of_type}, {parameters / 1e6:,.1f} million parameters"
    return (papers or [of_type])[0], bool(papers), why


def tunings_of(subject: EvalTarget, task: TaskFile, wanted: EvalRequest) -> tuple[list[Tuning | None], str, str]:
    """The cells of the grid that is asked for, what is said of it, and what of that stands beside the scores."""
    name, grid = grid_of(subject, task, wanted.grid)
    given = {"learning_rates": wanted.learning_rates, "batch_sizes": wanted.batch_sizes, "epochs": wanted.epochs}
    changed: dict[str, Any] = {key: tuple(dict.fromkeys(value or getattr(grid, key))) for key, value in given.items()}
    if wanted.max_steps:
        changed |= {"max_steps": wanted.max_steps, "epochs": ()}
    elif wanted.epochs:
        changed["max_steps"] = 0
    if wanted.max_seq_length:
        changed["max_seq_length"] = wanted.max_seq_length
    if wanted.frozen_features:
        changed["frozen_features"] = wanted.frozen_features
    if "max_steps" in changed:  # a warm-up in steps would not fit them
        changed["warmup_steps"] = grid.warmup_ratio
    try:
        asked = dataclasses.replace(grid, num_seeds=wanted.num_seeds or grid.num_seeds or SEEDS, **changed)
        cells: list[Tuning | None] = list(asked.cells())
    except ValueError as error:  # what is asked for does not go with another key of this grid
        raise BadInput(f"task {task.name}, grid {name}: {error}; give another grid with --grid") from None
    remark = "" if wanted.grid else _not_its_own(subject, task, name)
    why = "" if wanted.grid else _why(subject, task, name, remark)
    said = f"{task.name}: grid {name}{f' ({why})' if why else ''}: {asked.describe()}{_other_than(grid, asked)}"
    return cells, said, remark


def _is_own(task: TaskFile) -> bool:
    """Whether a task is a user's own, so that its grids are for the nets of the user, too."""
    return bool(task.grids) and not is_shipped_task(task.name)


def _why(subject: EvalTarget, task: TaskFile, grid: str, remark: str) -> str:
    """Why a net gets a grid, where that is no matter of course."""
    if _is_own(task) and len(task.grids) == 1:
        return "the only one of its file"
    is_another = _is_own(task) and (grid not in task.grids or remark)
    others = f"its file has {', '.join(task.grids)}, which --grid names" if is_another else ""
    return "; ".join(filter(None, (subject.why, remark, others)))


def _not_its_own(subject: EvalTarget, task: TaskFile, grid: str) -> str:
    """A line where a net gets BERT's grid because the task has none of the net's own paper."""
    paper = subject.paper or subject.name
    if (_is_own(task) and len(task.grids) == 1) or grid not in BERTS or paper.partition("_")[0] == "bert":
        return ""
    return f"{paper} has no grid for this task, BERT's is used"


def _other_than(paper: Grid, grid: Grid) -> str:
    """What of a grid a reader would not expect who knows the paper's."""
    said = f"; {paper.num_seeds} runs in its paper" if paper.num_seeds not in (0, grid.num_seeds) else ""
    if grid.num_seeds > 1 and paper.reported_statistic == "best":
        said += "; its paper reports the best run, the score here is the median"
    if grid.warmup_steps != paper.warmup_steps:
        said += f"; warm-up over {100 * grid.warmup_steps:.2g} % of the steps, as in the grid"
    return said


def grid_of(subject: EvalTarget, task: TaskFile, asked: str) -> tuple[str, Grid]:
    """The grid that is asked for, or that of the paper of the net; for small nets that are not published ones, one with
    larger rates. The only grid of a user's own task is meant for any net.

    BadInput where the task has no grid of the name.
    """
    if asked:
        if asked not in task.grids:
            known = ", ".join(task.grids) or "none"
            raise BadInput(f"task {task.name}: has no grid {asked}; its grids are {known}")
        return asked, task.grids[asked]
    if _is_own(task) and len(task.grids) == 1:
        return next(iter(task.grids.items()))
    if subject.parameters < SMALL_NET and not subject.is_published:
        return "of small nets", SMALL
    paper = subject.paper or subject.name
    named = [name for name in task.grids if paper == name or paper.startswith(f"{name}_")]
    if named:
        return (name := max(named, key=len)), task.grids[name]
    return (BERTS[0], task.grids[BERTS[0]]) if BERTS[0] in task.grids else (BERTS[1], BERT)


def intermediate_task(
    subject: EvalTarget, task: TaskFile, tuning: Tuning | None, wanted: EvalRequest
) -> tuple[TaskFile, Tuning] | None:
    """What a net is fine-tuned on before, and how: the first cell of the same paper's grid. BadInput where the files of
    that task are not at hand."""
    if tuning is None or not tuning.init_task:
        return None
    before, data = load_task(tuning.init_task), wanted.task_data_dir or Path()
    if not before.files["train"].is_there(data):
        raise BadInput(
            f"task {task.name}: its grid begins with a net that was fine-tuned on {before.name}, whose train split is "
            f"not in {data}; give another grid with --grid"
        )
    first = grid_of(subject, before, wanted.grid if wanted.grid in before.grids else "")[1].cells()[0]
    return before, dataclasses.replace(first, seed=tuning.seed)
