"""The pages of all scores of a model: the table as Markdown and CSV, and the questions with their answers.

They are files in the directory of its scores, and artifacts of its MLflow run.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, get_args

from orchestration import launch, tracking
from orchestration.evaluation.score_figures import draw_tasks
from orchestration.jobs import last_step_of
from orchestration.reports import (
    PREDICTIONS,
    QUESTIONS,
    WHOLE,
    AnswerPage,
    SavedScores,
    load_answers,
    load_finished_scores,
    questions_page,
    score_csv,
    score_name,
    score_page,
    series,
    sort_scores,
)
from preprocessing.errors import SesameError
from preprocessing.files import write_atomic
from training.evaluation.metrics import Average, glue_average
from training.evaluation.tasks import TaskScore

log = logging.getLogger(__name__)

PAGE: Final = "table.md"
QUESTIONS_PAGE: Final = "questions.html"


def publish_scores(folder: Path, now: Mapping[str, TaskScore]) -> None:
    """Write the page, the table and the figures to files and to MLflow, if they changed.

    They cover all finished scores, and the scores of this command, even if some of their trials failed.
    """
    done = load_finished_scores(folder)
    fresh = {name: (score, (score.step, score.labels)) for name, score in now.items()}
    scores = sort_scores(fresh | done, series(folder))
    if not scores:
        return
    name, averages = (
        folder.name.rpartition("-")[0] or folder.name,
        _average_glue([one for one, apart in done.values() if apart == WHOLE]),
    )
    files = {PAGE: score_page(name, scores, averages), "table.csv": score_csv(scores)}
    if questions := _questions_page(folder, done):
        files[QUESTIONS_PAGE] = questions
    places = {folder / "scores" / file: text.encode() for file, text in files.items()}
    is_new = not all(place.is_file() and place.read_bytes() == text for place, text in places.items())
    if not is_new and PAGE not in tracking.read_unlogged_metrics(folder):
        return
    for place, text in places.items():
        write_atomic(place, text)
    pictures = draw_tasks(scores, last_step_of(folder))

    def log_all(tracked: tracking.TrackedRun) -> None:
        tracking.log_page(tracked, files, pictures)
        tracking.update_card(tracked, folder / launch.EXPORT)
        tracking.log_scores(tracked, {f"eval/glue/average_{key}": value for key, value in averages.items()})

    tracking.mirror(folder, PAGE, "the table of scores", log_all)


def _questions_page(folder: Path, done: SavedScores) -> str:
    """The page with the questions of the finished model and its answers; "" if no questions are stored."""
    of_end = {name: (score, key) for name, (score, key) in done.items() if key[0] is None}
    labels = {name: score_name(score.task, None, score.labels) for name, (score, _) in of_end.items()}
    times, pages, left_out = Counter(labels.values()), list[AnswerPage](), list[str]()
    for name, (_, key) in sorted(of_end.items()):
        label = labels[name] + (f" ({name.rpartition('-')[2]})" if times[labels[name]] > 1 else "")
        place = folder / "scores" / name
        if not ((place / QUESTIONS).is_file() and (place / PREDICTIONS).is_file()):
            left_out.append(label)
            continue
        try:
            answers = load_answers(place, key)
            pairs = list(answers.pairs())
            predictions = [answers.trials[0][split][number] for split, number, _ in pairs]
            models, trial = {folder.name: (answers.kind, predictions)}, answers.describe_trial(0)
            pages.append(AnswerPage(label, [one for *_, one in pairs], models, trial))
        except (SesameError, LookupError, TypeError, ValueError) as error:
            log.warning("the page of questions leaves out %s: %s", label, error)
            left_out.append(label)
    return questions_page(f"Questions of {folder.name}", pages, left_out) if pages else ""


def _average_glue(scores: Sequence[TaskScore]) -> dict[str, float]:
    """The averages of GLUE by name, from the available scores (medians over seeds). A task with several scores counts
    as missing."""
    times = Counter(score.task for score in scores)
    task_metrics: dict[str, dict[str, float]] = {}
    for score in scores:
        if times[score.task] > 1:
            continue
        by_split = score.starts["pretrained"].scores
        task_metrics[score.task] = {metric: median(values) for metric, values in by_split[score.split].items()}
        for split, metrics in by_split.items():
            if split == f"{score.split}_mismatched":
                task_metrics[score.task] |= {
                    f"{metric}_mismatched": median(values) for metric, values in metrics.items()
                }
    averages = {name: glue_average(task_metrics, name) for name in get_args(Average)}
    return {name: value for name, value in averages.items() if value is not None}
