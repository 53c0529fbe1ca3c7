"""`sesame compare`: the finished scores of runs, compared question by question, with intervals over seeds.

The first group of runs is the baseline of the others. A group has one run, or several that differ in their seed only.
The statistics are in training/evaluation/metrics. The result is a directory with a table, a figure, a page of the
questions, and an MLflow run.
"""

import json
import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from orchestration import figures, tracking
from orchestration.config import compute_digest, flatten
from orchestration.evaluation import eval_target
from orchestration.evaluation.score_causes import name_options
from orchestration.jobs import MARK, JobFlags
from orchestration.launch import RUN
from orchestration.progress import Report
from orchestration.reports import (
    WHOLE,
    AnswerPage,
    ComparedTask,
    SavedAnswers,
    SavedScores,
    ScoredAnswers,
    comparison_page,
    format_comparison,
    identify,
    load_answers,
    load_finished_scores,
    questions_page,
    restore_answers,
    restore_items,
    with_metric,
)
from preprocessing.errors import BadInput
from preprocessing.files import read_object, write_atomic
from preprocessing.folders import make_directory
from preprocessing.lock import hold_lock
from training.evaluation.metrics import SLOW_METRICS, ModelScores, compare_scores, holm
from training.evaluation.tasks import SMOOTH_METRICS, TaskItem, group_dependent

log = logging.getLogger(__name__)

