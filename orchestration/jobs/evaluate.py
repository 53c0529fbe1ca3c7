"""Downstream scores of a model: trials of hyperparameter grids on Ray, one file per trial, and the table of results."""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import numpy as np

from orchestration import environment, figures, launch, trackers, tracking
from orchestration.config import Cluster
from orchestration.jobs.early_start import import_mlflow_beside, resources_of
from orchestration.jobs.question_table import QuestionTable, make_question_table
from orchestration.jobs.saved_models import Saves, publish
from orchestration.jobs.score_plan import TaskPlan
from orchestration.progress import Report
from orchestration.reports import (
    GUESSES,
    PREDICTIONS,
    QUESTIONS,
    ROWS,
    SCORE_FILE,
    SHARES,
    TRAIN_ROWS,
    WHOLE,
    AnswerPage,
    SavedScores,
    figure_of,
    guesses,
    load_answers,
    load_finished_scores,
    load_score,
    name_score,
    questions_page,
    scale_value,
    score_csv,
    score_name,
    score_page,
    series,
    sort_scores,
    unit_of,
)
from preprocessing.errors import SesameError
from preprocessing.files import of_kind, read_object, write_atomic
from preprocessing.folders import make_directory, require_local_path
from training.evaluation import EvalResult, is_log
from training.metrics import Average, PairedDifference, compare_paired, glue_average, interval, submission
from training.tasks import (
    SMOOTH_METRICS,
    SelectedTrials,
    TaskFile,
    TaskItem,
    TaskScore,
    TrialScore,
    question_of,
    select_trials,
    sign_of_metric,
)

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
T = TypeVar("T")

PAGE: Final = "table.md"
QUESTIONS_PAGE: Final = "questions.html"
RESULT: Final = "result.json"  # result of a pretraining, in the directory of its run
QUESTION_TABLE: Final = "question_table.json"  # artifact with single questions, which MLflow shows as a table
MOST_CLASSES: Final = 20  # largest number of classes in a readable confusion matrix
_CORRELATIONS: Final = frozenset(("matthews", "pearson", "spearman"))  # metrics whose lowest value is -1
_MOST_NATS: Final = 700.0  # largest exponent with a finite exponential
OTHER: Final = "other"  # a prediction that is not a label

