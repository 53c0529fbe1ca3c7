"""Fine-tuned models of an evaluation: the directories that `--save` writes, and their source when they are scored.

A trial writes its model beside its result, with SAVED: its task and its scores. The model of the selected trial is then
copied to the directory of the user, with a model card. Its scores are those of the model that is loaded from there.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestration import launch
from orchestration.evaluation.eval_request import EvalTarget, FinetunedSource
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.full_disk import AGAIN, explain_full_disk
from orchestration.launch import CARD, SAVED
from orchestration.reports import render_finetuned_card
from orchestration.version import sesame_version
from preprocessing.errors import BadInput
from preprocessing.files import (
    TEMPORARY,
    is_new,
    parse_json,
    read_object,
    remove_tree,
    sums_of,
    whole_folder,
    write_atomic,
)
from preprocessing.folders import require_local_path
from preprocessing.tokenization import Vocab
from training.evaluation.tasks import TaskScore

log = logging.getLogger(__name__)

_KEPT: Final = "use another directory"


# Planning


@dataclass(frozen=True)
class Saves:
    """The models to save: their directories, by the directory of their scores."""

    target: EvalTarget
    places: Mapping[Path, Path]
    command: str = ""  # the command line
    notes: list[str] = field(default_factory=list, compare=False)  # one line for each saved model

    def has(self, plan: TaskPlan) -> bool:
        """Whether the directory of a plan has its model already."""
        return _is_of(self.places[plan.stage.folder], plan)


def plan_saves(target: EvalTarget, plans: Sequence[TaskPlan], to: Path, command: str = "") -> Saves:
    """The directories of the saved models of all fine-tuned tasks. `command` is noted in the models.

    With one task it is `to`, with several `to`/TASK. Raises BadInput before any training, if a model has no class of
    transformers, a directory is not empty or cannot be written, or a task has several models. A directory that has the
    model of the same evaluation is left as it is.
    """
    require_local_path("--save", to)
    tuned = [plan for plan in plans if plan.is_tuned and plan.kind.way == "tuned"]
    for plan in plans:
        if plan not in tuned:
            log.warning("--save: %s is not saved: it has no task head that is fine-tuned on a file", plan.task)
    if not tuned:
        raise BadInput("--save: no task of this command fine-tunes a task head on a file; leave --save out")
    names = [plan.task for plan in tuned]
    if several := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(
            f"--save: {several[0]} has {names.count(several[0])} models (--checkpoints-every, --max-train-samples), "
            "expected one; save one of them"
        )
    if len(tuned) > 1 and (to / "config.json").is_file():
        raise BadInput(f"{to}: exists and is a model, but {len(tuned)} models would be saved below it; {_KEPT}")
    _check_classes(target, tuned)
    places = {plan.stage.folder: to / plan.task if len(tuned) > 1 else to for plan in tuned}
    for plan in tuned:
        place = places[plan.stage.folder]
        if _is_of(place, plan):
            continue
        if not is_new(place):
            raise BadInput(f"{place}: exists and is not an empty directory; {_KEPT}")
        _check_writable(place)
    return Saves(target, places, command)


def _is_of(place: Path, plan: TaskPlan) -> bool:
    """Whether a directory has the saved model of this evaluation."""
    file = place / SAVED
    if not file.is_file():
        return False
    try:
        return bool(parse_json(file.read_bytes()).get("evaluation") == plan.stage.hash)
    except (ValueError, AttributeError):
        return False


def _check_writable(place: Path) -> None:
    """Raise BadInput if a directory cannot be created, or if no file can be created in it."""
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=TEMPORARY):
            pass
    except OSError as error:
        raise BadInput(f"--save {place}: {there}: {error.strerror}; {_KEPT}") from None


def _check_classes(target: EvalTarget, plans: Sequence[TaskPlan]) -> None:
    """Raise BadInput if a class of transformers is missing for one of the fine-tuned models."""
    from training.evaluation import check_savable
    from training.formats import load_spec, model_spec

    folder = target.folder / target.weights
    spec = load_spec(folder) if (folder / "spec.json").is_file() else model_spec(folder)
    pad = Vocab.load(target.corpus / "vocab").pad if target.corpus else _pad_of(folder)
    for plan in plans:
        tunings = {(cell.tuning.frozen_features, cell.tuning.sum_orders) for cell in plan.cells if cell.tuning}
        task = plan.kind.with_tuning(plan.cells[0].tuning)
        for features, added in tunings:
            try:
                check_savable(spec, pad, task, features, added or getattr(task, "sum_orders", False))
            except BadInput as error:
                raise BadInput(f"task {plan.task}: {error}") from None


def _pad_of(folder: Path) -> int | None:
    from preprocessing.tokenization import of_folder

    return of_folder(folder).pad


# Saving


def publish(saves: Saves, plan: TaskPlan, cell: launch.EvalTrial, rule: str) -> bool:
    """Copy the model of a trial to its directory, with its card and its origin. `rule`: how it was selected.

    Returns False if the directory has the model already. The model of the trial is then removed, like those of the
    others.
    """
    target, place = saves.target, saves.places[plan.stage.folder]
    assert cell.save_to is not None
    is_due = not _is_of(place, plan)
    if is_due:
        about = read_object(cell.save_to / SAVED, f"delete {cell.save_to}, and repeat the command", task=dict)
        about |= {
            "base": {"name": target.name, "hash": target.hash, "folder": str(_folder_of(target)), "step": target.step},
            "evaluation": plan.stage.hash,
            "selected": rule,
            "metric": plan.metric,
            "split": plan.split,
            "command": saves.command,
            "sesame_version": sesame_version(),
        }
        with explain_full_disk(place, lambda: "", AGAIN), whole_folder(place) as unfinished:
            shutil.copytree(cell.save_to, unfinished, dirs_exist_ok=True, ignore=shutil.ignore_patterns(SAVED))
            write_atomic(unfinished / CARD, render_finetuned_card(about, str(place.absolute())).encode())
            about["sha256"] = sums_of(unfinished)
            write_atomic(unfinished / SAVED, json.dumps(about, indent=1, ensure_ascii=False).encode())
    for each in plan.cells:
        if each.save_to and each.save_to.is_dir():
            remove_tree(each.save_to)
    return is_due


def _folder_of(target: EvalTarget) -> Path:
    """The directory of the base model."""
    return (target.folder if target.corpus else target.folder / target.weights).absolute()


# Scoring a saved model


def compare_all(source: FinetunedSource, plans: Sequence[TaskPlan], scores: Sequence[TaskScore]) -> list[str]:
    """One line for each task that compares its scores with those at the time of saving, if the examples are equal.

    The task of the model has a line also if its examples differ.
    """
    found = {score.task: score.starts["pretrained"].scores for score in scores if "pretrained" in score.starts}
    lines = (_compare(source, plan, found[plan.task]) for plan in plans if plan.task in found)
    return list(filter(None, lines))


def _compare(source: FinetunedSource, plan: TaskPlan, scores: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    saved, digests = source.about.get("scores", {}), source.about.get("splits", {})
    splits = [split for split in scores if digests.get(split, "") == launch.digest_of(plan.items.get(split, ()))]
    before = {split: saved.get(split, {}).get(plan.metric) for split in splits}
    pairs = [(split, scores[split][plan.metric][0], one) for split, one in before.items() if one is not None]
    if not pairs:
        is_own = source.about.get("task", {}).get("name") == plan.task
        return f"{plan.task}: its examples are not those of the time of saving" if is_own and not splits else ""
    shown = ", ".join(f"{split} {plan.metric} {now:.6g}" for split, now, _ in pairs)
    others = ", ".join(f"{split} {before:.6g}" for split, now, before in pairs if now != before)
    if others:
        return f"{plan.task}: {shown}, but at the time of saving {others}: another machine, library or thread count"
    return f"{plan.task}: {shown}, as at the time of saving"
