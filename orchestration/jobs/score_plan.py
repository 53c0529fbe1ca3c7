"""What an evaluation is to do: for each task its cells, what they depend on, and where their results are kept."""

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from orchestration.config import compute_digest
from orchestration.jobs import held_out, part_code, stages
from orchestration.jobs.eval_request import EvalRequest, EvalTarget
from orchestration.jobs.grids import SEEDS, intermediate_task, tunings_of
from orchestration.jobs.paper_figures import paper_figures
from orchestration.jobs.task_support import check_task_support
from orchestration.jobs.untrained_positions import find_untrained_positions, with_trained_window
from orchestration.launch import WEIGHTS, EvalTrial, digest_of
from orchestration.reports import SHARES, unit_of
from preprocessing.errors import BadInput, DataError
from preprocessing.files import write_atomic
from training.evaluation import Budget, EvalResult
from training.files import exists
from training.finetuning import Tuning
from training.metrics import pool_values
from training.specs import EngineSettings
from training.tasks import COUNTS, LABELS, LENGTH, STARTS, TASKS, SplitRecords, Start, TaskFile, TaskItem

log = logging.getLogger(__name__)

MOST_PATHS: Final = 4  # in a message
HELD_OUT_FLAGS: Final = (
    "--max-steps",
    "--num-seeds",
    "--max-train-samples",
)  # those that a fine-tuning on held-out text obeys
FEW: Final = 30  # rows: a share of fewer moves by more than three points with each of them
MEAN: Final = "mean"  # what a score over several splits stands under, beside them


@dataclass(frozen=True)
class TaskPlan:
    """The cells of one task, and what their scores mean."""

    task: str
    stage: stages.JobStage
    cells: Sequence[EvalTrial]
    metric: str
    split: str
    chosen_on: str
    labels: int = 0
    chance: float | None = None
    paper: Mapping[str, float] = field(default_factory=dict)
    said: str = ""  # what it is tuned with, in a line
    notes: tuple[str, ...] = ()  # what was wrong with its files
    remarks: tuple[str, ...] = ()  # what else a reader of its scores must know
    data_digest: str = ""
    items: Mapping[str, Sequence[TaskItem]] = field(default_factory=dict)
    submission: Mapping[str, str] = field(default_factory=dict)  # split -> its file for a leaderboard
    kind: Any = None  # a member of Kinds; None: held-out documents
    step: int | None = None  # of the pretraining, where the weights are those of a checkpoint
    parts: tuple[str, ...] = ()  # splits whose mean `split` is

    def file_of(self, cell: EvalTrial) -> Path:
        """Where the result of a cell is kept: grids that have it in common share it."""
        causes = {name: value for name, value in self.stage.causes.items() if name not in ("cells", "chosen_on")}
        about = {"of": causes, "start": cell.start, "how": cell.how}
        return self.stage.parent / "cells" / f"{self.task}-{compute_digest(about)[:12]}.json"

    @property
    def is_tuned(self) -> bool:
        """Whether its cells are fine-tunings on a split of files."""
        return self.kind is not None and self.cells[0].tuning is not None

    def obeys(self, flag: str) -> bool:
        """Whether a flag about fine-tunings changes anything."""
        if self.cells[0].tuning is None:
            return False
        return self.kind is not None or flag in HELD_OUT_FLAGS

    def keep(self, cell: EvalTrial, found: EvalResult) -> None:
        """Write the result of a cell."""
        file = self.file_of(cell)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"cell": cell.name, "found": dataclasses.asdict(self._with_mean(found))}, ensure_ascii=False)
        write_atomic(file, text.encode())

    def _with_mean(self, found: EvalResult) -> EvalResult:
        """The result with the mean over the parts, where there are some. Numbers of items are summed; ends of intervals
        have no mean, and what a part lacks has none."""
        if not self.parts:
            return found
        of_parts = [found.scores[part] for part in self.parts]
        shared = [name for name in of_parts[0] if all(name in of for of in of_parts) and name not in COUNTS]
        mean = {name: fmean(of[name] for of in of_parts) for name in shared if not name.endswith(("_low", "_high"))}
        mean |= {name: count for name in COUNTS if (count := sum(of.get(name, 0.0) for of in of_parts))}
        notes = [*found.notes, f"{MEAN}: over {', '.join(self.parts)}"]
        units = {**found.by_unit, MEAN: pool_values([found.by_unit.get(part, ()) for part in self.parts])}
        alike = {found.constant.get(part, "") for part in self.parts}
        constant = {**found.constant, MEAN: alike.pop() if len(alike) == 1 else ""}
        more: dict[str, Any] = {"by_unit": units, "constant": constant}
        return dataclasses.replace(found, scores={**found.scores, MEAN: mean}, notes=notes, **more)

    def result(self, found: EvalResult) -> str:
        """The result of a cell in words."""
        return ", ".join(f"{split} {self.metric} {by[self.metric]:.4g}" for split, by in found.scores.items())