RESULT, TABLE, FIGURE, PAGE = "comparison.json", "table.md", "comparison.png", "questions.html"
FILES: Final = (TABLE, RESULT, FIGURE, PAGE)
COMPARISONS: Final = "comparisons"  # directory below the output directory
NO_COMMON_QUESTION: Final = "the runs have no common question"
MOST_BARS: Final = 200  # differences in the figure


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed only, and the name of the group in tables."""

    name: str
    folders: tuple[Path, ...]


@dataclass(frozen=True)
class RunComparison:
    """The compared groups, the first of which is the baseline, and the rows of the table."""

    folder: Path
    groups: tuple[RunGroup, ...]
    tasks: tuple[ComparedTask, ...]
    notes: tuple[str, ...]

    def values(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        groups = [{"name": group.name, "runs": [str(folder) for folder in group.folders]} for group in self.groups]
        return {"folder": str(self.folder), "groups": groups, "tasks": [asdict(task) for task in self.tasks]} | {
            "notes": list(self.notes)
        }


def find_groups(words: Sequence[str], out: Path) -> list[RunGroup]:
    """The groups of runs that a user typed; commas separate the runs of a group.

    Raises BadInput if a run is missing, if there is only one group, or if the runs of a group differ in more than their
    seed.
    """
    if len(words) < 2:
        raise BadInput(
            f"invalid RUN: got {len(words)} run or group, expected two or more; separate groups by blanks, and the "
            "seeds of a group by commas"
        )
    groups = list[RunGroup]()
    for word in words:
        names = [name for name in word.split(",") if name]
        folders = tuple(_folder_of(name, out) for name in names)
        if len({folder.resolve() for folder in folders}) < len(names) or not names:
            raise BadInput(f"invalid RUN: got {word!r}, expected different runs between the commas; name each run once")
        _require_same_recipe(word, folders)
        groups.append(RunGroup(_name_group([folder.name for folder in folders], [one.name for one in groups]), folders))
    return groups


def _name_group(folders: Sequence[str], others: Sequence[str]) -> str:
    """The name of a group of runs, different from `others`.

    >>> _name_group(["gpt2_tiny-1e7cb754", "gpt2_tiny-b0c5390f"], []), _name_group(["mine"], ["mine", "mine (2)"])
    ('gpt2_tiny-1e7c+b0c5', 'mine (3)')
    """
    label = folders[0].rpartition("-")[0]
    short = [_shorten(folder) for folder in folders]
    name = "+".join([short[0], *(each.removeprefix(f"{label}-") for each in short[1:])])
    names = (name, *(f"{name} ({number})" for number in range(2, len(others) + 2)))
    return next(each for each in names if each not in others)


def _folder_of(name: str, out: Path) -> Path:
    """The directory of a run, or of the evaluations of a transformers directory."""
    if (Path(name) / "scores").is_dir():
        return Path(name) if Path(name).name not in ("", "..") else Path(name).resolve()
    folder = eval_target.folder_of(JobFlags(recipe=name, output_dir=out))
    return folder if (folder / RUN).is_file() else eval_target.target_of_directory(folder, out).folder


def _shorten(name: str) -> str:
    """The name of a run as in MLflow.

    >>> _shorten("gpt2_tiny-1e7cb754"), _shorten("mine")
    ('gpt2_tiny-1e7c', 'mine')
    """
    label, dash, digits = name.rpartition("-")
    return f"{label}-{digits[:4]}" if dash and len(digits) == 8 else name


def _require_same_recipe(word: str, folders: Sequence[Path]) -> None:
    causes = [_causes_of_training(folder) for folder in folders]
    for folder, other in zip(folders[1:], causes[1:], strict=True):
        changed = sorted(key for key in {*causes[0], *other} if causes[0].get(key) != other.get(key))
        if changed:
            raise BadInput(
                f"invalid RUN: got {word}, but {folders[0].name} and {folder.name} differ in {', '.join(changed[:3])}, "
                "expected runs that differ in their seed only; separate them by a blank"
            )


def _causes_of_training(folder: Path) -> dict[str, Any]:
    """Everything that the weights of a run depend on, without its seed; {} for a model of transformers."""
    mark = folder / MARK
    if not mark.is_file():
        return {}
    causes = read_object(mark, "resume the run with `sesame train`", causes=dict)["causes"]
    return {key: value for key, value in flatten(causes) if key != "recipe.seed"}


def compare_runs(
    groups: Sequence[RunGroup], tasks: Collection[str], out: Path, report: Report, command: str = ""
) -> RunComparison:
    """Compare all later groups with the first one, on the tasks that all of their runs have.

    `tasks`: names of the tasks to compare; empty: all. Writes the table, the figure and the page, and logs them to
    MLflow, with the `command`. Raises BadInput, before it writes a file, if the runs have no common task, if none of
    their common tasks can be compared, e.g. because they have no common question, or if none of them has a score of one
    of the `tasks`.
    """
    finished = {folder: load_finished_scores(folder) for group in groups for folder in group.folders}
    _require_scores(tasks, finished)
    saved = {folder: _load_saved(folder, scores, tasks) for folder, scores in finished.items()}
    rows, notes, pages, used = list[ComparedTask](), list[str](), list[AnswerPage](), list[Path]()
    for group in groups[1:]:
        common, lacking = _match_tasks(saved, (*groups[0].folders, *group.folders))
        notes += [f"{group.name}: {note}" for note in lacking]
        found = list[ComparedTask]()
        for number, (task, answers) in enumerate(common.items()):
            report({"stage": "comparing", "done": number, "total": len(common)})
            pair = _PairedAnswers.of(groups[0], group, answers)
            used += [each.folder for each in answers.values()]
            found += list(_compare_task(pair, task, group.name))
            pages += [pair.page(task)] if len(groups) == 2 else []
            report({"stage": "comparing", "done": number + 1, "total": len(common)})
        rows += _adjust_p(found)
    if not rows:
        have = "; ".join(f"{folder.name}: {', '.join(names) or 'none'}" for folder, names in saved.items())
        raise BadInput(
            f"the runs have no common task ({have}); evaluate them with `sesame eval`, with the same --tasks"
        )
    _require_difference(rows)
    about = {"groups": [[str(folder.resolve()) for folder in group.folders] for group in groups]}
    digest = compute_digest(about | {"scores": sorted({str(folder.resolve()) for folder in used})})
    label = "_vs_".join(group.folders[0].name.rpartition("-")[0] or group.folders[0].name for group in groups)[:60]
    folder = out / COMPARISONS / f"{label}-{digest[:8]}"
    comparison = RunComparison(folder, tuple(groups), tuple(rows), tuple(notes))
    _store(comparison, pages, out, report, command)
    return comparison


def _require_difference(rows: Sequence[ComparedTask]) -> None:
    """Raise BadInput if no row has a difference."""
    if any(row.result for row in rows):
        return
    reasons = dict.fromkeys((row.task, row.reason) for row in rows)
    remedy = "; evaluate them with `sesame eval` on the same files"
    raise BadInput(
        "the runs cannot be compared: "
        + "; ".join(f"task {task}: {reason}" for task, reason in reasons)
        + (remedy if any(reason == NO_COMMON_QUESTION for _, reason in reasons) else "")
    )


def _require_scores(tasks: Collection[str], finished: Mapping[Path, SavedScores]) -> None:
    known = sorted({score.task for scores in finished.values() for score, _ in scores.values()})
    if known and (unknown := [task for task in tasks if task not in known]):
        raise BadInput(
            f"invalid --tasks: got {', '.join(unknown)}, expected tasks that the runs have a score of: "
            f"{', '.join(known)}; evaluate others with `sesame eval`"
        )


def _load_saved(folder: Path, scores: SavedScores, tasks: Collection[str]) -> dict[str, list[SavedAnswers]]:
    """The answers of the finished scores of a run, by the name of the score. Scores of checkpoints are left out."""
    saved = dict[str, list[SavedAnswers]]()
    for name, (score, key) in scores.items():
        if key[0] != WHOLE[0] or (tasks and score.task not in tasks):
            continue
        label = score.task + (f" with {key[1]:,} labels" if key[1] and score.labels else "")
        try:
            answers = load_answers(folder / "scores" / name, key)
        except BadInput as error:
            log.warning("left out: %s", error)
            continue
        saved.setdefault(label, []).append(answers)
    return saved


def _match_tasks(
    saved: Mapping[Path, Mapping[str, Sequence[SavedAnswers]]], folders: Sequence[Path]
) -> tuple[dict[str, dict[Path, SavedAnswers]], list[str]]:
    """By task, the answers of each run; and notes on tasks that some runs lack, or that have other settings."""
    names = list(dict.fromkeys(name for folder in folders for name in saved[folder]))
    found, notes = dict[str, dict[Path, SavedAnswers]](), list[str]()
    for name in names:
        lacking = [folder.name for folder in folders if name not in saved[folder]]
        if lacking:
            notes.append(f"task {name} is not compared: {', '.join(dict.fromkeys(lacking))} has no score of it")
            continue
        settings = [_group_by_settings(saved[folder][name]) for folder in folders]
        shared = [key for key in settings[0] if all(key in each for each in settings)]
        for number, key in enumerate(shared):
            label = name if len(shared) == 1 else f"{name} (setting {number + 1})"
            found[label] = dict(zip(folders, _select_same_files([each[key] for each in settings]), strict=True))
        if not shared:
            newest = {folder: _newest(saved[folder][name]) for folder in folders}
            first, *others = (json.loads(one.settings) for one in newest.values())
            changed = sorted({key for other in others for key in _find_changes(first, other)})
            notes.append(f"task {name}: the runs were evaluated with other values of {', '.join(changed[:4])}")
            found[name] = newest
    return found, notes


def _find_changes(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings that differ between two scores."""
    before, now = dict(flatten(first)), dict(flatten(other))
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return name_options(changed, first, other)


