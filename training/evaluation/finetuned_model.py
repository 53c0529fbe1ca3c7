"""A fine-tuned model with its task: written as a directory of `transformers`, loaded, and scored without training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab, of_folder
from training.evaluation.eval_result import EvalResult
from training.evaluation.scoring import add_predictions, encode_items
from training.evaluation.tasks import Classification, LabeledTask, TaskItem
from training.finetuning import (
    AnswerSpan,
    Features,
    OptionChoice,
    RowLabel,
    RowValue,
    Target,
    TaskModel,
    TokenTag,
    outputs,
)
from training.formats import TaskWeights, describe_task_export, task_from_transformers, task_to_transformers
from training.model_spec import ModelSpec
from training.specs import EngineSettings

_ANY_TEXT: Final = Classification(text="text", label="label", labels=("0", "1"))
EXPORTED_FEATURES: Final = ("none", "last")  # features of a frozen model that classes of transformers have too


@dataclass(frozen=True)
class FinetunedModel:
    """The weights of a fine-tuned model with its task head, and the tokenizer that its sequences are built with."""

    task: TaskWeights
    vocab: Vocab

    def save(self, folder: Path, length: int = 0) -> str:
        """Write a directory of transformers; return its class. Raises BadInput if no class computes the same.

        `length`: tokens to which its tokenizer truncates sequences; 0: the limit of the model.
        """
        return task_to_transformers(self.task, self.vocab, folder, length=length)

    @classmethod
    def load(cls, folder: Path) -> "FinetunedModel":
        """Load a directory with a task head, of Sesame or `save_pretrained`. Raises BadInput if it is not supported."""
        return cls(task_from_transformers(folder), of_folder(folder))

    def build(self) -> TaskModel:
        """The model with its weights, in evaluation mode."""
        task = self.task
        (target,) = [make_target(task.kind, len(task.labels))]
        model = TaskModel(task.spec.model, [target], task.spec.vocab_size, seed=0).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(task.weights[name])
        return model


def make_target(kind: str, classes: int) -> Target:
    """The fine-tuning target of a kind of head.

    >>> make_target("row_label", 2).kind
    'row_label'
    """
    alone = {one().kind: one for one in (RowValue, AnswerSpan, OptionChoice)}
    return alone[kind]() if kind in alone else {"row_label": RowLabel, "token_tag": TokenTag}[kind](classes=classes)


def check_savable(
    spec: ModelSpec, pad: int | None, task: LabeledTask, features: Features = "none", added: bool = False
) -> str:
    """The class of transformers for a model that is fine-tuned on a task. Raises BadInput if there is none."""
    if features not in EXPORTED_FEATURES:
        raise BadInput(
            f"--save: no class of transformers has a head on {features} of a frozen model; use --frozen-features last, "
            "or leave --save out"
        )
    if added:
        raise BadInput(
            "--save: no class of transformers adds the states of both orders of a pair (sum_orders); use another grid, "
            "or leave --save out"
        )
    target, *others = task.targets()
    if others:
        names = ", ".join(other.kind for other in others)
        raise BadInput(f"--save: no class of transformers has a second head ({names}); use another grid")
    return describe_task_export(spec, pad, target.kind)


def names_of_labels(task: LabeledTask) -> tuple[str, ...]:
    """The names of the classes of a task; for a regression, the name of its number; () for answers and choices."""
    kind = task.targets()[0].kind
    if kind in ("row_label", "token_tag"):
        return tuple(getattr(task, "labels"))  # noqa: B009
    return (str(getattr(task, "label")),) if kind == "row_value" else ()  # noqa: B009


def score_finetuned(
    model: FinetunedModel,
    task: LabeledTask,
    items: Mapping[str, Sequence[TaskItem]],
    *,
    length: int,
    machine: EngineSettings | None = None,
) -> EvalResult:
    """Predict on each split with a fine-tuned model, in float32, without training.

    Sequences have at most `length` tokens. The labels of the task must be those of the model (`fit_labels`).
    """
    machine = machine or EngineSettings()
    length = min(length, model.task.spec.model.longest)
    encoded = {split: encode_items(task, items[split], model.vocab, length) for split in items if split != "train"}
    net = model.build().to(machine.device)
    return add_predictions(EvalResult({}, {}), net, task, items, encoded, machine)[0]


def read_outputs(model: FinetunedModel, texts: Sequence[tuple[str, ...]], length: int) -> Tensor:
    """The outputs of the head for texts or pairs: logits [N, C] of classes, or numbers [N], float32 on the CPU.

    Sequences have at most `length` tokens; 0: as many as the model reads. Raises BadInput for the head of another kind
    of task.
    """
    kind = model.task.kind
    if kind not in ("row_label", "row_value"):
        raise BadInput(
            f"predict: its head is for {kind}, not for a text; use a classifier, or a pipeline of transformers"
        )
    items = [TaskItem(f"text {number}", each) for number, each in enumerate(texts, 1)]
    longest = model.task.spec.model.longest
    # only the texts count for the encoding, not the labels
    encoded = encode_items(_ANY_TEXT, items, model.vocab, min(length or longest, longest))
    found: list[Tensor] = [torch.empty(0)] * len(items)
    for numbers, heads in outputs(model.build(), encoded.examples, torch.device("cpu")):
        for number, one in zip(numbers, heads[kind].float(), strict=True):
            found[number] = one
    return torch.stack(found) if found else torch.empty(0)


def fit_labels(task: Any, kind: str, labels: Sequence[str], folder: Path) -> tuple[Any, str]:
    """The task with its labels in the order of the model's labels, and a note ("" if nothing is unusual).

    Labels match by name, if possible without case. If the model or the task only numbers them (LABEL_0, or "0"), they
    match by number. Raises BadInput if the model has another kind of head, or if labels of the task are missing.
    """
    target, *others = task.targets()
    if others or target.kind != kind:
        raise BadInput(
            f"invalid task: got {task.kind}, with the head {target.kind}, expected a task for the head {kind} of "
            f"{folder}; use another task"
        )
    if kind not in ("row_label", "token_tag"):
        return task, ""
    for form in (str, str.casefold):
        ours, theirs = {form(name): name for name in task.labels}, [form(name) for name in labels]
        if len(ours) == len(task.labels) and len(set(theirs)) == len(theirs) and set(ours) <= set(theirs):
            ordered = tuple(ours.get(name, label) for name, label in zip(theirs, labels, strict=True))
            return _with_order(task, ordered), ""
    if len(labels) == len(task.labels) and (_are_numbers(task.labels) or _are_numbers(labels)):
        pairs = ", ".join(f"{name} is {label}" for name, label in zip(labels, task.labels, strict=True))
        return task, f"labels match by number: {pairs}"
    raise BadInput(
        f"invalid labels of {folder / 'config.json'}: got {', '.join(labels)}, expected {', '.join(task.labels)} as in "
        "the task; use a model or a task with the same labels"
    )


def _are_numbers(labels: Sequence[str]) -> bool:
    """Whether labels are their own numbers.

    >>> _are_numbers(["0", "1"]), _are_numbers(["LABEL_0", "LABEL_1"]), _are_numbers(["1", "2"])
    (True, True, False)
    """
    return [label.upper().removeprefix("LABEL_") for label in labels] == [str(number) for number in range(len(labels))]


def _with_order(task: Any, labels: tuple[str, ...]) -> Any:
    """The task with these labels; the positive label of F1, by default the second of two, stays the same."""
    if labels == task.labels:
        return task
    keys = {each.name for each in fields(task)}
    positive = {}
    if "positive_label" in keys and not task.positive_label and len(task.labels) == 2:
        positive["positive_label"] = task.labels[1]
    return replace(task, labels=labels, **positive)