Results = Sequence[tuple[launch.EvalTrial, EvalResult]]
"""Trials that have scores, with their results."""


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

    `out`: directory of the MLflow store, for a model of transformers, which has no MLflow run yet. `left_out` collects
    the errors of the tasks without a score. `command`: the command line of the evaluation, for MLflow. `saves`: where
    the fine-tuned models are saved.
    """
    if saves:
        plans = [plan.with_saved_models() if plan.stage.folder in saves.places else plan for plan in plans]
    due = [plan for plan in plans if plan.stage.state != "done"]
    if due and out and tracking.existing_run(folder) is None:
        _create_run(folder, out, command)
    failed = _run_missing_trials(folder, due, cluster, report)
    scores, errors = dict[str, TaskScore](), list[SesameError]()
    unlogged, for_trackers = tracking.read_unlogged_metrics(folder), list[trackers.Scores]()
    for plan in plans:
        try:
            score = _score(folder, plan, failed) if plan in due else _load_finished(plan)
            if tracking.existing_run(folder) and (plan in due or plan.stage.folder.name in unlogged):
                report({"stage": "logging to MLflow"})
                _log(folder, plan, score, command)
            if plan in due and (folder / trackers.SETUP).is_file():
                for_trackers += _scores_for_trackers(folder, plan, score)
            scores[plan.stage.folder.name] = _with_plan_values(plan, score)
        except SesameError as error:
            log.warning("left out: task %s: %s", score_name(plan.task, plan.step, plan.labels), error)
            errors.append(error)
    if errors and not scores:
        raise errors[0]
    if left_out is not None:
        left_out += errors
    trackers.log_scores(folder, trackers.select_trackers, for_trackers)
    _publish(folder, scores)
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
            chosen.append((plan, _best(plan, _select_chosen(_load_results(plan), score.starts, "pretrained"))[0]))
    missing = [
        (plan, cell)
        for plan, cell in chosen
        if cell.save_to and not (cell.save_to / launch.SAVED).is_file() and not saves.has(plan)
    ]
    for _, cell in missing:
        log.warning("%s: fine-tuned again, because its model was not saved", cell.name)
    failed = _run_trials(folder, missing, cluster, report, _check_repetition)
    for plan, cell in chosen:
        if error := failed.get(plan.file_of(cell)):
            raise error
        rule = _describe_selection(plan, cell)
        place = saves.places[plan.stage.folder]
        if publish(saves, plan, cell, rule):
            saves.notes.append(f"saved {place}: {cell.name} ({rule})")
        else:
            saves.notes.append(f"{place}: has the model of {cell.name} already")
        report({"stage": "logging to MLflow"})
        name = f"model of {plan.stage.folder.name}"
        tracking.mirror(
            folder,
            name,
            f"the {name}",
            partial(tracking.log_finetuned, task=plan.task, step=plan.step, labels=plan.labels, export=place),
        )


def _describe_selection(plan: TaskPlan, cell: launch.EvalTrial) -> str:
    """The rule by which a model was selected, in words."""
    trials, seeds = len(plan.cells), {_seed(each) for each in plan.cells}
    on = plan.chosen_on or next((split for split in plan.items if split.startswith("dev")), "")
    if len(seeds) == 1 and trials == 1:
        return "the only trial"
    best = f"the best seed on {on}" if on else "the first seed, because no dev split has labels"
    grid = "the selected hyperparameters (best median over the seeds), and " if plan.chosen_on else ""
    return f"{grid}{best}: seed {_seed(cell)}"


def _check_repetition(plan: TaskPlan, cell: launch.EvalTrial, result: EvalResult) -> None:
    """Warn if a repeated trial has another score than before."""
    before = next(one for each, one in _load_results(plan) if plan.file_of(each) == plan.file_of(cell))
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


def _with_plan_values(plan: TaskPlan, score: TaskScore) -> TaskScore:
    """The score with the step, labels and reported results of the plan, and with the number of its examples.

    The stored file is updated. Two commands can request the same score: one sets the last step or the number of all
    labels, and the other leaves it out. The file stores the number in both orders of the commands.
    """
    requested = score.step if plan.step is None else plan.step, max(plan.labels, score.labels)
    fresh = replace(
        score, step=requested[0], labels=requested[1], paper=plan.paper, starts=_with_counts(plan, score.starts)
    )
    if fresh != score:
        _write_score(plan.stage.folder, fresh)
    return replace(fresh, step=plan.step, labels=plan.labels)


def _with_counts(plan: TaskPlan, starts: Mapping[str, SelectedTrials]) -> dict[str, SelectedTrials]:
    """The scores of each initialization, with the number of scored examples and of training examples."""
    labelled = {split: sum(item.gold is not None for item in items) for split, items in plan.items.items()}
    rows = {split: count for split, count in labelled.items() if split != "train"}
    rows |= {plan.split: sum(rows[part] for part in plan.parts)} if plan.parts else {}
    counts = {split: {ROWS: (float(count),)} for split, count in rows.items()}
    if plan.is_tuned and "train" in labelled:
        counts[plan.split] |= {TRAIN_ROWS: (float(plan.labels or labelled["train"]),)}
    return {
        start: replace(
            one,
            scores={
                split: {**by, **_select_scored_rows(by, counts.get(split, {}))} for split, by in one.scores.items()
            },
        )
        for start, one in starts.items()
    }


def _select_scored_rows(
    scores: Mapping[str, tuple[float, ...]], counts: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:
    """The counts of examples, without the examples that could not be scored."""
    left_out = max(scores.get("left_out", (0.0,)))
    return {name: (count - left_out,) if name == ROWS else (count,) for name, (count,) in counts.items()}


def _publish(folder: Path, now: Mapping[str, TaskScore]) -> None:
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
    pictures = _pictures(scores, _last_step(folder))

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
            pages.append(AnswerPage(label, [one for *_, one in pairs], {folder.name: (answers.kind, predictions)}))
        except (SesameError, LookupError, TypeError, ValueError) as error:
            log.warning("the page of questions leaves out %s: %s", label, error)
            left_out.append(label)
    return questions_page(f"Questions of {folder.name}", pages, left_out) if pages else ""


def _last_step(folder: Path) -> int:
    """The last step of a run; 0 if it is unknown (a model of transformers)."""
    file = folder / RESULT
    return read_object(file, "delete stage.json beside it and train again", step=int)["step"] if file.is_file() else 0


def _create_run(folder: Path, out: Path, command: str) -> None:
    """Create an MLflow run for a model that was not pretrained here."""
    make_directory(folder)
    name = folder.name.rpartition("-")[0]
    note = f"Downstream scores of `{name}`, a directory of transformers that was not pretrained here."
    metadata = tracking.Metadata(name, {}, {"net": "a directory of transformers", "command": command}, note)
    with tracking.run(tracking.tracking_store(out), folder, None, metadata):
        pass


def _score(folder: Path, plan: TaskPlan, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a plan whose trials are finished; also stored in its directory."""
    results = _load_results(plan)
    score = _summarize(plan, results, failed)
    for start, note in score.constant.items():
        guess = ", ".join(f"{name} {scale_value(value, score.metric):.1f}" for name, value in guesses(score).items())
        value = f"{score.metric} {scale_value(median(score.values(start)), score.metric):.1f}"
        log.warning(
            "task %s, %s weights: %s (%s%s)", name_score(score), start, note, value, f"; {guess}" if guess else ""
        )
    _store_score(plan, results, score)
    return score