def _group_by_settings(scores: Sequence[SavedAnswers]) -> dict[str, list[SavedAnswers]]:
    groups = dict[str, list[SavedAnswers]]()
    for one in scores:
        groups.setdefault(one.settings, []).append(one)
    return groups


def _select_same_files(scores: Sequence[Sequence[SavedAnswers]]) -> list[SavedAnswers]:
    """Of the scores of each run, one whose questions are of the same files; if there is none, the newest."""
    shared = set[Any].intersection(*({one.causes.get("data") for one in each} for each in scores))
    return [_newest([one for one in each if one.causes.get("data") in shared] or each) for each in scores]


def _newest(scores: Sequence[SavedAnswers]) -> SavedAnswers:
    return max(scores, key=lambda one: (one.folder / MARK).stat().st_mtime)


@dataclass(frozen=True)
class _PairedAnswers:
    """The answers of two groups to the questions that all of their runs have."""

    groups: tuple[RunGroup, RunGroup]
    answers: Mapping[Path, SavedAnswers]
    questions: Sequence[Mapping[str, Any]]  # shared
    at: Mapping[Path, Sequence[tuple[str, int]]]  # by run: split and number of each shared question
    part_of: Sequence[str]  # the split of each question in the first run
    only: tuple[int, int]  # number of questions that only runs of the first, and of the second group have
    left_out: int  # shared questions that a run could not score

    @classmethod
    def of(cls, first: RunGroup, second: RunGroup, answers: Mapping[Path, SavedAnswers]) -> "_PairedAnswers":
        places = {folder: _places(one) for folder, one in answers.items()}
        of_groups = [{key for folder in group.folders for key in places[folder]} for group in (first, second)]
        baseline = places[first.folders[0]]
        shared = [key for key in baseline if all(key in of for of in places.values())]
        scored = [key for key in shared if not any(_is_left_out(answers[f], places[f][key]) for f in answers)]
        one = answers[first.folders[0]]
        return cls(
            groups=(first, second),
            answers=answers,
            questions=[one.questions[split][number] for split, number in (baseline[key] for key in scored)],
            at={folder: [places[folder][key] for key in scored] for folder in answers},
            part_of=[baseline[key][0] for key in scored],
            only=(len(of_groups[0] - of_groups[1]), len(of_groups[1] - of_groups[0])),
            left_out=len(shared) - len(scored),
        )

    @property
    def first(self) -> SavedAnswers:
        return self.answers[self.groups[0].folders[0]]

    def predictions(self, folder: Path, trial: int) -> list[Any]:
        """The predictions of a trial of a run for the shared questions."""
        by_split = self.answers[folder].trials[trial]
        return [by_split[split][number] for split, number in self.at[folder]]

    @cached_property
    def items(self) -> list[TaskItem]:
        """The shared questions. Raises BadInput if they lack their texts."""
        return restore_items(self.first, self.questions)

    def units(self, metric: str) -> list[list[int]]:
        """The groups of questions that are sampled together. A smooth metric is a mean like the main metric."""
        return group_dependent(self.items, self.first.metrics[0] if metric in SMOOTH_METRICS else metric)

    def models(self, group: RunGroup, metric: str) -> list[list[ModelScores]]:
        """For each run of a group, the scores of its trials."""
        units, models = self.units(metric), []
        for folder in group.folders:
            kind = self.answers[folder].kind and with_metric(self.answers[folder].kind, metric)
            trials = []
            for trial in range(len(self.answers[folder].trials)):
                answers = restore_answers(self.answers[folder], kind, self.predictions(folder, trial))
                scored = ScoredAnswers(kind, metric, self.items, answers)
                trials.append(ModelScores.of_splits(scored.score, units, self.part_of))
            models.append(trials)
        return models

    def page(self, task: str) -> AnswerPage:
        """The questions and the answers of the first trial of the first run of both groups, for the page."""
        names = [_name_group([group.folders[0].name], []) for group in self.groups]
        names = [group.name for group in self.groups] if len(set(names)) == 1 else names
        folders = [group.folders[0] for group in self.groups]
        models = {
            name: (self.answers[folder].kind, self.predictions(folder, 0))
            for name, folder in zip(names, folders, strict=True)
        }
        trials = {name: self._describe_shown(group) for name, group in zip(names, self.groups, strict=True)}
        same = len(set(trials.values())) == 1
        shown = next(iter(trials.values())) if same else "; ".join(f"{name}: {of}" for name, of in trials.items() if of)
        return AnswerPage(task, self.questions, models, shown)

    def _describe_shown(self, group: RunGroup) -> str:
        """The run and the trial of a group whose answers the page shows; "" if there is only one."""
        folder, *others = group.folders
        of_run = f"run {folder.name}, the first of {len(group.folders)}" if others else ""
        return ", ".join(filter(None, (of_run, self.answers[folder].describe_trial(0))))


