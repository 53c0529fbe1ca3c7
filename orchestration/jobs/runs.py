"""Runs of training: finds the directory of a run, and reads what a run has stored there."""

import glob
import re
from pathlib import Path
from typing import Any

from orchestration import launch
from orchestration.config import split_overrides
from orchestration.jobs import stages
from orchestration.jobs.job import Job, JobFlags, open_job
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_json, read_object
from training.run import CHECKPOINTS, Run, load_stored_run, step_of, steps
from training.tasks import TASKS

RESULT = "result.json"
TRAIN_AGAIN = f"delete {stages.MARK} beside it, then repeat the same `sesame train` command to write it again"
_RUN_NAME = re.compile(r"[^/]+-[0-9a-f]{8}|[^/]+-[0-9a-f]{4}")  # whole, or as in MLflow
EVALS = "evals.json"  # the evaluation tasks of its recipe; they do not change the run


def run_folder(flags: JobFlags) -> Path:
    """The directory of a run, from its path, its name, or the recipe and the flags of its training."""
    folder = _find_named_run(flags) or open_job(flags).plan.run.folder
    if not (folder / launch.RUN).is_file():
        raise BadInput(
            f"{flags.recipe}: not trained with these flags under {flags.output_dir}; train it with "
            f"`{flags.command('train')}`"
        )
    return folder


def run_of(flags: JobFlags) -> Run:
    """The run in a directory, or else the run of the recipe on its corpus, which must exist."""
    if folder := _find_named_run(flags):
        return load_stored_run(folder)
    job = open_job(flags)
    require_corpus(job)
    return job.pretraining()


def eval_tasks_of(flags: JobFlags) -> list[str]:
    """The evaluation tasks of the recipe of a run; all tasks of held-out documents if it names none."""
    if folder := _find_named_run(flags):
        file = folder / EVALS
        return _read_names(file, "delete it to use all tasks") if file.is_file() else list(TASKS)
    return list(open_job(flags).recipe.eval_tasks) or list(TASKS)


def _read_names(path: Path, remedy: str) -> list[str]:
    """The list of names in a JSON file."""
    names = read_json(path, remedy)
    with of_kind(path, remedy):
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError("not a list of names")
    return names


def result_of(folder: Path) -> dict[str, Any]:
    """The result of a finished training: steps, tokens, loss and last evaluation."""
    return read_object(folder / RESULT, TRAIN_AGAIN, step=int, tokens=int, evaluation=dict)


def samples_of(folder: Path) -> dict[str, list[str]]:
    """The sample texts of a run, `before` and `after` its training; {} if it has none."""
    files = {int(file.stem.partition("-")[2]): file for file in (folder / launch.SAMPLES).glob("step-*.txt")}
    if len(files) < 2:
        return {}
    first, last = (files[step].read_text(encoding="utf-8") for step in (min(files), max(files)))
    return {"before": first.strip().split(launch.BETWEEN), "after": last.strip().split(launch.BETWEEN)}


def list_saved_steps(folder: Path) -> dict[int, str]:
    """By step, the path of its checkpoint or weights inside the directory of the run."""
    saved = {step_of(path): path for path in steps(folder / CHECKPOINTS)}
    for path in folder.glob(f"{launch.WEIGHTS}-*"):
        if number := re.fullmatch(rf"{launch.WEIGHTS}-([0-9]+)", path.name):
            saved[int(number[1])] = path
    return {step: str(path.relative_to(folder)) for step, path in saved.items()}


def refuse_another_run(flags: JobFlags, trained: Path) -> None:
    """Raises BadInput if flags change the recipe, the text or the seed of a run that is already trained."""
    options = {
        "--scale": flags.scale,
        "--data": flags.data,
        "--holdout-ratio": flags.holdout_ratio,
        "--seed": flags.seed,
    }
    changed = [name for name, value in options.items() if value not in ("", (), [], None)]
    if what := [*split_overrides(flags.overrides)[0], *changed]:
        kind = "option" if what == changed else "key"
        raise BadInput(f"{what[0]}: {trained} is already trained, and its recipe cannot change; leave this {kind} out")


def require_corpus(job: Job) -> Path:
    """The directory of a job's corpus. Raises BadInput if the corpus does not exist yet."""
    stage = job.plan.corpus
    if stage.state != "done":
        raise BadInput(
            f"{stage.folder}: this corpus is not made yet; make it with `sesame corpus`, or run all stages "
            "with `sesame run`"
        )
    return stage.folder


def _find_named_run(flags: JobFlags) -> Path | None:
    """The run that the flags name by its directory, its name below runs/, or its name in MLflow; None otherwise."""
    runs = flags.output_dir / "runs"
    folders = [Path(flags.recipe), runs / flags.recipe]
    if re.fullmatch(r"[^/]+-[0-9a-f]{4}", flags.recipe):
        folders += sorted(runs.glob(f"{glob.escape(flags.recipe)}????"))
    folder_of_run = next((folder for folder in folders if (folder / launch.RUN).is_file()), None)
    if folder_of_run:
        refuse_another_run(flags, folder_of_run)
    elif "/" in flags.recipe and Path(flags.recipe).is_dir():
        raise BadInput(
            f"{flags.recipe}: has no {launch.RUN}, so it is not a run; use the directory or name of a run, or a recipe"
        )
    elif _RUN_NAME.fullmatch(flags.recipe) and not Path(flags.recipe).exists():
        raise BadInput(
            f"invalid RUN: got {flags.recipe}, expected the name of a run in {runs}; name the directory of its results "
            "with --output-dir"
        )
    return folder_of_run
