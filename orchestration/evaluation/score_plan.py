"""The plan of an evaluation: the trials of each task, what they depend on, and where their results are stored."""

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from orchestration.config import compute_digest
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.grids import SEEDS, intermediate_task, tunings_of
from orchestration.evaluation.paper_figures import paper_figures
from orchestration.evaluation.score_causes import name_options
from orchestration.evaluation.task_support import check_task_support
from orchestration.evaluation.untrained_positions import find_untrained_positions, with_trained_window
from orchestration.jobs import (
    FEW,
    UNRELIABLE,
    JobStage,
    SplitFile,
    check_splits,
    compute_digests,
    find_too_few,
    fit_task,
    read_items,
    select_scored_splits,
)
from orchestration.launch import WEIGHTS, EvalTrial, digest_of
from orchestration.reports import SHARES, unit_of
from preprocessing.errors import BadInput, DataError
from preprocessing.files import write_atomic
from training.evaluation import Budget, EvalResult
from training.evaluation.files import exists
from training.evaluation.metrics import pool_values
from training.evaluation.tasks import COUNTS, LABELS, LENGTH, STARTS, TASKS, Start, TaskFile, TaskItem
from training.finetuning import Tuning
from training.specs import EngineSettings

log = logging.getLogger(__name__)

HELD_OUT_FLAGS: Final = ("--max-steps", "--num-seeds", "--max-train-samples")  # options of fine-tuning on held-out text
MEAN: Final = "mean"  # name of the mean score over several splits, stored with the scores of each split


@dataclass(frozen=True)
class TaskPlan:
    """The trials of one task, and the definition of its score."""

    task: str
    stage: JobStage
    cells: Sequence[EvalTrial]
    metric: str
    split: str
    chosen_on: str
    labels: int = 0
    chance: float | None = None
    paper: Mapping[str, float] = field(default_factory=dict)
    grid_description: str = ""  # its hyperparameters, in one line
    files_description: str = ""  # its files, in one line, if they are not those of the original distribution
    notes: tuple[str, ...] = ()  # problems in its files
    remarks: tuple[str, ...] = ()  # other facts to print beside its scores
    data_digest: str = ""
    items: Mapping[str, Sequence[TaskItem]] = field(default_factory=dict)
    submission: Mapping[str, str] = field(default_factory=dict)  # split -> its file for a leaderboard
    kind: Any = None  # the task specification; None for a task of held-out documents
    step: int | None = None  # pretraining step of the weights, if they are those of a checkpoint
    parts: tuple[str, ...] = ()  # the splits that are averaged, if `split` is MEAN
    files: Mapping[str, SplitFile] = field(default_factory=dict)  # by split

    def file_of(self, cell: EvalTrial) -> Path:
        """The file with the result of a trial; grids that have the same trial share it."""
        causes = {name: value for name, value in self.stage.causes.items() if name not in ("cells", "chosen_on")}
        about = {"of": causes, "start": cell.start, "how": cell.how}
        return self.stage.parent / "cells" / f"{self.task}-{compute_digest(about)[:12]}.json"

    def model_of(self, cell: EvalTrial) -> Path:
        """The directory of the model of a trial, if it is saved."""
        return self.file_of(cell).with_suffix(".model")

    def with_saved_models(self) -> "TaskPlan":
        """The plan whose trials save their models."""
        cells = [
            dataclasses.replace(cell, save_to=self.model_of(cell)) if cell.start == "pretrained" else cell
            for cell in self.cells
        ]
        return dataclasses.replace(self, cells=cells)

    @property
    def is_tuned(self) -> bool:
        """Whether its trials are fine-tunings on a train split of files."""
        return self.kind is not None and self.cells[0].tuning is not None

    def is_affected_by(self, flag: str) -> bool:
        """Whether an option of fine-tuning has an effect."""
        if self.cells[0].tuning is None:
            return self.cells[0].is_finetuned and flag == "--max-seq-length"
        return self.kind is not None or flag in HELD_OUT_FLAGS

    def store(self, cell: EvalTrial, result: EvalResult) -> None:
        """Write the result of a trial to its file."""
        file = self.file_of(cell)
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = dataclasses.asdict(self._with_mean(result))
        write_atomic(file, json.dumps({"cell": cell.name, "found": plain}, ensure_ascii=False).encode())

    def _with_mean(self, result: EvalResult) -> EvalResult:
        """The result with the mean over `parts`, if there are parts.

        Counts are summed. Interval ends have no mean, and neither have metrics that a part lacks.
        """
        if not self.parts:
            return result
        of_parts = [result.scores[part] for part in self.parts]
        shared = [name for name in of_parts[0] if all(name in of for of in of_parts) and name not in COUNTS]
        mean = {name: fmean(of[name] for of in of_parts) for name in shared if not name.endswith(("_low", "_high"))}
        mean |= {name: count for name in COUNTS if (count := sum(of.get(name, 0.0) for of in of_parts))}
        notes = [*result.notes, f"{MEAN}: over {', '.join(self.parts)}"]
        units = {**result.by_unit, MEAN: pool_values([result.by_unit.get(part, ()) for part in self.parts])}
        answers = {result.constant.get(part, "") for part in self.parts}
        constant = {**result.constant, MEAN: answers.pop() if len(answers) == 1 else ""}
        more: dict[str, Any] = {"by_unit": units, "constant": constant}
        return dataclasses.replace(result, scores={**result.scores, MEAN: mean}, notes=notes, **more)

    def result(self, result: EvalResult) -> str:
        """The scores of a trial as text."""
        return ", ".join(f"{split} {self.metric} {by[self.metric]:.4g}" for split, by in result.scores.items())