def plan_tasks(subject: EvalTarget, wanted: EvalRequest) -> list[TaskPlan]:
    """The plans of all tasks, their files read whole.

    BadInput, a line for each task that cannot be done; of held-out documents, one for which they are too few is left
    out with a warning, DataError where that is so of all.
    """
    plans, problems = _tried(subject, wanted)
    if problems:
        raise BadInput("\n".join(problems))
    return plans


def plan_supported_tasks(subject: EvalTarget, wanted: EvalRequest) -> list[TaskPlan]:
    """The plans of the tasks that can be done; a warning for each other one."""
    files = [task for task in wanted.tasks if not isinstance(task, str) and not _may_be_at_hand(task, wanted)]
    if files:
        groups = dict.fromkeys(task.group or task.name for task in files)
        log.warning("left out: %s: name the folder that has their files with --task-data-dir DIR", ", ".join(groups))
        wanted = dataclasses.replace(wanted, tasks=[task for task in wanted.tasks if task not in files])
    plans, problems = _tried(subject, wanted)
    for problem in problems:
        log.warning("left out: %s", problem)
    return plans


def check_flags(plans: Sequence[TaskPlan], wanted: EvalRequest) -> None:
    """A warning for each flag that some of the tasks do not obey; BadInput for those that none does, and where there is
    nothing to submit."""
    if wanted.for_leaderboard and not any(plan.submission for plan in plans):
        raise BadInput(
            "--leaderboard-dir: none of these tasks has an unlabelled split at hand for a leaderboard; leave that out, "
            "or name "
            "the folder that has one with --task-data-dir DIR"
        )
    deaf = {flag: dict.fromkeys(plan.task for plan in plans if not plan.obeys(flag)) for flag in wanted.given}
    why = f"no fine-tuning, or one on held-out text, which obeys {', '.join(HELD_OUT_FLAGS)} alone"
    if idle := [flag for flag in deaf if plans and not any(plan.obeys(flag) for plan in plans)]:
        raise BadInput(f"{', '.join(idle)}: no effect on {', '.join(deaf[idle[0]])} ({why}); leave that out")
    alike = dict[str, list[str]]()
    for flag, tasks in deaf.items():
        if tasks:
            alike.setdefault(", ".join(tasks), []).append(flag)
    for tasks_, flags in alike.items():
        log.warning("%s: no effect on %s (%s)", ", ".join(flags), tasks_, why)


def _tried(subject: EvalTarget, wanted: EvalRequest) -> tuple[list[TaskPlan], list[str]]:
    plans, problems, few = dict[Path, TaskPlan](), dict[str, None](), dict[str, None]()
    for one in wanted.by_labels():
        lacking = dict[str, str]()
        if subject.corpus and one.held_out:
            lacking = held_out.find_too_few(subject.corpus, one.held_out, one.held_out_labels)
        few |= dict.fromkeys(lacking.values())
        for task in one.without(list(lacking)).tasks:
            try:
                plan = _of_held_out(subject, task, one) if isinstance(task, str) else _of_files(subject, task, one)
                plans[plan.stage.folder] = plan  # once, where the number of labels changes nothing
            except BadInput as error:
                problems |= {str(error): None}
    if few and not plans and not problems:
        raise DataError("\n".join(few))
    for reason in few:
        log.warning("left out: %s", reason)
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        log.warning("%s", note)
    return list(plans.values()), list(problems)


# Tasks that are made of held-out documents


def _of_held_out(subject: EvalTarget, task: str, wanted: EvalRequest) -> TaskPlan:
    if subject.corpus is None:
        raise BadInput(f"task {task}: is made of text that a run holds out; a net of transformers has none")
    labels = wanted.held_out_labels
    budget = Budget(labels=labels, steps=wanted.max_steps or Budget().steps)
    is_tuned = TASKS[task].way == "tuned"
    cells = [
        EvalTrial(
            name=f"{task}, {start}" + (f", seed {seed}" if is_tuned else ""),
            folder=subject.folder,
            weights=subject.weights,
            task=task,
            start=start,
            tuning=budget.tuning(seed) if is_tuned else None,
            updates=budget.steps if is_tuned else 1,
            labels=labels if is_tuned else 0,
            length=LENGTH,
            corpus=subject.corpus,
            machine=wanted.machine_of_cell,
        )
        for seed in range(wanted.num_seeds or SEEDS if is_tuned else 1)
        for start in STARTS
    ]
    causes = {"run": subject.hash, "task": task, "labels": labels if is_tuned else LABELS, "cells": _cells(cells)}
    stage = _stage(subject, task, causes, TASKS[task])
    return TaskPlan(task, stage, cells, "accuracy", "test", "", labels if is_tuned else 0, step=subject.step)


