"""Runs of training: the directory of a run, and the results that it has stored there."""

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestration import launch
from orchestration.config import SCALES
from orchestration.jobs import stages
from orchestration.jobs.job import Job, JobFlags, open_job
from orchestration.jobs.run_names import changes_of, find_named_run, list_names_of, require_recipe_name, run_folders
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_json, read_object
from training.evaluation.tasks import TASKS
from training.run import CHECKPOINTS, Run, load_stored_run, step_of, steps

log = logging.getLogger(__name__)

RESULT = "result.json"
TRAIN_AGAIN = f"delete {stages.MARK} beside it, then repeat the same `sesame train` command to write it again"
EVALS = "evals.json"  # the evaluation tasks of its recipe; they do not change the run


def run_folder(flags: JobFlags) -> Path:
    """The directory of a run, from its path, its name, or the recipe and the flags of its training."""
    if folder := find_named_run(flags):
        return folder
    if folder := _find_run_of_recipe(flags):
        log.warning("%s: using its run %s", flags.recipe, folder)
        return folder
    require_recipe_name(flags)
    folder = open_job(flags).plan.run.folder
    if not (folder / launch.RUN).is_file():
        raise BadInput(
            f"{flags.recipe}: not trained with these flags under {flags.output_dir}; train it with "
            f"`{flags.command('train')}`"
        )
    return folder


def run_of(flags: JobFlags) -> Run:
    """The run in a directory, or else the run of the recipe on its corpus, which must exist."""
    if folder := _find_run(flags):
        return load_stored_run(folder)
    job = open_job(flags)
    require_corpus(job)
    return job.pretraining()


def corpus_folder_of(flags: JobFlags) -> Path:
    """The directory of the corpus of a run, or else of the recipe. Raises BadInput if it does not exist."""
    if folder := _find_run(flags):
        return Path(load_stored_run(folder).corpus)
    job = open_job(flags)
    require_corpus(job)
    return job.plan.corpus.folder


def eval_tasks_of(flags: JobFlags) -> list[str]:
    """The evaluation tasks of the recipe of a run; all tasks of held-out documents if it names none."""
    if folder := _find_run(flags):
        file = folder / EVALS
        return _read_names(file, "delete it to use all tasks") if file.is_file() else list(TASKS)
    return list(open_job(flags).recipe.eval_tasks) or list(TASKS)


def _find_run(flags: JobFlags) -> Path | None:
    """The run that the flags name, also by its recipe alone; None if they name a recipe without a run.

    Raises BadInput if they name neither, or if the recipe has several runs and no flag selects one.
    """
    found = find_named_run(flags) or _find_run_of_recipe(flags)
    if not found:
        require_recipe_name(flags)
    return found


def _find_run_of_recipe(flags: JobFlags) -> Path | None:
    """The run of a recipe that is named without further flags: the one that these flags train, or the only one."""
    if changes_of(flags):
        return None
    name = Path(flags.recipe).stem if flags.recipe.endswith(".yaml") else flags.recipe
    labels = {name, *(f"{name}_{scale}" for scale in SCALES)}
    found = [folder for folder in run_folders(flags.output_dir) if folder.name.rpartition("-")[0] in labels]
    if not found:
        return None
    with suppress(BadInput):  # the text of a recipe is often missing
        if (exact := open_job(flags).plan.run.folder) in found:
            return exact
    if len(found) > 1:
        raise BadInput(
            f"invalid RUN: got {flags.recipe}, a recipe with {len(found)} runs in {flags.output_dir / 'runs'}, "
            f"expected one of them{list_names_of(found)}; use its name"
        )
    return found[0]


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


def last_step_of(folder: Path) -> int:
    """The last step of a finished run; 0 if it is unknown (a model of transformers)."""
    file = folder / RESULT
    return int(read_object(file, TRAIN_AGAIN, step=int)["step"]) if file.is_file() else 0


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


def require_corpus(job: Job) -> Path:
    """The directory of a job's corpus. Raises BadInput if the corpus does not exist yet."""
    stage = job.plan.corpus
    if stage.state != "done":
        raise BadInput(
            f"{stage.folder}: this corpus is not made yet; make it with `sesame corpus`, or run all stages "
            "with `sesame run`"
        )
    return stage.folder


def evaluations_of(out: Path, name: str, digest: str) -> Path:
    """The directory of the scores of a `transformers` model: its name, and the first digits of its digest."""
    return out / "evals" / f"{name}-{digest[:8]}"