def plan_tasks(target: EvalTarget, request: EvalRequest) -> list[TaskPlan]:
    """The plans of all tasks. Reads all of their files.

    Raises BadInput with one line for each task that is impossible. A task with too few held-out documents is left out
    with a warning; if that is the case for all tasks, DataError is raised.
    """
    plans, problems = _plan_all(target, request)
    if problems:
        raise BadInput("\n".join(problems))
    return plans


def plan_supported_tasks(target: EvalTarget, request: EvalRequest) -> list[TaskPlan]:
    """The plans of the tasks that are possible, with a warning for each other task."""
    files = [task for task in request.tasks if not isinstance(task, str) and not _has_files(task, request)]
    if files:
        groups = dict.fromkeys(task.group or task.name for task in files)
        log.warning("left out: %s: name the directory of their files with --task-data-dir DIR", ", ".join(groups))
        request = dataclasses.replace(request, tasks=[task for task in request.tasks if task not in files])
    plans, problems = _plan_all(target, request)
    for problem in problems:
        log.warning("left out: %s", problem)
    return plans


def check_flags(plans: Sequence[TaskPlan], request: EvalRequest) -> None:
    """Warn of each option that has no effect on some of the tasks.

    Raises BadInput for options without effect on any task, and if no task has a split for a leaderboard.
    """
    if request.for_leaderboard and not any(plan.submission for plan in plans):
        raise BadInput(
            "--leaderboard-dir: none of these tasks has an unlabeled leaderboard split; leave the option out, or name "
            "the directory of that split with --task-data-dir DIR"
        )
    unaffected = {
        flag: dict.fromkeys(plan.task for plan in plans if not plan.is_affected_by(flag))
        for flag in request.fine_tuning_options
    }
    why = f"no fine-tuning, or fine-tuning on held-out text, which uses only {', '.join(HELD_OUT_FLAGS)}"
    if idle := [flag for flag in unaffected if plans and not any(plan.is_affected_by(flag) for plan in plans)]:
        these = "these options" if len(idle) > 1 else "this option"
        raise BadInput(f"{', '.join(idle)}: no effect on {', '.join(unaffected[idle[0]])} ({why}); leave {these} out")
    flags_by_tasks = dict[str, list[str]]()
    for flag, tasks in unaffected.items():
        if tasks:
            flags_by_tasks.setdefault(", ".join(tasks), []).append(flag)
    for names, flags in flags_by_tasks.items():
        log.warning("%s: no effect on %s (%s)", ", ".join(flags), names, why)


