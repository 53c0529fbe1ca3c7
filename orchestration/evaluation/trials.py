"""The trials of an evaluation: they run on Ray, and each has a file with its result."""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestration import environment, launch
from orchestration.config import Cluster
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.jobs import MARK, import_mlflow_beside, resources_of
from orchestration.progress import Report
from preprocessing.errors import BadInput, SesameError
from preprocessing.files import of_kind, read_object
from training.evaluation import EvalResult
from training.evaluation.tasks import SelectedTrials, sign_of_metric

log = logging.getLogger(__name__)

Results = Sequence[tuple[launch.EvalTrial, EvalResult]]
"""Trials that have scores, with their results."""


def run_missing_trials(
    folder: Path, plans: Sequence[TaskPlan], cluster: Cluster, report: Report
) -> Mapping[Path, SesameError]:
    """Run the missing trials and store their results; returns the errors of failed trials by their file."""
    todo = [(plan, cell) for plan in plans for cell in plan.cells if not plan.file_of(cell).is_file()]
    return run_trials(folder, todo, cluster, report, TaskPlan.store)


def run_trials(
    folder: Path,
    todo: Sequence[tuple[TaskPlan, launch.EvalTrial]],
    cluster: Cluster,
    report: Report,
    store: Callable[[TaskPlan, launch.EvalTrial, EvalResult], None],
) -> Mapping[Path, SesameError]:
    """Run trials in one Ray session; returns the errors of failed trials by their file. `store` gets each result."""
    if not todo:
        return {}
    has = {"cpus": max(launch.cores(), cluster.cpus_per_worker), "gpus": cluster.gpus}  # 0: all GPUs that Ray finds

    def on_done(number: int, result: EvalResult) -> str:
        plan, cell = todo[number]
        store(plan, cell, result)
        return f"{cell.name}: {plan.result(result)}"

    with (
        environment.apply(cluster.env) as env,
        import_mlflow_beside(folder),
        launch.ray_session(
            cluster.ray_address, **has, dashboard=cluster.ray_dashboard, logs=folder / "ray-logs", report=report
        ),
        launch.stop_signals() as stop_request,
    ):
        room = resources_of(cluster, env)
        failed = launch.run_trials([cell for _, cell in todo], room, on_done, stop_request, report)
    return {todo[number][0].file_of(todo[number][1]): error for number, error in failed.items()}


def load_results(plan: TaskPlan) -> Results:
    """The stored results of the finished trials of a plan. Raises BadInput if a file is damaged."""
    files = [(cell, plan.file_of(cell)) for cell in plan.cells]
    remedy = "delete it and repeat the command"
    results: list[tuple[launch.EvalTrial, EvalResult]] = []
    for cell, file in files:
        if file.is_file():
            result = read_object(file, remedy, found=dict)["found"]
            with of_kind(file, remedy):
                results.append((cell, EvalResult(**result)))
    return results


def select_chosen(results: Results, starts: Mapping[str, SelectedTrials], start: str) -> Results:
    """The trials with the selected hyperparameters, for one initialization."""

    def plain(how: Mapping[str, Any]) -> Any:
        return json.loads(json.dumps({key: value for key, value in how.items() if key != "seed"}))

    how = plain(starts[start].how)
    return [(cell, result) for cell, result in results if cell.start == start and plain(cell.how) == how]


def select_best(plan: TaskPlan, cells: Results) -> tuple[launch.EvalTrial, EvalResult]:
    """The trial and the result of the seed that is best on dev; without a dev split, of the first seed.

    The test split is never used to select a seed.
    """
    if not cells:
        raise BadInput(
            f"{plan.stage.folder}: its trials in {plan.stage.parent / 'cells'} are missing; delete {MARK} in "
            "this directory, and repeat the command"
        )
    cell, first = cells[0]
    if on := find_seed_split(plan, first.scores):
        return max(cells, key=lambda pair: sign_of_metric(plan.metric) * pair[1].scores[on][plan.metric])
    if len(cells) > 1:
        message = "task %s: no labeled dev split to select a seed with; the predictions are those of seed %d"
        log.warning(message, plan.task, seed_of(cell))
    return cell, first


def find_seed_split(plan: TaskPlan, labeled: Collection[str]) -> str:
    """The split on which a seed is selected, one of the `labeled` splits; "" if none of them is for selection."""
    return plan.chosen_on or next((split for split in labeled if split.startswith("dev")), "")


def seed_of(cell: launch.EvalTrial) -> int:
    """The seed of a trial; 0 if it fine-tunes nothing."""
    return cell.tuning.seed if cell.tuning else 0
