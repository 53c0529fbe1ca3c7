"""Downstream scores of a model: the missing trials of each task are run, and its scores are stored and logged.

Read this file first. trials.py runs the trials, task_scores.py computes a score from their results, and score_files.py
stores it. score_pages.py writes the pages of all scores, score_figures.py draws, and score_records.py makes the record
for MLflow. leaderboard.py writes files for a submission.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from statistics import fmean, median

from orchestration import launch, trackers, tracking
from orchestration.config import Cluster
from orchestration.evaluation.saved_models import Saves, publish
from orchestration.evaluation.score_files import load_finished_score, store_score, update_score
from orchestration.evaluation.score_pages import publish_scores
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.score_records import make_finetuned_record, make_record, make_tracker_scores, name_record
from orchestration.evaluation.task_scores import summarize
from orchestration.evaluation.trials import (
    find_seed_split,
    load_results,
    run_missing_trials,
    run_trials,
    seed_of,
    select_best,
    select_chosen,
)
from orchestration.jobs import last_step_of
from orchestration.progress import Report
from orchestration.reports import format_value, guesses, load_score, name_score, score_name
from preprocessing.errors import SesameError
from preprocessing.files import read_object
from preprocessing.folders import make_directory
from training.evaluation import EvalResult
from training.evaluation.tasks import TaskScore

log = logging.getLogger(__name__)


def evaluate(
    folder: Path,
    plans: Sequence[TaskPlan],
    cluster: Cluster,
    report: Report,
    out: Path | None = None,
    left_out: list[SesameError] | None = None,
    command: str = "",
    saves: Saves | None = None,
) -> list[TaskScore]:
    """The score of each plan; loaded from disk if it is finished. Stored trials are not repeated.

    If a trial fails, the score of its task uses the other trials and lists the error. If all trials of a task fail, a
    warning names the task, and the other tasks are scored. If all tasks fail, the first error is raised.

    `out`: directory of the MLflow store, for a model that was not pretrained here; its MLflow run is that of its
    evaluations, and ends as FAILED if no task is scored. `left_out` collects
    the errors of the tasks without a score. `command`: the command line of the evaluation, for MLflow. `saves`: where
    the fine-tuned models are saved.
    """
    if saves:
        plans = [plan.with_saved_models() if plan.stage.folder in saves.places else plan for plan in plans]
    is_due = any(plan.stage.state != "done" for plan in plans)
    with _directory_run(folder, out, command, plans) if is_due and out else nullcontext():
        return _evaluate(folder, plans, cluster, report, left_out, command, saves)


def _evaluate(
    folder: Path,
    plans: Sequence[TaskPlan],
    cluster: Cluster,
    report: Report,
    left_out: list[SesameError] | None,
    command: str,
    saves: Saves | None,
) -> list[TaskScore]:
    due = [plan for plan in plans if plan.stage.state != "done"]
    failed = run_missing_trials(folder, due, cluster, report)
    scores, errors = dict[str, TaskScore](), list[SesameError]()
    unlogged, for_trackers = tracking.read_unlogged_metrics(folder), list[trackers.Scores]()
    for plan in plans:
        try:
            score = _score(folder, plan, failed) if plan in due else load_finished_score(plan)
            is_tracked = tracking.existing_run(folder) and (plan in due or plan.stage.folder.name in unlogged)
            has_trackers = plan in due and (folder / trackers.SETUP).is_file()
            if is_tracked:
                report({"stage": "logging to MLflow"})
                _log(folder, plan, _record(folder, plan, score, command))
            if has_trackers:  # with figures of its own, because an unresponsive store may still draw those of MLflow
                for_trackers += make_tracker_scores(_record(folder, plan, score, command))
            scores[plan.stage.folder.name] = update_score(plan, score)
        except SesameError as error:
            log.warning("left out: task %s: %s", score_name(plan.task, plan.step, plan.labels), error)
            errors.append(error)
    if errors and not scores:
        raise errors[0]
    if left_out is not None:
        left_out += errors
    trackers.log_scores(folder, trackers.select_trackers, for_trackers)
    publish_scores(folder, scores)
    if saves:
        _save_models(folder, [plan for plan in plans if plan.stage.folder.name in scores], saves, cluster, report)
    return list(scores.values())


def _save_models(folder: Path, plans: Sequence[TaskPlan], saves: Saves, cluster: Cluster, report: Report) -> None:
    """Save the model of the selected trial of each plan, and log it as a model of the evaluation's MLflow run.

    The trial is the one with the selected hyperparameters whose seed is best on dev. It is repeated if it finished
    earlier, without saving its model.
    """
    chosen = list[tuple[TaskPlan, launch.EvalTrial]]()
    for plan in plans:
        if plan.stage.folder in saves.places:
            score = load_score(plan.stage.folder)
            chosen.append((plan, select_best(plan, select_chosen(load_results(plan), score.starts, "pretrained"))[0]))
    missing = [
        (plan, cell)
        for plan, cell in chosen
        if cell.save_to and not (cell.save_to / launch.SAVED).is_file() and not saves.has(plan)
    ]
    for _, cell in missing:
        log.warning("%s: fine-tuned again, because its model was not saved", cell.name)
    failed = run_trials(folder, missing, cluster, report, _check_repetition)
    for plan, cell in chosen:
        if error := failed.get(plan.file_of(cell)):
            raise error
        rule = _describe_selection(plan, cell)
        place = saves.places[plan.stage.folder]
        if publish(saves, plan, cell, rule):
            saves.notes.append(f"saved {place}: {cell.name} ({rule}); {_describe_scores(plan, place)}")
        else:
            saves.notes.append(f"{place}: has the model of {cell.name} already")
        report({"stage": "logging to MLflow"})
        name = f"model of {plan.stage.folder.name}"
        record = make_finetuned_record(plan, cell, place, name_record(folder, plan))
        tracking.mirror(folder, name, f"the {name}", partial(tracking.log_finetuned, folder=folder, record=record))


def _describe_selection(plan: TaskPlan, cell: launch.EvalTrial) -> str:
    """The rule by which a model was selected, in words."""
    seeds = [seed_of(each) for each in plan.cells if each.start == "pretrained"]
    if len(seeds) == 1:
        return "the only trial"
    labeled = [split for split, items in plan.items.items() if any(item.gold is not None for item in items)]
    on = find_seed_split(plan, labeled)
    best = f"the best seed on {on}" if on else "the first seed, because no dev split has labels"
    grid = "the selected hyperparameters (best median over the seeds), and " if plan.chosen_on else ""
    return f"{grid}{best}: seed {seed_of(cell)}"


def _describe_scores(plan: TaskPlan, place: Path) -> str:
    """The score of a saved model, which is that of one seed, and the median of the table, if there are several."""
    saved = read_object(place / launch.SAVED, "save the model again", scores=dict)["scores"]
    values = load_score(plan.stage.folder).values("pretrained")
    its = format_value(fmean(saved[split][plan.metric] for split in plan.parts or (plan.split,)), plan.metric)
    median_of_table = f", the median of the table is {format_value(median(values), plan.metric)}"
    return f"its {plan.metric} on {plan.split} is {its}{median_of_table if len(values) > 1 else ''}"


def _check_repetition(plan: TaskPlan, cell: launch.EvalTrial, result: EvalResult) -> None:
    """Warn if a repeated trial has another score than before."""
    before = next(one for each, one in load_results(plan) if plan.file_of(each) == plan.file_of(cell))
    split = plan.split if plan.split in result.scores else next(iter(result.scores))
    now, old = result.scores[split], before.scores[split]
    if now[plan.metric] != old[plan.metric]:
        log.warning(
            "%s: %s is %.6g when it is fine-tuned again, and was %.6g; the score in the table is the earlier one",
            cell.name,
            plan.metric,
            now[plan.metric],
            old[plan.metric],
        )


def _directory_run(
    folder: Path, out: Path, command: str, plans: Sequence[TaskPlan]
) -> AbstractContextManager[tracking.TrackedRun]:
    """The MLflow run of a directory of transformers, or of a fine-tuned model that `--save` wrote."""
    make_directory(folder)
    name = folder.name.rpartition("-")[0]
    kind, origin = "a directory of transformers", "a directory of transformers that was not pretrained here"
    if finetuned := next((cell for plan in plans for cell in plan.cells if cell.is_finetuned), None):
        kind, place = "a fine-tuned model", (finetuned.folder / finetuned.weights).absolute()
        origin = f"the fine-tuned model in `{place}`"
        if (file := place / launch.SAVED).is_file():
            base = read_object(file, "save the model again", base=dict)["base"]
            origin += f", whose base is `{base.get('folder')}`"
    note = f"Downstream scores of `{name}`, {origin}."
    metadata = tracking.Metadata(name, {}, {"net": kind, "command": command}, note)
    return tracking.run(tracking.tracking_store(out), folder, None, metadata)


def _score(folder: Path, plan: TaskPlan, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a plan whose trials are finished; also stored in its directory."""
    results = load_results(plan)
    score = summarize(plan, results, failed)
    for start, note in score.constant.items():
        guess = ", ".join(f"{name} {format_value(value, score.metric)}" for name, value in guesses(score).items())
        value = f"{score.metric} {format_value(median(score.values(start)), score.metric)}"
        log.warning(
            "task %s, %s weights: %s (%s%s)", name_score(score), start, note, value, f"; {guess}" if guess else ""
        )
    store_score(plan, results, score)
    return score


def _record(folder: Path, plan: TaskPlan, score: TaskScore, command: str) -> tracking.TaskRecord:
    name = name_record(folder, plan)
    return make_record(plan, load_results(plan), score, name, last_step_of(folder), command)


def _log(folder: Path, plan: TaskPlan, record: tracking.TaskRecord) -> None:
    """Send a score to MLflow. If the store fails, the next command for this score sends it again."""
    task = plan.stage.folder.name
    tracking.mirror(folder, task, f"the scores of {plan.task}", partial(tracking.log_task, record=record))
