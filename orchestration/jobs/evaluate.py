"""Downstream scores of a net: grids of cells on Ray, each cell kept in a file, the table of what came out."""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import numpy as np

from orchestration import environment, figures, launch, tracking
from orchestration.config import Cluster
from orchestration.jobs.score_plan import TaskPlan
from orchestration.progress import Report
from orchestration.reports import (
    GUESSES,
    ROWS,
    SCORE_FILE,
    SHARES,
    TRAIN_ROWS,
    WHOLE,
    figure_of,
    guesses,
    load_finished_scores,
    load_score,
    named,
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
from training.metrics import Average, PairedDifference, glue_average, interval, paired_difference, submission
from training.tasks import ExtractiveQA, SelectedTrials, TaskItem, TaskScore, TrialScore, select_trials, sign_of_metric

if TYPE_CHECKING:  # it takes a second to import
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
T = TypeVar("T")

PREDICTIONS: Final = "predictions.json"
PAGE: Final = "table.md"
RESULT: Final = "result.json"  # of a pretraining, in the folder of its run
QUESTIONS: Final = "questions.json"  # what these are answers to, in the same order
MOST_CLASSES: Final = 20  # of a confusion matrix that can be read
_CORRELATIONS: Final = frozenset(("matthews", "pearson", "spearman"))  # from -1 on
_MOST_NATS: Final = 700.0  # of which e to the power is a number
OTHER: Final = "other"  # an answer that is no label

Results = Sequence[tuple[launch.EvalTrial, EvalResult]]
"""The cells that have scores, with them."""


def evaluate(
    folder: Path,
    plans: Sequence[TaskPlan],
    cluster: Cluster,
    report: Report,
    out: Path | None = None,
    left_out: list[SesameError] | None = None,
) -> list[TaskScore]:
    """The score of each plan; those of an earlier time, where they are done. Cells that are kept are not done again.

    A cell that fails is named, and the others count; so is a task of which all cells fail. Where that is so of every
    task, the first error is raised.
    `out`: where MLflow's store is, for a net of transformers, which has no run there yet. `left_out` gets the errors of
    the tasks that have no score.
    """
    due = [plan for plan in plans if plan.stage.state != "done"]
    if due and out and tracking.existing_run(folder) is None:
        _track_anew(folder, out)
    failed = _do_cells(folder, due, cluster, report)
    found, errors = dict[str, TaskScore](), list[SesameError]()
    owed = tracking.unlogged_metrics(folder)
    for plan in plans:
        try:
            score = _scored(folder, plan, failed) if plan in due else load_score(plan.stage.folder)
            if tracking.existing_run(folder) and (plan in due or plan.stage.folder.name in owed):
                report({"stage": "logging to MLflow"})
                _log(folder, plan, score)
            found[plan.stage.folder.name] = _said(plan, score)
        except SesameError as error:
            log.warning("left out: task %s: %s", score_name(plan.task, plan.step, plan.labels), error)
            errors.append(error)
    if errors and not found:
        raise errors[0]
    if left_out is not None:
        left_out += errors
    _tell(folder, found)
    return list(found.values())


def _said(plan: TaskPlan, score: TaskScore) -> TaskScore:
    """A score with the step and the labels by which it was asked for, the figures of its paper and the number of its
    rows. Its file has them from then on, whichever of two commands comes first: all labels, or the last step, may be
    asked for by their number or without a word."""
    told = score.step if plan.step is None else plan.step, max(plan.labels, score.labels)
    fresh = replace(score, step=told[0], labels=told[1], paper=plan.paper, starts=_counted(plan, score.starts))
    if fresh != score:
        _write(plan.stage.folder, fresh)
    return replace(fresh, step=plan.step, labels=plan.labels)


def _counted(plan: TaskPlan, starts: Mapping[str, SelectedTrials]) -> dict[str, SelectedTrials]:
    """The scores of each start with the number of rows that they are of, and that were learned from."""
    labelled = {split: sum(item.gold is not None for item in items) for split, items in plan.items.items()}
    rows = {split: count for split, count in labelled.items() if split != "train"}
    rows |= {plan.split: sum(rows[part] for part in plan.parts)} if plan.parts else {}
    counts = {split: {ROWS: (float(count),)} for split, count in rows.items()}
    if plan.is_tuned and "train" in labelled:
        counts[plan.split] |= {TRAIN_ROWS: (float(plan.labels or labelled["train"]),)}
    return {
        start: replace(
            one, scores={split: {**by, **_scored_rows(by, counts.get(split, {}))} for split, by in one.scores.items()}
        )
        for start, one in starts.items()
    }


def _scored_rows(
    scores: Mapping[str, tuple[float, ...]], counts: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:
    """The counts of rows, without those that could not be scored."""
    left_out = max(scores.get("left_out", (0.0,)))
    return {name: (count - left_out,) if name == ROWS else (count,) for name, (count,) in counts.items()}


def _tell(folder: Path, now: Mapping[str, TaskScore]) -> None:
    """The page, the table and the pictures of all finished scores, and of those of this command that lack cells: in
    files, and in MLflow where they are other than before."""
    done = load_finished_scores(folder)
    fresh = {name: (score, (score.step, score.labels)) for name, score in now.items()}
    scores = sort_scores(fresh | done, series(folder))
    if not scores:
        return
    name, averages = (
        folder.name.rpartition("-")[0] or folder.name,
        _glue([one for one, apart in done.values() if apart == WHOLE]),
    )
    files = {PAGE: score_page(name, scores, averages), "table.csv": score_csv(scores)}
    places = {folder / "scores" / file: text.encode() for file, text in files.items()}
    is_new = not all(place.is_file() and place.read_bytes() == text for place, text in places.items())
    if not is_new and PAGE not in tracking.unlogged_metrics(folder):
        return
    for place, text in places.items():
        write_atomic(place, text)
    pictures = _pictures(scores, _last_step(folder))

    def log_all(tracked: tracking.TrackedRun) -> None:
        tracking.log_page(tracked, files, pictures)
        tracking.log_scores(tracked, {f"eval/glue/average_{key}": value for key, value in averages.items()})

    tracking.mirror(folder, PAGE, "the scores in a table", log_all)


def _last_step(folder: Path) -> int:
    """The step at which a run ended; 0 where that is not known (a net of transformers)."""
    file = folder / RESULT
    return read_object(file, "delete stage.json beside it, and train again", step=int)["step"] if file.is_file() else 0


def _track_anew(folder: Path, out: Path) -> None:
    """A run of MLflow for a net that was not pretrained here."""
    make_directory(folder)
    metadata = tracking.Metadata(folder.name.rpartition("-")[0], {}, {"net": "a folder of transformers"})
    with tracking.run(tracking.tracking_store(out), folder, None, metadata):
        pass


def _scored(folder: Path, plan: TaskPlan, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a plan whose cells are done, which its folder has from then on."""
    results = _results(plan)
    score = _summed_up(plan, results, failed)
    for start, said in score.constant.items():
        guess = ", ".join(f"{name} {scale_value(value, score.metric):.1f}" for name, value in guesses(score).items())
        value = f"{score.metric} {scale_value(median(score.values(start)), score.metric):.1f}"
        log.warning("task %s, %s weights: %s (%s%s)", named(score), start, said, value, f"; {guess}" if guess else "")
    _keep(plan, results, score)
    return score


def _log(folder: Path, plan: TaskPlan, score: TaskScore) -> None:
    """Give a score to MLflow; what that does not take is given to it by the next command that asks for the score."""
    record = replace(_record(plan, _results(plan), score), last=_last_step(folder))
    task = plan.stage.folder.name
    tracking.mirror(folder, task, f"the scores of {plan.task}", lambda tracked: tracking.log_task(tracked, record))


def _do_cells(folder: Path, plans: Sequence[TaskPlan], cluster: Cluster, report: Report) -> Mapping[Path, SesameError]:
    """Do the cells that are not kept yet, on one Ray; those that failed, by their file, and why."""
    todo = [(plan, cell) for plan in plans for cell in plan.cells if not plan.file_of(cell).is_file()]
    if not todo:
        return {}
    has = {"cpus": max(launch.cores(), cluster.cpus_per_worker), "gpus": cluster.gpus}  # 0: all that Ray finds

    def on_done(number: int, found: EvalResult) -> str:
        plan, cell = todo[number]
        plan.keep(cell, found)
        return f"{cell.name}: {plan.result(found)}"

    with (
        environment.applied(cluster.env) as env,
        launch.ray_session(
            cluster.ray_address, **has, dashboard=cluster.ray_dashboard, logs=folder / "ray-logs", report=report
        ),
        launch.stop_signals() as asked,
    ):
        room = launch.TrialResources(cluster.cpus_per_worker, cluster.gpus_per_worker, cluster.finetuning_workers, env)
        failed = launch.run_trials([cell for _, cell in todo], room, on_done, asked, report)
    return {todo[number][0].file_of(todo[number][1]): error for number, error in failed.items()}


def _results(plan: TaskPlan) -> Results:
    files = [(cell, plan.file_of(cell)) for cell in plan.cells]
    remedy = "delete it, and the same command makes it anew"
    found: list[tuple[launch.EvalTrial, EvalResult]] = []
    for cell, file in files:
        if file.is_file():
            kept_values = read_object(file, remedy, found=dict)["found"]
            with of_kind(file, remedy):
                found.append((cell, EvalResult(**kept_values)))
    return found


def _summed_up(plan: TaskPlan, results: Results, failed: Mapping[Path, SesameError]) -> TaskScore:
    """The score of a task, from the results of its cells."""
    errors = [(cell, failed.get(plan.file_of(cell))) for cell in plan.cells]
    named = [(cell, error) for cell, error in errors if error is not None]
    if not any(cell.start == "pretrained" for cell, _ in results):
        raise next(error for cell, error in named if cell.start == "pretrained")
    starts = select_trials(
        [TrialScore.of(cell.start, cell.how, found.scores) for cell, found in results], plan.metric, plan.chosen_on
    )
    of_starts = {start: _chosen(results, starts, start) for start in starts}
    first = next(iter(starts.values())).scores[plan.split]
    said = [first[name][0] for name in GUESSES if name in first]
    return TaskScore(
        task=plan.task,
        metric=plan.metric,
        split=plan.split,
        chosen_on=plan.chosen_on,
        starts=_counted(plan, starts),
        step=plan.step,
        labels=plan.labels,
        chance=plan.chance if plan.chance is not None else next(iter(said), None),
        paper=plan.paper,
        examples={cell.start: found.example for cell, found in results if found.example and plan.kind is None},
        notes=(*plan.remarks, *_of_files(plan), *_notes(of_starts["pretrained"])),
        failed=tuple(f"{cell.name}: {error}" for cell, error in named),
        intervals={start: ends for start, cells in of_starts.items() if (ends := _interval(plan, cells))},
        gain=_gain(plan, of_starts.get("pretrained", ()), of_starts.get("random", ())),
        constant={start: one for start, cells in of_starts.items() if (one := _constant(plan, cells))},
    )


def _interval(plan: TaskPlan, cells: Results) -> tuple[float, float] | None:
    """Where the score of a start lies at 95 %: as its kind has it for one net, else over seeds and questions."""
    by_metric = [found.scores[plan.split] for _, found in cells]
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
    return ends and _possible(ends, *_range(plan.metric))


def _range(metric: str) -> tuple[float, float]:
    """The lowest and the highest score that there can be."""
    if unit_of(metric) != SHARES:
        return -math.inf, math.inf
    return (-1.0 if _CORRELATIONS.intersection(metric.split("_")) else 0.0), 1.0


def _possible(ends: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """The part of an interval in which a score can be: that of a metric which is no mean is symmetric.

    >>> _possible((0.9, 1.2), 0.0, 1.0)
    (0.9, 1.0)
    """
    return min(max(ends[0], low), high), min(max(ends[1], low), high)


def _gain(plan: TaskPlan, pretrained: Results, random: Results) -> PairedDifference | None:
    """The test of the gain over random weights, with the seeds that both have; None where it has not been measured, or
    where a fine-tuning has one seed."""
    one, other = _units(plan, pretrained), _units(plan, random)
    seeds = [seed for seed in one if seed in other and len(one[seed]) == len(other[seed])]
    is_tuned = any(cell.tuning for cell, _ in (*pretrained, *random))
    if len(seeds) < (2 if is_tuned else 1):
        return None
    scores = [
        {_seed(cell): found.scores[plan.split][plan.metric] for cell, found in cells} for cells in (pretrained, random)
    ]
    sign = sign_of_metric(plan.metric)
    difference = sign * fmean(scores[0][seed] - scores[1][seed] for seed in seeds)
    both = zip((one, other), scores, strict=True)
    first, second = (
        sign * np.array([_in_units(plan.metric, units[seed], of[seed]) for seed in seeds]) for units, of in both
    )
    found, (low, high) = paired_difference(first, second, difference), _range(plan.metric)
    if found is None:
        return None
    ends = _possible((found.low, found.high), low - high, high - low)
    return replace(found, low=ends[0], high=ends[1])


def _in_units(metric: str, values: Sequence[float], score: float) -> Sequence[float]:
    """The values of questions in the unit of their metric: what each adds to a score, to first order where they are of
    its logarithm.

    >>> _in_units("perplexity", [2.0, 3.0], 10.0), _in_units("accuracy", [0.0, 1.0], 0.5)
    ([5.0, 15.0], [0.0, 1.0])
    """
    return [score * (1 + value - fmean(values)) for value in values] if is_log(metric) else values


def _units(plan: TaskPlan, cells: Results) -> dict[int, Sequence[float]]:
    """By seed, the values of questions of the split that is scored, where they are known; as many of each seed."""
    found = {_seed(cell): units for cell, one in cells if (units := one.by_unit.get(plan.split, ()))}
    return found if len({len(units) for units in found.values()}) == 1 else {}


def _constant(plan: TaskPlan, cells: Results) -> str:
    """What is said of a start of which a seed gives one constant answer; "" where none does."""
    said = [found.constant.get(plan.split, "") for _, found in cells]
    answers = ", ".join(dict.fromkeys(filter(None, said)))
    of_seeds = f" with {sum(map(bool, said))} of {len(said)} seeds" if len(said) > 1 else ""
    return f"one constant answer{of_seeds}: {answers}" if answers else ""


def _of_files(plan: TaskPlan) -> list[str]:
    """What was wrong with the files of a task, as its page says it: without its name."""
    return [re.sub(rf"^task {re.escape(plan.task)}[:,] ", "", note) for note in plan.notes]


def _notes(cells: Results) -> list[str]:
    """What is said of cells that differ in the seed alone, which is named where not all say the same."""
    shared = set.intersection(*(set(found.notes) for _, found in cells))
    said = [(note, _seed(cell)) for cell, found in cells for note in found.notes]
    return list(dict.fromkeys(note if note in shared else f"seed {seed}: {note}" for note, seed in said))


def _keep(plan: TaskPlan, results: Results, score: TaskScore) -> None:
    """Write a score into its folder, with the answers of the cells that were chosen; it is done if no cell failed."""
    plan.stage.folder.mkdir(parents=True, exist_ok=True)
    _write(plan.stage.folder, score)
    if answers := _answers(results, score):
        write_atomic(plan.stage.folder / PREDICTIONS, json.dumps(answers, ensure_ascii=False, indent=1).encode())
    if asked := _asked(plan):
        write_atomic(
            plan.stage.folder / QUESTIONS, json.dumps(asked, ensure_ascii=False, indent=1, default=str).encode()
        )
    if not score.failed:
        plan.stage.finish()


def _write(folder: Path, score: TaskScore) -> None:
    write_atomic(folder / SCORE_FILE, json.dumps([asdict(score)], indent=1).encode())


def _answers(results: Results, score: TaskScore) -> dict[str, Any]:
    """What the chosen cells answered, by start and seed."""
    return {
        f"{cell.start}, seed {_seed(cell)}": found.predictions
        for start in score.starts
        for cell, found in _chosen(results, score.starts, start)
        if found.predictions
    }


def _asked(plan: TaskPlan) -> dict[str, list[dict[str, Any]]]:
    """By split, what each answer is to: the place of a question in its file, its right answer, an id if it has one."""
    return {
        split: [{"place": item.place, **_gold(plan, item)} for item in items]
        for split, items in plan.items.items()
        if split != "train"
    }


def _gold(plan: TaskPlan, item: TaskItem) -> dict[str, Any]:
    """The right answer as an answer is written: a label by its name; None where the file has none."""
    kind = getattr(plan.kind, "task", plan.kind)  # of a task as text to text
    labels = getattr(kind, "labels", ())
    if isinstance(kind, ExtractiveQA) and item.gold is not None:
        id, answers, starts = item.gold
        return {"id": id, "gold": {"answers": list(answers), "starts": list(starts)}}
    if isinstance(item.gold, int) and not isinstance(item.gold, bool) and item.gold < len(labels):
        return {"gold": labels[item.gold]}
    return {"gold": item.gold}


def _chosen(results: Results, starts: Mapping[str, SelectedTrials], start: str) -> Results:
    """The cells of the hyper-parameters that were chosen, from one start."""

    def plain(how: Mapping[str, Any]) -> Any:
        return json.loads(json.dumps({key: value for key, value in how.items() if key != "seed"}))

    how = plain(starts[start].how)
    return [(cell, found) for cell, found in results if cell.start == start and plain(cell.how) == how]


def _seed(cell: launch.EvalTrial) -> int:
    return cell.tuning.seed if cell.tuning else 0


def submit(plans: Sequence[TaskPlan], scores: Sequence[TaskScore], folder: Path) -> list[str]:
    """Write the files for a leaderboard, with the answers of the seed that is best on dev, if any is; their names."""
    require_local_path("--leaderboard-dir", folder)
    files = dict[str, str]()
    score_of = {(score.task, score.step, score.labels): score for score in scores}
    for plan in plans:
        if (score := score_of.get((plan.task, plan.step, plan.labels))) is None:
            continue  # all its cells failed, which was told
        best = _best(plan, _chosen(_results(plan), score.starts, "pretrained"))
        files |= {file: submission(best.predictions[split]) for split, file in plan.submission.items()}
    make_directory(folder)
    for name, text in files.items():
        write_atomic(folder / name, text.encode())
    return sorted(files)


def _best(plan: TaskPlan, cells: Results) -> EvalResult:
    """The result of the seed that is best on dev; without such a split that of the first one, as test never decides."""
    cell, first = cells[0]
    on = plan.chosen_on or next((split for split in first.scores if split.startswith("dev")), "")
    if on:
        return max(
            (found for _, found in cells), key=lambda found: sign_of_metric(plan.metric) * found.scores[on][plan.metric]
        )
    if len(cells) > 1:
        said = "task %s: no labelled dev split is at hand to choose a seed on; the answers are those of seed %d"
        log.warning(said, plan.task, _seed(cell))
    return first


def _glue(scores: Sequence[TaskScore]) -> dict[str, float]:
    """The averages of GLUE, by their name, of the scores that are there; medians over the seeds. A task with several
    scores counts as one without."""
    times = Counter(score.task for score in scores)
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        if times[score.task] > 1:
            continue
        by_split = score.starts["pretrained"].scores
        found[score.task] = {metric: median(values) for metric, values in by_split[score.split].items()}
        for split, metrics in by_split.items():
            if split == f"{score.split}_mismatched":
                found[score.task] |= {f"{metric}_mismatched": median(values) for metric, values in metrics.items()}
    averages = {name: glue_average(found, name) for name in get_args(Average)}
    return {name: value for name, value in averages.items() if value is not None}


# For MLflow


def _record(plan: TaskPlan, results: Results, score: TaskScore) -> tracking.TaskRecord:
    """What the run of a task has: scores of each start, figures, answers, and its cells."""
    values = {start: score.values(start) for start in score.starts}
    every = _joined(
        ((start, split, metric), found)
        for start, one in score.starts.items()
        for split, metrics in one.scores.items()
        for metric, found in metrics.items()
    )
    headline = {f"{start}_{score.metric}": median(found) for start, found in values.items()}
    params = {"metric": score.metric, "split": score.split, "chosen_on": score.chosen_on, "labels": score.labels}
    params |= {"intervals": score.intervals, "constant": score.constant}
    params |= {"gain": asdict(score.gain)} if score.gain else {}
    params |= {**guesses(score), "chosen": {start: one.how for start, one in score.starts.items()}}
    examples = [found.example for _, found in results if found.example]
    return tracking.TaskRecord(
        name=score.task,
        step=score.step,
        labels=score.labels,
        params=params | {"paper": {_of_split(name): value for name, value in score.paper.items()}},
        series={f"{start}_{score.metric}": found for start, found in values.items()} | every,
        headline=headline,
        figures=_figures(plan, results, score),
        files={"table.md": score_page(score.task, [score])} | ({"example.txt": examples[0]} if examples else {}),
        dataset=plan.data_digest,
        cells=[_cell(cell, found) for cell, found in results],
    )


def _joined(values: Iterable[tuple[tuple[str, ...], T]]) -> dict[str, T]:
    """Values by the parts of their names as one; where two would be the same, the second has slashes between.

    >>> _joined([(("dev", "a_f1"), 1), (("dev_a", "f1"), 2)])
    {'dev_a_f1': 1, 'dev_a/f1': 2}
    """
    found = dict[str, T]()
    for parts, value in values:
        name = "_".join(parts)
        found["/".join(parts) if name in found else name] = value
    return found


def _of_split(name: str) -> str:
    """A paper's figure with its split as one more part of its name.

    >>> _of_split("glue.mrpc (test)"), _of_split("lambada.accuracy")
    ('glue.mrpc.test', 'lambada.accuracy')
    """
    return name.replace(" (", ".").removesuffix(")")


def _cell(cell: launch.EvalTrial, found: EvalResult) -> tracking.TrialRecord:
    scores = _joined(((split, metric), value) for split, by in found.scores.items() for metric, value in by.items())
    return tracking.TrialRecord(cell.name, {"start": cell.start, **cell.how}, scores, found.losses)


def _figures(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    values = {start: score.values(start) for start in score.starts}
    title = f"{score.task}, {score.split}" + (f", {score.labels:,} labels" if score.labels else "")
    found = {"scores": figures.plot_comparison(title, values, guesses(score), score.metric, score.intervals)}
    points: dict[str, list[tuple[float, float]]] = {}
    for cell, one in results:
        if plan.chosen_on and cell.tuning:
            points.setdefault(cell.start, []).append(
                (cell.tuning.learning_rate, one.scores[plan.chosen_on][plan.metric])
            )
    if points:
        found["rates"] = figures.plot_against_rate(f"{score.task}, {plan.chosen_on}", points, score.metric)
    return found | _confusion(plan, results, score)


def _confusion(plan: TaskPlan, results: Results, score: TaskScore) -> dict[str, "Figure"]:
    """Of a task with a few labels: which was taken for which by the first cell that was chosen, as they count (HANS
    merges two); an answer that is none of them is `other`."""
    kind = getattr(plan.kind, "task", plan.kind)  # of a task as text to text
    merge = getattr(kind, "merge_labels", {})
    named = [merge.get(label, label) for label in getattr(kind, "labels", ())]
    labels = list(dict.fromkeys(named))
    _, mine = _chosen(results, score.starts, "pretrained")[0]
    splits = plan.parts or (plan.split,)
    answers = [one for split in splits for one in mine.predictions.get(split, ())]
    items = [item for split in splits for item in plan.items.get(split, ())]
    if not 2 <= len(labels) <= MOST_CLASSES or not answers or not all(isinstance(one, str) for one in answers):
        return {}
    others = [OTHER] if any(answer not in labels for answer in answers) else []
    counts = Counter(
        (named[item.gold], answer if answer in labels else OTHER)
        for item, answer in zip(items, answers, strict=True)
        if isinstance(item.gold, int) and item.gold < len(named)
    )
    rows = [[counts[gold, said] for said in (*labels, *others)] for gold in labels]
    return {"confusion": figures.plot_confusion(f"{score.task}, {plan.split}", labels, rows, others)}


def _pictures(scores: Sequence[TaskScore], last: int = 0) -> dict[str, "Figure"]:
    """Of all tasks; of a run that was scored at several steps or with several numbers of labels, scores over those.
    Scores of another unit than shares have a panel, and figures, of their own. `last`: the step of the finished run."""
    scores = [replace(score, step=last) if score.step is None and last else score for score in scores]
    by_unit: dict[str, list[TaskScore]] = {}
    for score in scores:
        by_unit.setdefault(unit_of(score.metric), []).append(score)
    bars = {
        unit: {score.task: score for score in found}.values() for unit, found in by_unit.items()
    }  # the last of each
    found = {"scores": figures.plot_scores({unit: [_bar(score) for score in of] for unit, of in bars.items()})}
    for unit, of in by_unit.items():
        name = "" if unit == SHARES else f"_{unit}"
        if steps := _lines(of, "step", "labels"):
            found[f"scores_by_step{name}"] = figures.plot_curves(steps, unit)
        if labels := _lines(of, "labels", "step"):
            found[f"scores_by_labels{name}"] = figures.plot_curves(labels, unit, "labelled rows", log=True)
    return found


def _bar(score: TaskScore) -> figures.Bar:
    """The scores of a task as the table has them, beside what the paper prints for the metric: the figure that is named
    so, or else the first."""
    values = {start: [scale_value(value, score.metric) for value in score.values(start)] for start in score.starts}
    found = [(*figure_of(name), value) for name, value in score.paper.items()]
    named = {name.replace("_", ""): (split, value) for name, split, value in found}
    split, paper = named.get(score.metric.replace("_", ""), next(iter(named.values()), ("", None)))
    other = f"\n{score.split}, paper {split}" if split not in ("", score.split) else ""
    ends = {
        start: (scale_value(low, score.metric), scale_value(high, score.metric))
        for start, (low, high) in score.intervals.items()
    }
    return figures.Bar(f"{score.task}\n{score.metric.replace('_', ' ')}{other}", values, paper, ends)


def _lines(
    scores: Sequence[TaskScore], along: Literal["step", "labels"], apart: Literal["step", "labels"]
) -> dict[str, list[tuple[int, float]]]:
    """Medians along one of the two, a line for each task, start, and value of the other; {} where all have the same."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for score in scores:
        values = getattr(score, apart), getattr(score, along)
        for start in score.starts if values[1] else ():
            label = f"{score.task}, {score.metric}" + (f", {start}" if len(score.starts) > 1 else "")
            label += f", {values[0]:,} {apart}" if values[0] else ""
            lines.setdefault(label, []).append((values[1], scale_value(median(score.values(start)), score.metric)))
    return {label: line for label, line in lines.items() if len(line) > 1}