# Tasks of files


def _of_files(subject: EvalTarget, task: TaskFile, wanted: EvalRequest) -> TaskPlan:
    """The plan of a task; BadInput where what it needs is not at hand, in one line."""
    if not _may_be_at_hand(task, wanted):
        raise BadInput(
            f"task {task.name}: its files are not known; name the folder that has them with --task-data-dir DIR"
        )
    data_dir = wanted.task_data_dir or Path()
    task, of_window = with_trained_window(subject, task)
    items, notes = _at_hand(task, data_dir, set(task.leaderboard_files) if wanted.for_leaderboard else set())
    answered = [name for name, found in items.items() if name != "train" and any(i.gold is not None for i in found)]
    is_tuned = _is_tuned(task)
    check_task_support(subject, task, is_tuned=is_tuned)
    _check_splits(task, items, answered, data_dir, is_tuned)
    submitted = set(task.leaderboard_files) & set(items) if wanted.for_leaderboard else set[str]()
    headline, note = _headline(task, items, answered, data_dir, bool(submitted))
    instead = note
    rows = len(items.get("train", ()))
    labels = (
        wanted.max_train_samples[0]
        if is_tuned and wanted.max_train_samples and wanted.max_train_samples[0] < rows
        else 0
    )
    tunings, grid_note, remark = tunings_of(subject, task, wanted) if is_tuned else ([None], "", "")
    length = wanted.max_seq_length if is_tuned and wanted.max_seq_length else task.max_seq_length
    if note := find_untrained_positions(subject, task, length, tunings, items):
        notes.append(note)
    if any(tuning and tuning.num_evaluations for tuning in tunings):
        _check_dev(task, answered, wanted.machine)
    starts: Sequence[Start] = STARTS if wanted.with_baseline else ("pretrained",)
    splits = tuple(name for name in items if name == "train" or name in answered or name in submitted)
    digests = {name: digest_of(items[name]) for name in splits}
    cells = [
        EvalTrial(
            name=_named(task, start, tuning),
            folder=subject.folder,
            weights=subject.weights,
            task=task,
            start=start,
            tuning=tuning,
            splits=splits,
            labels=labels,
            length=length,
            data=data_dir.absolute(),
            digests=digests,
            begin=intermediate_task(subject, task, tuning, wanted),
            updates=tuning.num_steps(labels or rows) if tuning else 1,
            machine=wanted.machine_of_cell,
        )
        for tuning in tunings
        for start in starts
    ]
    is_sample = not task.score_splits and headline[0] not in ("test", "dev")
    configurations = {json.dumps({**cell.how, "seed": 0}, sort_keys=True) for cell in cells}
    chosen_on = _chosen_on(task, answered, len(configurations))
    if instead:
        too = "; it chose the hyper-parameters too" if chosen_on in headline and "says little" in instead else ""
        notes.append(instead + too)
    if note := _few(task, headline, items, chosen_on):
        notes.append(note)
    data = _digest(items)
    causes: dict[str, Any] = {"run": subject.hash, "task": _science(task), "data": data}
    causes |= {"labels": labels, "length": length, "splits": list(splits)}
    if task.score_splits or instead:
        causes["scored"] = list(headline)
    if task.task.numerics:
        causes["numerics"] = task.task.numerics
    if begun := next((cell.begin for cell in cells if cell.begin), None):
        causes["begins_with"] = _digest({"train": begun[0].items("train", data_dir)[0]})
    causes |= {"chosen_on": chosen_on, "cells": _cells(cells)}
    stage = _stage(subject, task.name, causes, task.task)
    return TaskPlan(
        task=task.name,
        stage=stage,
        cells=cells,
        metric=task.metric,
        split=headline[0] if len(headline) == 1 else MEAN,
        chosen_on=chosen_on,
        parts=headline if len(headline) > 1 else (),
        labels=labels or (rows if is_tuned and wanted.max_train_samples else 0),
        chance=_majority([items[name] for name in headline]) if task.metric == "accuracy" and is_tuned else None,
        paper={} if labels or is_sample else paper_figures(task, subject.expected),
        said=grid_note,
        notes=tuple(notes),
        remarks=tuple(filter(None, (task.note, remark, of_window))),
        data_digest=data,
        items={name: items[name] for name in splits},
        submission={name: file for name, file in task.leaderboard_files.items() if name in splits},
        kind=task.task,
        step=subject.step,
    )