def _places(answers: SavedAnswers) -> dict[str, tuple[str, int]]:
    """The split and the number of each question, by its identity; equal questions are numbered."""
    times, places = dict[str, int](), dict[str, tuple[str, int]]()
    for split, number, question in answers.pairs():
        key = identify(question)
        times[key] = times.get(key, 0) + 1
        places[f"{key} {times[key]}"] = split, number
    return places


def _is_left_out(answers: SavedAnswers, place: tuple[str, int]) -> bool:
    split, number = place
    predictions = [by_split[split][number] for by_split in answers.trials]
    has_gold = answers.questions[split][number].get("gold") is not None
    return not has_gold or any(isinstance(one, Mapping) and "left_out" in one for one in predictions)


def _compare_task(pair: _PairedAnswers, task: str, name: str) -> Iterator[ComparedTask]:
    """A row for each metric of a task."""
    metrics = [metric for metric in pair.first.metrics if all(metric in one.metrics for one in pair.answers.values())]
    for number, metric in enumerate(metrics):
        row = ComparedTask(task, metric, name, is_main=number == 0, only_first=pair.only[0], only_second=pair.only[1])
        row = replace(row, left_out=pair.left_out)
        try:
            if not pair.questions:
                raise BadInput(NO_COMMON_QUESTION)
            first, second = (pair.models(group, metric) for group in pair.groups)
            result = compare_scores(first, second, pair.units(metric), is_slow=metric in SLOW_METRICS)
            if not all(map(math.isfinite, (result.difference, result.low, result.high))):
                raise BadInput("a score is infinite or undefined")
            yield replace(row, result=result)
        except (BadInput, ValueError, ZeroDivisionError) as error:
            yield replace(row, reason=str(error))


