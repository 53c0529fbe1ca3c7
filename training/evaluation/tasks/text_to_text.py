"""Labeled tasks as text-to-text tasks (T5, arXiv:1910.10683, 2.4 and appendix D): the label is generated as text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, key, require, spec
from training.evaluation.files import Records
from training.evaluation.tasks.classification import Classification
from training.evaluation.tasks.extractive_qa import ExtractiveQA
from training.evaluation.tasks.generation_settings import GenerationSettings, TaskPrompt
from training.evaluation.tasks.labeled_task import TaskItem, Way
from training.evaluation.tasks.multiple_choice import MultipleChoice
from training.evaluation.tasks.regression import Regression
from training.evaluation.tasks.verbalizer import Verbalizer, same


@spec
class TextToText:
    """Text-to-text form of another task: the model generates the label as text (T5).

    The question is a text with the names of its parts: "sst2 sentence: it confirms ..." -> "positive"; "stsb sentence1:
    ... sentence2: ..." -> "3.2"; for extractive_qa the first answer; for multiple_choice "choice1". An output other
    than a label is counted as wrong; an output other than a number counts as 1 below the minimum.
    """

    kind: Literal["text_to_text"] = "text_to_text"
    task: Annotated[Classification | Regression | MultipleChoice | ExtractiveQA, BY_KIND] = key(
        doc="Task in its original form."
    )
    name: str = key(default="", doc="Task name before the question; empty: none.")
    fields: tuple[str, ...] = key(default=(), doc="Names of the texts; []: the usual ones of the task type.")
    label_words: Mapping[str, str] = key(default_factory=dict, doc="Text to generate for each label.")
    generation: GenerationSettings = key(
        default=GenerationSettings(max_new_tokens=16), doc="Prompt format, decoding and fine-tuning."
    )

    way: ClassVar[Way] = "written"
    numerics: ClassVar[int] = 2

    def __post_init__(self) -> None:
        labels = self.task.renamed
        for label in self.label_words:
            require(label in labels, "label_words", label, f"labels of the task: {' or '.join(labels) or 'none exist'}")
        written = [self._word(label) for label in labels]
        require(len(set(written)) == len(written), "label_words", written, "a different word for each label")

    @property
    def answer_key(self) -> str:
        return self.task.answer_key

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.task.metrics

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        return self.task.items(records, columns)

    def question(self, item: TaskItem) -> TaskPrompt:
        parts = self.task.parts(item)
        names = self.fields or [name for name, _ in parts]
        if len(names) != len(parts):
            raise BadInput(
                f"text_to_text: invalid fields: got {', '.join(names)}, expected {len(parts)} names, one per text"
            )
        texts = [f"{name}: {text.strip()}" for name, (_, text) in zip(names, parts, strict=True) if text]
        return TaskPrompt((), " ".join([self.name, *texts] if self.name else texts))

    def target(self, item: TaskItem) -> str:
        if item.gold is None:
            raise BadInput(f"{item.place}: no answer for training; give labeled data")
        return self._word(self.task.answer_text(item.gold))

    def predictions(self, items: Sequence[TaskItem], texts: Sequence[str]) -> list[Any]:
        """Parse each text: a label ("" if it is not one), a number, or a `SpanPrediction`."""
        return [self._parse(self.generation.trim(text)) for text in texts]

    def _parse(self, text: str) -> Any:
        for label, word in self.label_words.items():
            if same(word, text):
                return self.task.parse_answer(label)
        return self.task.parse_answer("" if any(same(label, text) for label in self.label_words) else text)

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> dict[str, float]:
        return self.task.scores(items, predictions)

    def majority(self, items: Sequence[TaskItem]) -> list[Any]:
        return self.task.majority(items)

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        """A note on texts that are not labels, and the notes of the task."""
        other = sum(isinstance(prediction, str) and not prediction for prediction in predictions)
        notes = [f"{other} of {len(predictions)} texts are not one of the labels"] if other else []
        return [*notes, *self.task.notes(items, predictions)]

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.labels if isinstance(self.task, Classification) else ()

    def class_counts(self, items: Sequence[TaskItem]) -> Counter[str]:
        return self.task.class_counts(items) if isinstance(self.task, Classification) else Counter()

    def _word(self, label: str) -> str:
        return self.label_words.get(label, label)


def as_text(
    of: Classification | Regression | MultipleChoice | ExtractiveQA,
    name: str,
    writing: GenerationSettings | None = None,
) -> TextToText:
    """Return the text-to-text form of a task, with the default names of its parts.

    >>> task = as_text(Classification(text="a", label="b", labels=("0", "1")), "cola")
    >>> task.question(TaskItem("x:1", ("So it is .",))).text
    'cola sentence: So it is .'
    """
    kind: Verbalizer = of
    return TextToText(task=of, name=name, generation=writing or GenerationSettings(max_new_tokens=kind.most_written))