def _plan_all(target: EvalTarget, request: EvalRequest) -> tuple[list[TaskPlan], list[str]]:
    """The plans of the possible tasks, and the problems of the others."""
    plans, problems, few = dict[Path, TaskPlan](), dict[str, None](), dict[str, None]()
    for one in request.by_labels():
        too_few = dict[str, str]()
        if target.corpus and one.held_out:
            too_few = find_too_few(target.corpus, one.held_out, one.held_out_labels)
        few |= dict.fromkeys(too_few.values())
        for task in one.without(list(too_few)).tasks:
            try:
                if isinstance(task, str):
                    plan = _plan_held_out_task(target, task, one)
                else:
                    plan = _plan_file_task(target, task, one)
                # tasks that ignore the number of labels have the same stage for each request
                plans[plan.stage.folder] = plan
            except BadInput as error:
                problems |= {str(error): None}
    if few and not plans and not problems:
        raise DataError("\n".join(few))
    for reason in few:
        log.warning("left out: %s", reason)
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        log.warning("%s", note)
    return list(plans.values()), list(problems)


# Tasks of held-out documents


def _plan_held_out_task(target: EvalTarget, task: str, request: EvalRequest) -> TaskPlan:
    if target.corpus is None:
        raise BadInput(
            f"task {task}: needs the held-out text of a training corpus, which is unknown for a model of transformers; "
            "evaluate a run of Sesame"
        )
    labels = request.held_out_labels
    budget = Budget(labels=labels, steps=request.max_steps or Budget().steps)
    is_tuned = TASKS[task].way == "tuned"
    trials = [
        EvalTrial(
            name=f"{task}, {start}" + (f", seed {seed}" if is_tuned else ""),
            folder=target.folder,
            weights=target.weights,
            task=task,
            start=start,
            tuning=budget.make_tuning(seed) if is_tuned else None,
            updates=budget.steps if is_tuned else 1,
            labels=labels if is_tuned else 0,
            length=LENGTH,
            corpus=target.corpus,
            machine=request.machine_of_cell,
        )
        for seed in range(request.num_seeds or SEEDS if is_tuned else 1)
        for start in STARTS
    ]
    causes = {
        "run": target.hash,
        "task": task,
        "labels": labels if is_tuned else LABELS,
        "cells": _trial_causes(trials),
    }
    stage = _stage(target, task, causes, TASKS[task])
    return TaskPlan(task, stage, trials, "accuracy", "test", "", labels if is_tuned else 0, step=target.step)


# Tasks of files


@dataclass(frozen=True)
class _TaskData:
    """The files of a task, and the splits that are scored."""

    task: TaskFile
    directory: Path
    is_tuned: bool
    items: Mapping[str, Sequence[TaskItem]]  # by split
    files: Mapping[str, SplitFile]  # by split
    notes: Sequence[str]  # problems in the files
    answered: Sequence[str]  # splits with answers, except train
    submitted: Collection[str]  # splits of a leaderboard
    scored: tuple[str, ...]  # the splits that are scored
    scored_note: str  # why these splits are not the usual ones; "" if they are

    @property
    def num_train(self) -> int:
        return len(self.items.get("train", ()))

    @property
    def used(self) -> tuple[str, ...]:
        """The splits that a trial reads."""
        return tuple(name for name in self.items if name == "train" or name in self.answered or name in self.submitted)