def _adjust_p(rows: Sequence[ComparedTask]) -> list[ComparedTask]:
    """The rows with the adjusted p of the main metrics, ordered so that the clearest differences come first."""
    tested = [row for row in rows if row.is_main and row.result]
    adjusted = dict(
        zip((row.task for row in tested), holm([row.result.p for row in tested if row.result]), strict=True)
    )
    rows = [replace(row, holm_p=adjusted[row.task]) if row.is_main and row.task in adjusted else row for row in rows]
    clarity = {row.task: row.clarity for row in tested}
    return sorted(rows, key=lambda row: (-clarity.get(row.task, -1.0), row.task))


def _store(comparison: RunComparison, pages: Sequence[AnswerPage], out: Path, report: Report, command: str) -> None:
    """Write the files of a comparison, and log them to MLflow."""
    folder = comparison.folder
    make_directory(folder)
    names = [group.name for group in comparison.groups]
    page = comparison_page(names, comparison.tasks, comparison.notes)
    bars = format_comparison(comparison.tasks)
    title = f"{' and '.join(names[1:])} minus {names[0]}"
    title += f": the clearest {MOST_BARS} of {len(bars):,} differences" if len(bars) > MOST_BARS else ""
    plot = figures.plot_differences(title, bars[:MOST_BARS])
    texts = {
        RESULT: json.dumps(comparison.values(), indent=1),
        TABLE: page,
        PAGE: questions_page(f"Questions of {' and '.join(names)}", pages) if pages else "",
    }
    report({"stage": "logging to MLflow"})
    with hold_lock(folder):
        for name, text in texts.items():
            if text:
                write_atomic(folder / name, text.encode())
        write_atomic(folder / FIGURE, lambda file: plot.savefig(file, format="png"))
        with tracking.run(tracking.tracking_store(out), folder, None, _metadata(comparison, command)):
            files = {name: folder / name for name, text in texts.items() if text}
            values = {
                f"compare/{row.candidate}/{row.task}/{row.metric}/{name}": getattr(row.result, name)
                for row in comparison.tasks
                if row.result
                for name in ("difference", "low", "high", "p")
            }

            def log_all(run: tracking.TrackedRun) -> None:
                tracking.log_comparison(run, values, list(files.values()), {"differences": plot})

            tracking.mirror(folder, TABLE, "the comparison", log_all)


def _metadata(comparison: RunComparison, command: str) -> tracking.Metadata:
    """The MLflow metadata: the compared runs as parameters and tags, and the table as description."""
    runs = {group.name: [folder.name for folder in group.folders] for group in comparison.groups}
    ids = [
        tracked.run_id
        for group in comparison.groups
        for folder in group.folders
        if (tracked := tracking.existing_run(folder))
    ]
    names = [group.name for group in comparison.groups]
    return tracking.Metadata(
        comparison.folder.name.rpartition("-")[0],
        {"baseline": names[0], "candidates": names[1:], "runs": runs},
        {"type": "comparison", "compared_runs": ", ".join(ids), "command": command},
        comparison_page(names, comparison.tasks, comparison.notes),
    )
