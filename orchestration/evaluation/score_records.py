"""The record of a scored task for MLflow and the other trackers: scores, figures, datasets, and single questions."""

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from orchestration import launch, trackers, tracking
from orchestration.config import compute_digest
from orchestration.evaluation.question_table import QuestionTable, make_question_table
from orchestration.evaluation.score_figures import draw_task
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.trials import Results, load_results, seed_of, select_chosen
from orchestration.reports import format_value, guesses, has_other_settings, score_page, select_applied
from preprocessing.files import read_object
from training.evaluation import EvalResult
from training.evaluation.tasks import SMOOTH_METRICS, TaskFile, TaskItem, TaskScore, question_of, show_answer

T = TypeVar("T")

QUESTION_TABLE: Final = "question_table.json"  # artifact with single questions, which MLflow shows as a table


def name_record(folder: Path, plan: TaskPlan) -> str:
    """The name of a task for MLflow and the trackers. If the model in `folder` has a finished score of this task with
    other settings, it ends with the hash of the settings, as in the table of scores.

    Scores that differ only in the step have equal names, because they are a curve.
    """
    causes = plan.stage.causes
    if not has_other_settings(folder, plan.task, plan.labels, causes):
        return plan.task
    return f"{plan.task}-{compute_digest({name: cause for name, cause in causes.items() if name != 'step'})[:8]}"


def make_record(
    plan: TaskPlan, results: Results, score: TaskScore, name: str, last: int, command: str
) -> tracking.TaskRecord:
    """The MLflow record of a task: scores of each initialization, figures, predictions, and its trials.

    `name`: its name (`name_record`). `last`: the last step of the pretraining, 0 if it is unknown. `command`: the
    command line of the evaluation.
    """
    values = {start: score.values(start) for start in score.starts}
    every = _join_names(
        ((start, split, metric), found)
        for start, one in score.starts.items()
        for split, metrics in one.scores.items()
        for metric, found in metrics.items()
    )
    headline = {
        f"{start}_{metric}": median(found)
        for start, one in score.starts.items()
        for metric in (score.metric, *SMOOTH_METRICS)
        if (found := one.scores[score.split].get(metric))
    }
    params: dict[str, Any] = {"metric": score.metric, "split": score.split, "chosen_on": score.chosen_on}
    params |= {"labels": score.labels} if score.labels else {}
    params |= {"intervals": score.intervals, "constant": score.constant}
    params |= {"gain": asdict(score.gain)} if score.gain else {}
    params |= {**guesses(score), "chosen": {start: select_applied(one.how) for start, one in score.starts.items()}}
    examples = [found.example for _, found in results if found.example]
    table = _question_table(plan, results, score)
    return tracking.TaskRecord(
        name=name,
        step=score.step,
        labels=score.labels,
        params=params | {"paper": {_split_name(name): value for name, value in score.paper.items()}},
        series={f"{start}_{score.metric}": found for start, found in values.items()} | every,
        headline=headline,
        figures=draw_task(plan, results, score),
        files={"table.md": score_page(score.task, [score])} | ({"example.txt": examples[0]} if examples else {}),
        note=_note(plan, results, score, table),
        scores=plan.stage.folder.name,
        tables={QUESTION_TABLE: (table.columns, table.rows)} if table else {},
        datasets=_datasets(plan),
        corpus=plan.cells[0].corpus if plan.kind is None else None,
        cells=[_trial_record(cell, found) for cell, found in results],
        last=last,
        command=command,
    )


def make_finetuned_record(plan: TaskPlan, cell: launch.EvalTrial, place: Path, name: str) -> tracking.FinetunedRecord:
    """The MLflow record of the model of a trial, which is saved in `place`. `name`: that of the task."""
    about = read_object(place / launch.SAVED, "save the model again", scores=dict)
    result = next(one for each, one in load_results(plan) if plan.file_of(each) == plan.file_of(cell))
    return tracking.FinetunedRecord(
        name=name,
        step=plan.step,
        labels=plan.labels,
        score_folder=plan.stage.folder.name,
        export=place,
        about=about,
        steps=len(result.losses),
        scores=about["scores"],
        datasets=dict(zip(plan.files, _datasets(plan), strict=True)),
    )