@dataclass(frozen=True)
class _TaskTuning:
    """The fine-tunings of a task; `tunings` is [None] for a task without fine-tuning."""

    tunings: Sequence[Tuning | None]
    grid_description: str
    remark: str
    labels: int  # training examples; 0: all of them
    length: int  # maximum tokens of a sequence


def _plan_file_task(target: EvalTarget, task: TaskFile, request: EvalRequest) -> TaskPlan:
    """The plan of a task of files. Raises BadInput with one line if something is missing."""
    if not _has_files(task, request):
        raise BadInput(
            f"task {task.name}: its files are not known; name the directory that has them with --task-data-dir DIR"
        )
    task, window_remark = with_trained_window(target, task)
    labels_note = ""
    if target.finetuned:
        task, labels_note = fit_task(task, target.finetuned)
        labels_note = labels_note and f"{task.name}: {labels_note}"
    data = _read_task_data(target, task, request)
    tuning = _select_tunings(target, data, request)
    positions_note = find_untrained_positions(target, task, tuning.length, tuning.tunings, data.items)
    if any(one and one.num_evaluations for one in tuning.tunings):
        _check_dev(task, data.answered, request.machine)
    trials = _build_trials(target, data, tuning, request)
    chosen_on = _select_deciding_split(task, data.answered, _count_configurations(trials))
    digest = _digest({name: data.items[name] for name in data.used} if target.finetuned else data.items)
    causes = _causes(target, data, tuning, trials, chosen_on, digest)
    is_shortened = bool(tuning.labels or (data.is_tuned and request.max_steps))
    is_sample = not task.score_splits and data.scored[0] not in ("test", "dev")
    labels = tuning.labels or (data.num_train if data.is_tuned and request.max_train_samples else 0)
    return TaskPlan(
        task=task.name,
        stage=_stage(target, task.name, causes, task.task),
        cells=trials,
        metric=task.metric,
        split=data.scored[0] if len(data.scored) == 1 else MEAN,
        chosen_on=chosen_on,
        parts=data.scored if len(data.scored) > 1 else (),
        labels=labels,
        chance=_majority_fraction(data) if task.metric == "accuracy" and data.is_tuned else None,
        paper={} if is_shortened or is_sample else paper_figures(task, target.expected),
        grid_description=tuning.grid_description or labels_note,
        files_description=_describe_fallbacks(task, data.directory),
        notes=tuple(_notes(data, positions_note, chosen_on)),
        remarks=tuple(filter(None, (task.note, tuning.remark, window_remark, labels_note))),
        data_digest=digest,
        items={name: data.items[name] for name in data.used},
        submission={name: file for name, file in task.leaderboard_files.items() if name in data.used},
        kind=task.task,
        step=target.step,
        files={name: data.files[name] for name in data.used},
    )


def _read_task_data(target: EvalTarget, task: TaskFile, request: EvalRequest) -> _TaskData:
    """Read the files of a task and select the scored splits. Raises BadInput if the task is impossible with them."""
    directory, is_tuned = request.task_data_dir or Path(), _is_tuned(task) and not target.finetuned
    if target.finetuned:
        others = {name: split for name, split in task.files.items() if name != "train"}
        task = dataclasses.replace(task, files=others or task.files)
    leaderboard = set(task.leaderboard_files) if request.for_leaderboard else set[str]()
    items, files, notes = read_items(task, directory, leaderboard)
    answered = [name for name, each in items.items() if name != "train" and any(i.gold is not None for i in each)]
    check_task_support(target, task, is_tuned=is_tuned)
    check_splits(task, items, answered, directory, is_tuned)
    submitted = leaderboard & set(items)
    scored, scored_note = select_scored_splits(task, items, answered, directory, bool(submitted))
    return _TaskData(task, directory, is_tuned, items, files, notes, answered, submitted, scored, scored_note)