def _may_be_at_hand(task: TaskFile, wanted: EvalRequest) -> bool:
    """Whether a folder of data is named, or files of the task are found without one, beside it or by their paths."""
    return wanted.task_data_dir is not None or any(split.is_there(Path()) for split in task.files.values())


def _is_tuned(task: TaskFile) -> bool:
    """Whether a net is fine-tuned for it: always for a head, and to write where the task names a split for that."""
    kind: Any = task.task
    return kind.way == "tuned" or (kind.way == "written" and kind.generation.tunes and "train" in task.files)


def _at_hand(task: TaskFile, data: Path, submitted: Collection[str]) -> tuple[dict[str, list[TaskItem]], list[str]]:
    """The items of each split that is there, and which of its rows are not used. BadInput where one that is submitted
    has malformed rows: the answers behind them would stand under numbers of others."""
    items, notes = {}, []
    for split, files in task.files.items():
        if not files.is_there(data):
            continue
        items[split], records = task.items(split, data)
        if split in submitted and records.malformed:
            raise BadInput(
                f"task {task.name}, {split}: a split that is submitted has no malformed rows; {records.malformed[0]}; "
                "answers have the numbers of their rows: mend the file, or leave --leaderboard-dir out"
            )
        kept_back = [] if _is_unlabelled(files.chosen(data), task) else _kept_back(items[split])
        notes += [f"task {task.name}, {split}: {note}" for note in (*records.notes, *kept_back)]
    return items, notes


def _is_unlabelled(split: SplitRecords, task: TaskFile) -> bool:
    """Whether the task says itself that a split has no answers, as those of leaderboards."""
    key = task.task.answer_key
    return key != "" and split.columns.get(key) == ""


def _kept_back(items: Sequence[TaskItem]) -> list[str]:
    """A line where no question has an answer, which a reader would take for a labelled split."""
    return [f"{said}: it is not scored" for said in _no_answer(items)]


def _no_answer(items: Sequence[TaskItem]) -> list[str]:
    if not items or any(item.gold is not None for item in items):
        return []
    return [f"none of its {len(items):,} questions has an answer ({items[0].place} is the first one)"]


def _check_splits(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], answered: Sequence[str], data: Path, is_tuned: bool
) -> None:
    """BadInput where there is nothing to learn from, or nothing to score."""
    lacking = list[str]()
    if is_tuned and not any(item.gold is not None for item in items.get("train", ())):
        lacking.append("labelled train" if "train" in items else "train")
    if not answered:
        lacking.append("labelled dev or test")
    if lacking:
        wanted = [path for name, split in task.files.items() if name not in items for path in split.paths[:1]]
        few = list(dict.fromkeys(wanted))[:MOST_PATHS]
        looked = f"; looked for {', '.join(few)}" + (", ..." if len(few) < len(wanted) else "") if wanted else ""
        looked += "".join(f"; {split}: {said[0]}" for split, each in items.items() if (said := _no_answer(each)))
        zero_shot = "; a task file with zero_shot: true in `generation` asks a net without fine-tuning"
        remedy = zero_shot if answered and task.task.way == "written" else ""
        raise BadInput(
            f"task {task.name}: {_place(task, data)} has no {' and no '.join(lacking)} split of it{looked}{remedy}"
        )


def _place(task: TaskFile, data: Path) -> Path:
    """The folder that has the files of a task, or the one file that it has all of its splits from."""
    paths = list(dict.fromkeys(path for split in task.files.values() for path in split.paths))
    if len(paths) == 1 and Path(paths[0]).is_absolute():
        return Path(paths[0])
    own = next((path for path in paths if data == Path() and exists(data, path)), "")
    return Path(own).absolute().parent if own else data


def _headline(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], answered: Sequence[str], data: Path, is_submitted: bool
) -> tuple[tuple[str, ...], str]:
    """The splits that the score is of, and a line where some are not at hand, or have too few rows to say anything.

    BadInput where none of those that the task names is, but for a submission, which needs no such figure.
    """
    usual = (next((name for name in ("test", "dev") if name in answered), answered[0]),)
    there = tuple(name for name in task.score_splits if name in answered)
    lacking = [name for name in task.score_splits if name not in answered]
    if not lacking:
        return (there, "") if there else _large_enough(task, items, usual)
    of = f"task {task.name}: its score is of {', '.join(task.score_splits)}"
    if there:
        mean = f"it is the mean over {', '.join(there)}" if len(there) > 1 else f"it is of {there[0]} alone"
        return there, f"{of}; {mean}: {data} has no labelled {', '.join(lacking)}"
    looked = f"{data} has no labelled file of that; looked for {task.files[lacking[0]].paths[0]}"
    if is_submitted:
        return usual, f"{of}, and {looked}; the figure is of {usual[0]}, and no score of this task"
    raise BadInput(f"{of}, and {looked}")