def _log(folder: Path, plan: TaskPlan, score: TaskScore, command: str) -> None:
    """Send a score to MLflow. If the store fails, the next command for this score sends it again."""
    record = replace(_record(plan, _load_results(plan), score), last=_last_step(folder), command=command)
    task = plan.stage.folder.name
    tracking.mirror(folder, task, f"the scores of {plan.task}", lambda tracked: tracking.log_task(tracked, record))


def _scores_for_trackers(folder: Path, plan: TaskPlan, score: TaskScore) -> list[trackers.Scores]:
    """The headline scores and the figures of a task, as MLflow gets them, for the trackers of the run beside it."""
    record = _record(plan, _load_results(plan), score)
    step = _last_step(folder) if score.step is None else score.step
    values = {f"eval/{record.name}/{key}": value for key, value in record.headline.items()}
    by_labels = {f"eval/{record.name}/by_labels/{key}": value for key, value in record.headline.items()}
    pictures = {f"{record.name}/{name}": figure for name, figure in record.figures.items()}
    scores = [trackers.Scores(step, values, pictures)]
    return [*scores, trackers.Scores(score.labels, by_labels, {})] if score.labels else scores


def _run_missing_trials(
    folder: Path, plans: Sequence[TaskPlan], cluster: Cluster, report: Report
) -> Mapping[Path, SesameError]:
    """Run the missing trials and store their results; returns the errors of failed trials by their file."""
    todo = [(plan, cell) for plan in plans for cell in plan.cells if not plan.file_of(cell).is_file()]
    return _run_trials(folder, todo, cluster, report, TaskPlan.store)