def _select_tunings(target: EvalTarget, data: _TaskData, request: EvalRequest) -> _TaskTuning:
    """The fine-tunings of a task with their number of training examples and their sequence length."""
    if not data.is_tuned:
        saved = target.finetuned.length if target.finetuned else 0
        length = request.max_seq_length if target.finetuned else 0
        return _TaskTuning([None], "", "", 0, length or saved or data.task.max_seq_length)
    tunings, description, remark = tunings_of(target, data.task, request)
    samples = request.max_train_samples[0] if request.max_train_samples else 0
    labels = samples if samples < data.num_train else 0
    return _TaskTuning(tunings, description, remark, labels, request.max_seq_length or data.task.max_seq_length)


def _build_trials(target: EvalTarget, data: _TaskData, tuning: _TaskTuning, request: EvalRequest) -> list[EvalTrial]:
    """One trial for each fine-tuning and each initialization."""
    starts: Sequence[Start] = STARTS if request.with_baseline and not target.finetuned else ("pretrained",)
    digests = {name: digest_of(data.items[name]) for name in data.used}
    return [
        EvalTrial(
            name=_trial_name(data.task, start, one),
            folder=target.folder,
            weights=target.weights,
            task=data.task,
            start=start,
            tuning=one,
            splits=data.used,
            labels=tuning.labels,
            length=tuning.length,
            is_finetuned=target.finetuned is not None,
            data=data.directory.absolute(),
            digests=digests,
            begin=intermediate_task(target, data.task, one, request),
            updates=one.num_steps(tuning.labels or data.num_train) if one else 1,
            machine=request.machine_of_cell,
        )
        for one in tuning.tunings
        for start in starts
    ]


def _count_configurations(trials: Sequence[EvalTrial]) -> int:
    """Number of different hyperparameter settings, without the seeds."""
    return len({json.dumps({**trial.how, "seed": 0}, sort_keys=True) for trial in trials})


def _notes(data: _TaskData, positions_note: str, chosen_on: str) -> Iterator[str]:
    """Everything that may be wrong with the scores of a task, one line each."""
    yield from data.notes
    if positions_note:
        yield positions_note
    if data.scored_note:
        is_weak = chosen_on in data.scored and UNRELIABLE in data.scored_note
        yield data.scored_note + (f"; {chosen_on} also selected the hyperparameters" if is_weak else "")
    if note := _small_split_note(data, chosen_on):
        yield note


def _causes(
    target: EvalTarget,
    data: _TaskData,
    tuning: _TaskTuning,
    trials: Sequence[EvalTrial],
    chosen_on: str,
    digest: str,
) -> dict[str, Any]:
    """Everything that the scores of a task depend on; the directory of the scores is named after its hash."""
    task = data.task
    causes: dict[str, Any] = {"run": target.hash, "task": _task_causes(task), "data": digest}
    causes |= {"labels": tuning.labels, "length": tuning.length, "splits": list(data.used)}
    if task.score_splits or data.scored_note:
        causes["scored"] = list(data.scored)
    if task.task.numerics:
        causes["numerics"] = task.task.numerics
    if before := next((trial.begin for trial in trials if trial.begin), None):
        causes["begins_with"] = _digest({"train": before[0].items("train", data.directory)[0]})
    return causes | {"chosen_on": chosen_on, "cells": _trial_causes(trials)}


# Files and splits


def _has_files(task: TaskFile, request: EvalRequest) -> bool:
    """Whether files of a task can be found: in a given data directory, beside the task file, or at their own paths."""
    return request.task_data_dir is not None or any(split.is_there(Path()) for split in task.files.values())


def _is_tuned(task: TaskFile) -> bool:
    """Whether a model is fine-tuned for the task: always if it has a head; for generation, if it has a train split."""
    kind: Any = task.task
    return kind.way == "tuned" or (kind.way == "written" and kind.generation.tunes and "train" in task.files)