def make_tracker_scores(record: tracking.TaskRecord) -> list[trackers.Scores]:
    """The headline scores and the figures of a task, as MLflow gets them, for the trackers of the run beside it."""
    step = record.last if record.step is None else record.step
    values = {f"eval/{record.name}/{key}": value for key, value in record.headline.items()}
    by_labels = {f"eval/{record.name}/by_labels/{key}": value for key, value in record.headline.items()}
    pictures = {f"{record.name}/{name}": figure for name, figure in record.figures.items()}
    scores = [trackers.Scores(step, values, pictures)]
    return [*scores, trackers.Scores(record.labels, by_labels, {})] if record.labels else scores


def _note(plan: TaskPlan, results: Results, score: TaskScore, table: QuestionTable | None) -> str:
    """The description of the run of a task in Markdown."""
    of = plan.cells[0].task
    described = f": {of.description.rstrip('.')} ({of.citation.rstrip('.')})" if isinstance(of, TaskFile) else ""
    medians = ", ".join(f"{start} {format_value(median(score.values(start)), score.metric)}" for start in score.starts)
    lines = [
        f"task `{score.task}`{described}",
        f"{score.metric.replace('_', ' ')} on {score.split}: {medians}",
        *(f"{split}: {len(plan.items[split]):,} questions of `{file.location}`" for split, file in plan.files.items()),
        *score.notes,
    ]
    cells = select_chosen(results, score.starts, "pretrained")
    seed = f" of seed {seed_of(cells[0][0])}, one of {len(cells)}" if len(cells) > 1 else ""
    lines += [f"`{QUESTION_TABLE}`: {table.describe()}, with expected and predicted answers{seed}"] if table else []
    return "\n".join(f"* {line}" for line in lines)


def _question_table(plan: TaskPlan, results: Results, score: TaskScore) -> QuestionTable | None:
    """The single questions of the scored splits, with the predictions of the first selected trials."""
    splits = plan.parts or (plan.split,)
    items = {split: plan.items[split] for split in splits if split in plan.items}
    answers = {start: select_chosen(results, score.starts, start)[0][1].predictions for start in score.starts}
    golds = {split: [_show_gold(plan, item) for item in of] for split, of in items.items()}
    return make_question_table(items, golds, answers, partial(_is_correct, plan.kind))


def _is_correct(kind: Any, item: TaskItem, prediction: Any) -> bool | None:
    """Whether a prediction is right, as on the page of questions; None if it is neither right nor wrong."""
    return show_answer(kind, question_of(kind, item), prediction).correct


def _show_gold(plan: TaskPlan, item: TaskItem) -> Any:
    """The correct answer as a person reads it: a choice by its text."""
    options = getattr(item.texts[0], "options", ()) if item.texts else ()
    gold = question_of(plan.kind, item)["gold"]
    return options[gold] if isinstance(gold, int) and not isinstance(gold, bool) and gold < len(options) else gold


def _datasets(plan: TaskPlan) -> list[tracking.TaskDataset]:
    """The files of a task, as datasets of its run."""
    digests = plan.cells[0].digests
    return [
        tracking.TaskDataset(
            name=f"{plan.task}, {split}",
            digest=digests.get(split, plan.data_digest),
            location=file.location,
            columns=file.columns,
            num_rows=len(plan.items[split]),
            context="training" if split == "train" else "evaluation",
            is_scored=split in (plan.parts or (plan.split,)),
        )
        for split, file in plan.files.items()
    ]


def _trial_record(cell: launch.EvalTrial, result: EvalResult) -> tracking.TrialRecord:
    scores = _join_names(
        ((split, metric), value) for split, by in result.scores.items() for metric, value in by.items()
    )
    return tracking.TrialRecord(cell.name, {"start": cell.start, **select_applied(cell.how)}, scores, result.losses)


def _join_names(values: Iterable[tuple[tuple[str, ...], T]]) -> dict[str, T]:
    """Values with the parts of their names joined by `_`. If two names become equal, the parts of the second name are
    joined by slashes.

    >>> _join_names([(("dev", "a_f1"), 1), (("dev_a", "f1"), 2)])
    {'dev_a_f1': 1, 'dev_a/f1': 2}
    """
    joined = dict[str, T]()
    for parts, value in values:
        name = "_".join(parts)
        joined["/".join(parts) if name in joined else name] = value
    return joined


def _split_name(name: str) -> str:
    """The name of a reported result, with its split as the last part.

    >>> _split_name("glue.mrpc (test)"), _split_name("lambada.accuracy")
    ('glue.mrpc.test', 'lambada.accuracy')
    """
    return name.replace(" (", ".").removesuffix(")")