def _run_trials(
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


def _load_results(plan: TaskPlan) -> Results:
    files = [(cell, plan.file_of(cell)) for cell in plan.cells]
    remedy = "delete it and repeat the command"
    results: list[tuple[launch.EvalTrial, EvalResult]] = []
    for cell, file in files:
        if file.is_file():
            result = read_object(file, remedy, found=dict)["found"]
            with of_kind(file, remedy):
                results.append((cell, EvalResult(**result)))
    return results


def _summarize(plan: TaskPlan, results: Results, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a task, computed from the results of its trials."""
    errors = [(cell, failed.get(plan.file_of(cell))) for cell in plan.cells]
    named = [(cell, error) for cell, error in errors if error is not None]
    if not any(cell.start == "pretrained" for cell, _ in results):
        raise next(error for cell, error in named if cell.start == "pretrained")
    starts = select_trials(
        [TrialScore.of(cell.start, cell.how, result.scores) for cell, result in results], plan.metric, plan.chosen_on
    )
    of_starts = {start: _select_chosen(results, starts, start) for start in starts}
    first = next(iter(starts.values())).scores[plan.split]
    guess_scores = [first[name][0] for name in GUESSES if name in first]
    return TaskScore(
        task=plan.task,
        metric=plan.metric,
        split=plan.split,
        chosen_on=plan.chosen_on,
        starts=_with_counts(plan, starts),
        step=plan.step,
        labels=plan.labels,
        chance=plan.chance if plan.chance is not None else next(iter(guess_scores), None),
        paper=plan.paper,
        examples={cell.start: result.example for cell, result in results if result.example and plan.kind is None},
        notes=(*plan.remarks, *_notes_on_files(plan), *_notes(of_starts["pretrained"])),
        failed=tuple(f"{cell.name}: {error}" for cell, error in named),
        intervals={start: ends for start, cells in of_starts.items() if (ends := _interval(plan, cells))},
        gain=_gain(plan, of_starts.get("pretrained", ()), of_starts.get("random", ())),
        constant={start: one for start, cells in of_starts.items() if (one := _constant(plan, cells))},
    )


def _interval(plan: TaskPlan, cells: Results) -> tuple[float, float] | None:
    """The 95 % interval of the score of an initialization. With one trial it is the interval of the task type, if the
    task type has one; otherwise it is computed over seeds and questions."""
    by_metric = [result.scores[plan.split] for _, result in cells]
    name = "macro" if plan.metric == "macro_accuracy" else plan.metric
    if len(cells) == 1 and f"{name}_low" in by_metric[0]:
        return by_metric[0][f"{name}_low"], by_metric[0][f"{name}_high"]
    units = _units(plan, cells)
    if len(units) < len(cells):
        return None
    value_SQ, score = np.array(list(units.values())), fmean(by[plan.metric] for by in by_metric)
    if not math.isfinite(score):
        return None
    if is_log(plan.metric):
        ends = interval(value_SQ, math.log(score), is_share=False)
        return ends and (math.exp(max(ends[0], -_MOST_NATS)), math.exp(min(ends[1], _MOST_NATS)))
    ends = interval(value_SQ, score, is_share=unit_of(plan.metric) == SHARES)
    return ends and _clip_interval(ends, *_range(plan.metric))


def _range(metric: str) -> tuple[float, float]:
    """The lowest and the highest possible score."""
    if unit_of(metric) != SHARES:
        return -math.inf, math.inf
    return (-1.0 if _CORRELATIONS.intersection(metric.split("_")) else 0.0), 1.0


def _clip_interval(ends: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """The interval, clipped to possible scores. The interval of a metric that is not a mean is symmetric and may exceed
    them.

    >>> _clip_interval((0.9, 1.2), 0.0, 1.0)
    (0.9, 1.0)
    """
    return min(max(ends[0], low), high), min(max(ends[1], low), high)


def _gain(plan: TaskPlan, pretrained: Results, random: Results) -> PairedDifference | None:
    """The paired test of the gain over random initialization, with the seeds that both have.

    None if it was not measured, or if a fine-tuning has only one seed.
    """
    one, other = _units(plan, pretrained), _units(plan, random)
    seeds = [seed for seed in one if seed in other and len(one[seed]) == len(other[seed])]
    is_tuned = any(cell.tuning for cell, _ in (*pretrained, *random))
    if len(seeds) < (2 if is_tuned else 1):
        return None
    scores = [
        {_seed(cell): result.scores[plan.split][plan.metric] for cell, result in cells}
        for cells in (pretrained, random)
    ]
    sign = sign_of_metric(plan.metric)
    difference = sign * fmean(scores[0][seed] - scores[1][seed] for seed in seeds)
    both = zip((one, other), scores, strict=True)
    first, second = (
        sign * np.array([_in_units(plan.metric, units[seed], of[seed]) for seed in seeds]) for units, of in both
    )
    result, (low, high) = compare_paired(first, second, difference), _range(plan.metric)
    if result is None:
        return None
    ends = _clip_interval((result.low, result.high), low - high, high - low)
    return replace(result, low=ends[0], high=ends[1])


def _in_units(metric: str, values: Sequence[float], score: float) -> Sequence[float]:
    """The values of questions in the unit of their metric: the contribution of each to the score. For metrics with a
    logarithm, this is a first-order approximation.

    >>> _in_units("perplexity", [2.0, 3.0], 10.0), _in_units("accuracy", [0.0, 1.0], 0.5)
    ([5.0, 15.0], [0.0, 1.0])
    """
    return [score * (1 + value - fmean(values)) for value in values] if is_log(metric) else values


def _units(plan: TaskPlan, cells: Results) -> dict[int, Sequence[float]]:
    """By seed, the values of the questions of the scored split; {} if they are unknown or differ in number."""
    units_by_seed = {_seed(cell): units for cell, one in cells if (units := one.by_unit.get(plan.split, ()))}
    return units_by_seed if len({len(units) for units in units_by_seed.values()}) == 1 else {}


def _constant(plan: TaskPlan, cells: Results) -> str:
    """A note if a seed of this initialization always predicts the same answer; "" otherwise."""
    constants = [result.constant.get(plan.split, "") for _, result in cells]
    answers = ", ".join(dict.fromkeys(filter(None, constants)))
    of_seeds = f" with {sum(map(bool, constants))} of {len(constants)} seeds" if len(constants) > 1 else ""
    return f"one constant answer{of_seeds}: {answers}" if answers else ""


def _notes_on_files(plan: TaskPlan) -> list[str]:
    """Notes on the files of a task for the page of this task, without the name of the task."""
    return [re.sub(rf"^task {re.escape(plan.task)}[:,] ", "", note) for note in plan.notes]


def _notes(cells: Results) -> list[str]:
    """Notes of trials that differ only in their seed. If only some trials have a note, their seed is added to it."""
    shared = set.intersection(*(set(result.notes) for _, result in cells))
    notes = [(note, _seed(cell)) for cell, result in cells for note in result.notes]
    return list(dict.fromkeys(note if note in shared else f"seed {seed}: {note}" for note, seed in notes))


def _store_score(plan: TaskPlan, results: Results, score: TaskScore) -> None:
    """Write a score to its directory, with the predictions of the selected trials. If no trial failed, the stage is
    marked as done."""
    plan.stage.folder.mkdir(parents=True, exist_ok=True)
    _write_score(plan.stage.folder, score)
    if answers := _predictions_of(results, score):
        write_atomic(plan.stage.folder / PREDICTIONS, json.dumps(answers, ensure_ascii=False, indent=1).encode())
    _store_questions(plan, results)
    if not score.failed:
        plan.stage.finish()


def _load_finished(plan: TaskPlan) -> TaskScore:
    """A finished score. Its questions are stored again if an earlier version stored them without texts."""
    score, file = load_score(plan.stage.folder), plan.stage.folder / QUESTIONS
    if file.is_file():
        with file.open("rb") as opened:
            is_old = b'"texts"' not in opened.read(1 << 16)
        if is_old:
            _store_questions(plan, _load_results(plan))
    return score


def _store_questions(plan: TaskPlan, results: Results) -> None:
    if questions := _questions_of(plan, results):
        write_atomic(
            plan.stage.folder / QUESTIONS, json.dumps(questions, ensure_ascii=False, indent=1, default=str).encode()
        )


def _write_score(folder: Path, score: TaskScore) -> None:
    write_atomic(folder / SCORE_FILE, json.dumps([asdict(score)], indent=1).encode())


def _predictions_of(results: Results, score: TaskScore) -> dict[str, Any]:
    """The predictions of the selected trials, by initialization and seed."""
    return {
        f"{cell.start}, seed {_seed(cell)}": result.predictions
        for start in score.starts
        for cell, result in _select_chosen(results, score.starts, start)
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


def _select_chosen(results: Results, starts: Mapping[str, SelectedTrials], start: str) -> Results:
    """The trials with the selected hyperparameters, for one initialization."""

    def plain(how: Mapping[str, Any]) -> Any:
        return json.loads(json.dumps({key: value for key, value in how.items() if key != "seed"}))

    how = plain(starts[start].how)
    return [(cell, result) for cell, result in results if cell.start == start and plain(cell.how) == how]


def _seed(cell: launch.EvalTrial) -> int:
    return cell.tuning.seed if cell.tuning else 0


def submit(plans: Sequence[TaskPlan], scores: Sequence[TaskScore], folder: Path) -> list[str]:
    """Write the files for a leaderboard and return their names. Predictions are those of the seed that is best on dev,
    if there is a dev split."""
    require_local_path("--leaderboard-dir", folder)
    files = dict[str, str]()
    score_of = {(score.task, score.step, score.labels): score for score in scores}
    for plan in plans:
        if (score := score_of.get((plan.task, plan.step, plan.labels))) is None:
            continue  # all of its trials failed; an earlier warning named them
        best = _best(plan, _select_chosen(_load_results(plan), score.starts, "pretrained"))[1]
        files |= {file: submission(best.predictions[split]) for split, file in plan.submission.items()}
    make_directory(folder)
    for name, text in files.items():
        write_atomic(folder / name, text.encode())
    return sorted(files)


def _best(plan: TaskPlan, cells: Results) -> tuple[launch.EvalTrial, EvalResult]:
    """The trial and the result of the seed that is best on dev; without a dev split, of the first seed.

    The test split is never used to select a seed.
    """
    cell, first = cells[0]
    on = plan.chosen_on or next((split for split in first.scores if split.startswith("dev")), "")
    if on:
        return max(cells, key=lambda pair: sign_of_metric(plan.metric) * pair[1].scores[on][plan.metric])
    if len(cells) > 1:
        message = "task %s: no labeled dev split to select a seed with; the predictions are those of seed %d"
        log.warning(message, plan.task, _seed(cell))
    return cell, first


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


# Records for MLflow


def _record(plan: TaskPlan, results: Results, score: TaskScore) -> tracking.TaskRecord:
    """The MLflow record of a task: scores of each initialization, figures, predictions, and its trials."""
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
    params = {"metric": score.metric, "split": score.split, "chosen_on": score.chosen_on, "labels": score.labels}
    params |= {"intervals": score.intervals, "constant": score.constant}
    params |= {"gain": asdict(score.gain)} if score.gain else {}
    params |= {**guesses(score), "chosen": {start: one.how for start, one in score.starts.items()}}
    examples = [found.example for _, found in results if found.example]
    table = _question_table(plan, results, score)
    return tracking.TaskRecord(
        name=score.task,
        step=score.step,
        labels=score.labels,
        params=params | {"paper": {_split_name(name): value for name, value in score.paper.items()}},
        series={f"{start}_{score.metric}": found for start, found in values.items()} | every,
        headline=headline,
        figures=_figures(plan, results, score),
        files={"table.md": score_page(score.task, [score])} | ({"example.txt": examples[0]} if examples else {}),
        note=_note(plan, score, table),
        tables={QUESTION_TABLE: (table.columns, table.rows)} if table else {},
        datasets=_datasets(plan),
        corpus=plan.cells[0].corpus if plan.kind is None else None,
        cells=[_trial_record(cell, found) for cell, found in results],
    )


def _note(plan: TaskPlan, score: TaskScore, table: QuestionTable | None) -> str:
    """The description of the run of a task in Markdown."""
    of = plan.cells[0].task
    described = f": {of.description.rstrip('.')} ({of.citation.rstrip('.')})" if isinstance(of, TaskFile) else ""
    medians = ", ".join(
        f"{start} {scale_value(median(score.values(start)), score.metric):.1f}" for start in score.starts
    )
    lines = [
        f"task `{score.task}`{described}",
        f"{score.metric.replace('_', ' ')} on {score.split}: {medians}",
        *(f"{split}: {len(plan.items[split]):,} questions of `{file.location}`" for split, file in plan.files.items()),
        *score.notes,
    ]
    lines += [f"`{QUESTION_TABLE}`: {table.describe()}, with expected and predicted answers"] if table else []
    return "\n".join(f"* {line}" for line in lines)


def _question_table(plan: TaskPlan, results: Results, score: TaskScore) -> QuestionTable | None:
    """The single questions of the scored splits, with the predictions of the first selected trials."""
    splits = plan.parts or (plan.split,)
    items = {split: plan.items[split] for split in splits if split in plan.items}
    answers = {start: _select_chosen(results, score.starts, start)[0][1].predictions for start in score.starts}
    golds = {split: [_show_gold(plan, item) for item in of] for split, of in items.items()}
    return make_question_table(items, golds, answers)


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


def _trial_record(cell: launch.EvalTrial, result: EvalResult) -> tracking.TrialRecord:
    scores = _join_names(
        ((split, metric), value) for split, by in result.scores.items() for metric, value in by.items()
    )
    return tracking.TrialRecord(cell.name, {"start": cell.start, **cell.how}, scores, result.losses)


def _figures(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    values = {start: score.values(start) for start in score.starts}
    title = f"{score.task}, {score.split}" + (f", {score.labels:,} labels" if score.labels else "")
    plots = {"scores": figures.plot_comparison(title, values, guesses(score), score.metric, score.intervals)}
    points: dict[str, list[tuple[float, float]]] = {}
    for cell, one in results:
        if plan.chosen_on and cell.tuning:
            points.setdefault(cell.start, []).append(
                (cell.tuning.learning_rate, one.scores[plan.chosen_on][plan.metric])
            )
    if points:
        plots["rates"] = figures.plot_against_rate(f"{score.task}, {plan.chosen_on}", points, score.metric)
    return plots | _confusion(plan, results, score)


def _confusion(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    """The confusion matrix of a task with a few labels, for the first selected trial.

    Labels that count as one are merged (HANS merges two). A prediction that is not a label counts as `other`.
    """
    kind = getattr(plan.kind, "task", plan.kind)  # the task inside a text-to-text task
    merge = getattr(kind, "merge_labels", {})
    named = [merge.get(label, label) for label in getattr(kind, "labels", ())]
    labels = list(dict.fromkeys(named))
    _, result = _select_chosen(results, score.starts, "pretrained")[0]
    splits = plan.parts or (plan.split,)
    answers = [one for split in splits for one in result.predictions.get(split, ())]
    items = [item for split in splits for item in plan.items.get(split, ())]
    if not 2 <= len(labels) <= MOST_CLASSES or not answers or not all(isinstance(one, str) for one in answers):
        return {}
    others = [OTHER] if any(answer not in labels for answer in answers) else []
    counts = Counter(
        (named[item.gold], answer if answer in labels else OTHER)
        for item, answer in zip(items, answers, strict=True)
        if isinstance(item.gold, int) and item.gold < len(named)
    )
    rows = [[counts[gold, answer] for answer in (*labels, *others)] for gold in labels]
    return {"confusion": figures.plot_confusion(f"{score.task}, {plan.split}", labels, rows, others)}


def _pictures(scores: Sequence[TaskScore], last: int = 0) -> dict[str, "Figure"]:
    """Figures of all tasks; for a run with scores at several steps or label counts, also curves over these.

    Scores that are not fractions have a panel and figures for each unit. `last`: last step of the finished run.
    """
    scores = [replace(score, step=last) if score.step is None and last else score for score in scores]
    by_unit: dict[str, list[TaskScore]] = {}
    for score in scores:
        by_unit.setdefault(unit_of(score.metric), []).append(score)
    bars = {
        unit: {score.task: score for score in same_unit}.values() for unit, same_unit in by_unit.items()
    }  # the last score of each task
    plots = {"scores": figures.plot_scores({unit: [_bar(score) for score in of] for unit, of in bars.items()})}
    for metric in SMOOTH_METRICS:  # curves of scores that move while accuracies are still at chance
        measured = [replace(score, metric=metric) for score in scores if metric in _metrics_of(score)]
        if metric not in by_unit and (steps := _curves(measured, "step", "labels")):
            plots[f"scores_by_step_{metric}"] = figures.plot_curves(steps, unit_of(metric))
    for unit, of in by_unit.items():
        name = "" if unit == SHARES else f"_{unit}"
        if steps := _curves(of, "step", "labels"):
            plots[f"scores_by_step{name}"] = figures.plot_curves(steps, unit)
        if labels := _curves(of, "labels", "step"):
            plots[f"scores_by_labels{name}"] = figures.plot_curves(labels, unit, "labeled examples", log=True)
    return plots


def _metrics_of(score: TaskScore) -> Mapping[str, Any]:
    """The metrics of the scored split, which all initializations have."""
    return next(iter(score.starts.values())).scores[score.split]


def _bar(score: TaskScore) -> figures.Bar:
    """The scores of a task in the units of the table, with a reported result of the paper. This is the result for the
    same metric if there is one, otherwise the first result."""
    values = {start: [scale_value(value, score.metric) for value in score.values(start)] for start in score.starts}
    reported = [(*figure_of(name), value) for name, value in score.paper.items()]
    named = {name.replace("_", ""): (split, value) for name, split, value in reported}
    split, paper = named.get(score.metric.replace("_", ""), next(iter(named.values()), ("", None)))
    other = f"\n{score.split}, paper {split}" if split not in ("", score.split) else ""
    ends = {
        start: (scale_value(low, score.metric), scale_value(high, score.metric))
        for start, (low, high) in score.intervals.items()
    }
    return figures.Bar(f"{score.task}\n{score.metric.replace('_', ' ')}{other}", values, paper, ends)


def _curves(
    scores: Sequence[TaskScore], along: Literal["step", "labels"], apart: Literal["step", "labels"]
) -> dict[str, list[tuple[int, float]]]:
    """Medians along steps or labels; {} if there are none. Each task, initialization and value of `apart` has a
    curve."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for score in scores:
        values = getattr(score, apart), getattr(score, along)
        for start in score.starts if values[1] else ():
            label = f"{score.task}, {score.metric}" + (f", {start}" if len(score.starts) > 1 else "")
            label += f", {values[0]:,} {apart}" if values[0] else ""
            lines.setdefault(label, []).append((values[1], scale_value(median(score.values(start)), score.metric)))
    return {label: line for label, line in lines.items() if len(line) > 1}