def _describe_fallbacks(task: TaskFile, data: Path) -> str:
    """The files of the splits that are read from one of their fallbacks, in one line; "" if there are none."""
    read = dict[str, str]()
    for name, split in task.files.items():
        if split.is_there(data) and (chosen := split.select_files(data)) is not split:
            read[name] = str(next(pattern for pattern in chosen.patterns if exists(data, pattern)))
    files = ", ".join(f"{name} from {path}" for name, path in read.items())
    return f"task {task.name}: reads {files}" if files else ""


def _small_split_note(data: _TaskData, chosen_on: str) -> str:
    """A note if the score is a fraction of too few examples; "" otherwise."""
    count = sum(item.gold is not None for split in data.scored for item in data.items[split])
    if count >= FEW or unit_of(data.task.metric) != SHARES:
        return ""
    also = ", which also selected the hyperparameters" if chosen_on in data.scored else ""
    return (
        f"task {data.task.name}: its score is computed on {count} example{'s' * (count != 1)} "
        f"({', '.join(data.scored)}){also}: {UNRELIABLE}"
    )


def _check_dev(task: TaskFile, answered: Sequence[str], machine: EngineSettings) -> None:
    """Raises BadInput if the grid selects the best weights on dev, and that is impossible."""
    grid = f"task {task.name}: its grid selects the weights that are best on dev"
    if not any(name.startswith("dev") for name in answered):
        raise BadInput(f"{grid}, but there is no labeled dev split; use another grid with --grid")
    if machine.zero_stage == 3 and machine.precision != "fp32":
        raise BadInput(
            f"{grid}, but with cluster.engine.zero_stage 3 no worker has the whole model; set "
            "cluster.engine.zero_stage=2"
        )


def _select_deciding_split(task: TaskFile, answered: Sequence[str], configurations: int) -> str:
    """The split on which the hyperparameters are selected; "" if there is only one setting."""
    if configurations == 1:
        return ""
    if dev := next((name for name in answered if name.startswith("dev")), ""):
        return dev
    raise BadInput(
        f"task {task.name}: selecting one of {configurations} hyperparameter settings needs a labeled dev split; "
        "set one value each with --learning-rates, --batch-sizes and --epochs"
    )


def _trial_name(task: TaskFile, start: Start, tuning: Tuning | None) -> str:
    if tuning is None:
        return f"{task.name}, {start}"
    long = f"{tuning.max_steps} steps" if tuning.max_steps else f"{tuning.epochs:g} epoch{'s' * (tuning.epochs != 1)}"
    return f"{task.name}, {start}, {tuning.learning_rate:g} x {tuning.batch_size} x {long}, seed {tuning.seed}"


def _task_causes(task: TaskFile) -> dict[str, Any]:
    """The parts of a task that its scores depend on."""
    plain = json.loads(json.dumps(dataclasses.asdict(task.task)))
    return {"name": task.name, "task": plain}


def _digest(items: Mapping[str, Sequence[TaskItem]]) -> str:
    """Digest of the questions and answers; it is the same for the same data in another file format."""
    digest = hashlib.sha256()
    for split, each in sorted(items.items()):
        digest.update(split.encode())
        for item in each:
            digest.update(json.dumps([_plain(item.texts), _plain(item.gold)], default=str).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _majority_fraction(data: _TaskData) -> float:
    """The fraction of the most frequent answer, as the mean over the scored splits."""
    splits = [data.items[name] for name in data.scored]
    golds = [[json.dumps(item.gold, default=str) for item in items if item.gold is not None] for items in splits]
    return fmean(max(Counter(each).values()) / len(each) for each in golds)


def _trial_causes(trials: Sequence[EvalTrial]) -> list[dict[str, Any]]:
    return [{"start": trial.start, "how": json.loads(json.dumps(trial.how))} for trial in trials]


def _stage(target: EvalTarget, task: str, causes: dict[str, Any], part: Any) -> JobStage:
    if target.weights != WEIGHTS and target.step is not None:
        causes = {**causes, "step": target.step}
    code = compute_digests(part)
    return JobStage("scores", target.folder / "scores", task, causes, code, name_options)