def _large_enough(
    task: TaskFile, items: Mapping[str, Sequence[TaskItem]], usual: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Of a test split of a few rows and a dev split of more, dev, and a line that says so; else the usual split."""
    test, dev = (sum(item.gold is not None for item in items.get(split, ())) for split in ("test", "dev"))
    if usual != ("test",) or unit_of(task.metric) != SHARES or not (test < FEW <= dev or test < 2 <= dev):
        return usual, ""
    has = f"test has {test:,} labelled row{'s' * (test != 1)}, which says little"
    return ("dev",), f"task {task.name}: its score is of dev, {dev:,} rows, as {has}"


def _few(task: TaskFile, headline: Sequence[str], items: Mapping[str, Sequence[TaskItem]], chosen_on: str) -> str:
    """A line where a share is of so few rows that it says little, "" where it is of more."""
    rows = sum(item.gold is not None for split in headline for item in items[split])
    if rows >= FEW or unit_of(task.metric) != SHARES:
        return ""
    too = ", which chose the hyper-parameters too" if chosen_on in headline else ""
    return (
        f"task {task.name}: its score is of {rows} row{'s' * (rows != 1)} ({', '.join(headline)}){too}: it says little"
    )


def _check_dev(task: TaskFile, answered: Sequence[str], machine: EngineSettings) -> None:
    """BadInput where the best weights on dev are to count, and nothing is there to find them."""
    wants = f"task {task.name}: its grid takes the weights that are best on dev"
    if not any(name.startswith("dev") for name in answered):
        raise BadInput(f"{wants}, and no labelled dev split is at hand; give another grid with --grid")
    if machine.zero_stage == 3 and machine.precision != "fp32":
        raise BadInput(
            f"{wants}, and with engine.zero_stage 3 no worker has the whole net; give cluster.engine.zero_stage=2"
        )


def _chosen_on(task: TaskFile, answered: Sequence[str], configurations: int) -> str:
    """The split that decides between hyper-parameters; "" where there are none to choose from."""
    if configurations == 1:
        return ""
    if dev := next((name for name in answered if name.startswith("dev")), ""):
        return dev
    raise BadInput(
        f"task {task.name}: {configurations} hyper-parameters are to be compared, and no labelled dev split is at hand "
        "(test never decides); give one number each to --learning-rates, --batch-sizes and --epochs"
    )


def _named(task: TaskFile, start: Start, tuning: Tuning | None) -> str:
    if tuning is None:
        return f"{task.name}, {start}"
    long = f"{tuning.max_steps} steps" if tuning.max_steps else f"{tuning.epochs:g} epochs"
    return f"{task.name}, {start}, {tuning.learning_rate:g} x {tuning.batch_size} x {long}, seed {tuning.seed}"


def _science(task: TaskFile) -> dict[str, Any]:
    """What of a task decides its scores."""
    plain = json.loads(json.dumps(dataclasses.asdict(task.task)))
    return {"name": task.name, "task": plain}


def _digest(items: Mapping[str, Sequence[TaskItem]]) -> str:
    """Of the questions and answers themselves: the same data in another format has the same."""
    found = hashlib.sha256()
    for split, each in sorted(items.items()):
        found.update(split.encode())
        for item in each:
            found.update(json.dumps([_plain(item.texts), _plain(item.gold)], default=str).encode())
    return found.hexdigest()


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _majority(splits: Sequence[Sequence[TaskItem]]) -> float:
    """The share of the most frequent answer, of several splits the mean; each has answers."""
    golds = [[json.dumps(item.gold, default=str) for item in items if item.gold is not None] for items in splits]
    return fmean(max(Counter(each).values()) / len(each) for each in golds)


def _cells(cells: Sequence[EvalTrial]) -> list[dict[str, Any]]:
    return [{"start": cell.start, "how": json.loads(json.dumps(cell.how))} for cell in cells]


def _stage(subject: EvalTarget, task: str, causes: dict[str, Any], part: Any) -> stages.JobStage:
    if subject.weights != WEIGHTS and subject.step is not None:
        causes = {**causes, "step": subject.step}
    return stages.JobStage("scores", subject.folder / "scores", task, causes, part_code.compute_digests(part))
