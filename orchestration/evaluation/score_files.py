"""The files of a scored task in its directory: its score, its questions, and the predictions of its trials."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.task_scores import with_counts
from orchestration.evaluation.trials import Results, load_results, seed_of, select_chosen
from orchestration.reports import PREDICTIONS, QUESTIONS, SCORE_FILE, load_score
from preprocessing.files import write_atomic
from training.evaluation.tasks import TaskScore, question_of


def store_score(plan: TaskPlan, results: Results, score: TaskScore) -> None:
    """Write a score to its directory, with the predictions of the selected trials. If no trial failed, the stage is
    marked as done."""
    plan.stage.folder.mkdir(parents=True, exist_ok=True)
    _write_score(plan.stage.folder, score)
    if answers := _predictions_of(results, score):
        write_atomic(plan.stage.folder / PREDICTIONS, json.dumps(answers, ensure_ascii=False, indent=1).encode())
    _store_questions(plan, results)
    if not score.failed:
        plan.stage.finish()


def load_finished_score(plan: TaskPlan) -> TaskScore:
    """A finished score. Its questions are stored again if an earlier version stored them without texts."""
    score, file = load_score(plan.stage.folder), plan.stage.folder / QUESTIONS
    if file.is_file():
        with file.open("rb") as opened:
            is_old = b'"texts"' not in opened.read(1 << 16)
        if is_old:
            _store_questions(plan, load_results(plan))
    return score


def update_score(plan: TaskPlan, score: TaskScore) -> TaskScore:
    """The score with the step, labels and reported results of the plan, and with the number of its examples.

    The stored file is updated. Two commands can request the same score: one sets the last step or the number of all
    labels, and the other leaves it out. The file stores the number in both orders of the commands.
    """
    requested = score.step if plan.step is None else plan.step, max(plan.labels, score.labels)
    fresh = replace(
        score, step=requested[0], labels=requested[1], paper=plan.paper, starts=with_counts(plan, score.starts)
    )
    if fresh != score:
        _write_score(plan.stage.folder, fresh)
    return replace(fresh, step=plan.step, labels=plan.labels)


def _write_score(folder: Path, score: TaskScore) -> None:
    write_atomic(folder / SCORE_FILE, json.dumps([asdict(score)], indent=1).encode())


def _store_questions(plan: TaskPlan, results: Results) -> None:
    if questions := _questions_of(plan, results):
        write_atomic(
            plan.stage.folder / QUESTIONS, json.dumps(questions, ensure_ascii=False, indent=1, default=str).encode()
        )


def _predictions_of(results: Results, score: TaskScore) -> dict[str, Any]:
    """The predictions of the selected trials, by initialization and seed."""
    return {
        f"{cell.start}, seed {seed_of(cell)}": result.predictions
        for start in score.starts
        for cell, result in select_chosen(results, score.starts, start)
        if result.predictions
    }


def _questions_of(plan: TaskPlan, results: Results) -> dict[str, list[Any]]:
    """By split, the question of each prediction: its place, its texts, its correct answer, and its ID if it has one."""
    if not plan.items:
        return {split: list(each) for split, each in results[0][1].questions.items()} if results else {}
    return {
        split: [question_of(plan.kind, item) for item in items]
        for split, items in plan.items.items()
        if split != "train"
    }
