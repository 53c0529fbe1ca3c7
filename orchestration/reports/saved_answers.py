"""The questions of a finished score and the answers of its trials, as its directory stores them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from orchestration.reports.saved_scores import MARK, ScoreKey, load_score
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_json, read_object
from training.evaluation.tasks import (
    SMOOTH_METRICS,
    Kinds,
    TaskItem,
    TaskScore,
    restore_answer,
    restore_item,
    restore_kind,
)

PREDICTIONS: Final = "predictions.json"
QUESTIONS: Final = "questions.json"  # the questions of the predictions, in the same order
AGAIN: Final = "delete its directory and repeat the `sesame eval` command"
_OWN: Final = ("run", "data", "step")  # causes of a score that differ between two runs with equal settings


@dataclass(frozen=True)
class SavedAnswers:
    """A finished score with its questions, and with the answers of each trial of the pretrained model."""

    folder: Path
    score: TaskScore
    key: ScoreKey
    causes: Mapping[str, Any]
    kind: Any  # the kind of task; None for a task of held-out documents
    questions: Mapping[str, Sequence[Mapping[str, Any]]]  # by split
    trials: Sequence[Mapping[str, Sequence[Any]]]  # per fine-tuning seed: predictions by split
    names: Sequence[str]  # of these trials, e.g. `seed 0`

    @cached_property
    def settings(self) -> str:
        """Everything that the score depends on, except the model and the files, as JSON."""
        of_score = {name: value for name, value in self.causes.items() if name not in _OWN}
        return json.dumps(of_score, sort_keys=True)

    def describe_trial(self, number: int) -> str:
        """The name of a trial and the number of trials; "" if there is only one.

        The score of one seed differs from the median in the table.
        """
        return f"{self.names[number]}, one of {len(self.names)} seeds" if len(self.names) > 1 else ""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the score is a mean of; usually one."""
        return (self.score.split,) if self.score.split in self.questions else tuple(self.causes.get("scored", ()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The main metric, the other metrics of the task, and those that move smoothly."""
        scored = next(iter(self.score.starts.values())).scores[self.score.split]
        others = (*getattr(self.kind, "metrics", ()), *SMOOTH_METRICS)
        return tuple(dict.fromkeys((self.score.metric, *(name for name in others if name in scored))))

    def pairs(self) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """The split, the number in the split, and the question, for each question of the scored splits."""
        for split in self.splits:
            for number, question in enumerate(self.questions[split]):
                yield split, number, question


def load_answers(folder: Path, key: ScoreKey) -> SavedAnswers:
    """The questions and answers of the finished score in a directory.

    Raises BadInput if the directory has none: scores of earlier versions lack them for some tasks, and a score has none
    if all trials of the pretrained model failed.
    """
    files = {name: folder / name for name in (PREDICTIONS, QUESTIONS)}
    if missing := [name for name, file in files.items() if not file.is_file()]:
        raise BadInput(f"{folder}: has no {missing[0]}, because an earlier version wrote it; {AGAIN}")
    causes = read_object(folder / MARK, AGAIN, causes=dict)["causes"]
    stored, questions = read_json(files[PREDICTIONS], AGAIN), read_json(files[QUESTIONS], AGAIN)
    with of_kind(files[PREDICTIONS], AGAIN):
        trials = {name: by_split for name, by_split in stored.items() if name.startswith("pretrained")}
        for by_split in trials.values():
            for split, predictions in by_split.items():
                if len(predictions) != len(questions[split]):
                    raise ValueError(f"{len(predictions)} predictions of {len(questions[split])} questions")
    if not trials:
        raise BadInput(f"{folder}: has no answers of the pretrained model; {AGAIN}")
    names = [name.removeprefix("pretrained, ") for name in trials]
    kind, values = _kind_of(folder, causes), list(trials.values())
    return SavedAnswers(folder, load_score(folder), key, causes, kind, questions, values, names)


def _kind_of(folder: Path, causes: Mapping[str, Any]) -> Any:
    if isinstance(causes["task"], str):
        return None
    with of_kind(folder / MARK, AGAIN):
        return restore_kind(Kinds, causes["task"]["task"])


def identify(question: Mapping[str, Any]) -> str:
    """The identity of a question, whatever file it is in: its texts and its answer; its place if no text is stored."""
    return json.dumps([question["texts"], question["gold"]] if "texts" in question else question["place"])


def with_metric(kind: Any, metric: str) -> Any:
    """The kind with one metric only, to save time; unchanged if its key `metrics` does not name the metric.

    A metric that is always reported, as the margin, may depend on the named ones.
    """
    has_key = any(field.name == "metrics" for field in fields(kind))
    return replace(kind, metrics=(metric,)) if has_key and metric in kind.metrics else kind


@dataclass(frozen=True)
class ScoredAnswers:
    """Questions and the answers of one trial, in the form for the scores of a kind of task."""

    kind: Any
    metric: str
    items: Sequence[TaskItem]
    answers: Sequence[Any]

    def score(self, numbers: Sequence[int]) -> float:
        """The metric on the questions with these numbers."""
        items, answers = [self.items[n] for n in numbers], [self.answers[n] for n in numbers]
        if self.kind is None:
            values = [_value(self.metric, item, answer) for item, answer in zip(items, answers, strict=True)]
            return sum(values) / len(values)
        return float(self.kind.scores(items, answers)[self.metric])


def _value(metric: str, item: TaskItem, answer: Any) -> float:
    """The value of one question of a task of held-out documents."""
    if isinstance(answer, Mapping):
        return float(answer["correct"] if metric == "accuracy" else answer[metric])
    return float(answer == item.gold)


def restore_items(answers: SavedAnswers, questions: Sequence[Mapping[str, Any]]) -> list[TaskItem]:
    """The items of stored questions. Raises BadInput if they lack their texts."""
    with of_kind(
        answers.folder / QUESTIONS, "repeat the `sesame eval` command with its --task-data-dir to store texts"
    ):
        return [restore_item(answers.kind, question) for question in questions]


def restore_answers(answers: SavedAnswers, kind: Any, predictions: Sequence[Any]) -> list[Any]:
    """The answers of stored predictions, for the metrics of `kind`. Raises BadInput if they lack a value."""
    with of_kind(answers.folder / PREDICTIONS, AGAIN):
        return [restore_answer(kind, prediction) for prediction in predictions]
