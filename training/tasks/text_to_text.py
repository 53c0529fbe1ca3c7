"""Labelled tasks as text to text (T5, arXiv:1910.10683, 2.4 and appendix D): a text is read, its label written."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, require, spec
from training.files import Records
from training.tasks.choose import Choose
from training.tasks.classify import METRICS, Classify
from training.tasks.labelled import Item, Way
from training.tasks.regress import Regress
from training.tasks.span import Answer, Span
from training.tasks.writing import Question, Writing

NO_LABEL: Final = -1  # the number of what is no label: always wrong
STEP: Final = 0.2  # numbers are rounded to a multiple of it, so that there are 21 targets from 0 to 5


@spec
class TextToText:
    """A task whose question is a text with the names of its parts, and whose answer is a word.

    "sst2 sentence: it confirms ..." -> "positive"; "stsb sentence1: ... sentence2: ..." -> "3.2"; of a span the first
    answer; of options "choice1". What is none of the labels counts as wrong, what is no number as one below the least.
    """

    kind: Literal["as_text"] = "as_text"
    of: Annotated[Classify | Regress | Choose | Span, BY_KIND]
    name: str = ""  # before the question
    fields: tuple[str, ...] = ()  # names of the texts; (): those that are usual
    words: Mapping[str, str] = field(default_factory=dict)  # what is written for a label of the file
    writing: Writing = Writing(max_new=16)

    way: ClassVar[Way] = "written"

    def __post_init__(self) -> None:
        labels = self.of.labels if isinstance(self.of, Classify) else ()
        for label in self.words:
            require(label in labels, "words", label, f"labels of the task: {' or '.join(labels)}")
        written = [self._word(label) for label in labels]
        require(len(set(written)) == len(written), "words", written, "another word for each label")

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.of.metrics

    def items(self, records: Records, columns: Mapping[str, str]) -> list[Item]:
        return self.of.items(records, columns)

    def question(self, item: Item) -> Question:
        texts = [*item.texts[:2], *item.texts[2]] if isinstance(self.of, Choose) else list(item.texts)
        names = self.fields or _names(self.of, len(texts))
        if len(names) != len(texts):
            raise BadInput(f"text_to_text: fields are {', '.join(names)}; as many as the {len(texts)} texts are needed")
        parts = [f"{name}: {text.strip()}" for name, text in zip(names, texts, strict=True) if text]
        return Question((), " ".join([self.name, *parts] if self.name else parts))

    def target(self, item: Item) -> str:
        if item.gold is None:
            raise BadInput(f"{item.place}: has no answer to learn from")
        if isinstance(self.of, Classify):
            return self._word(self.of.labels[item.gold])
        if isinstance(self.of, Regress):
            return f"{round(item.gold / STEP) * STEP:.1f}"
        if isinstance(self.of, Choose):
            return f"choice{item.gold + 1}"
        _, answers, _ = item.gold
        return answers[0] if answers else "unanswerable"

    def predictions(self, items: Sequence[Item], texts: Sequence[str]) -> list[Any]:
        """The label, the number or the words of each text, "" for what is no label."""
        return [self._said(self.writing.kept(text)) for text in texts]

    def _said(self, text: str) -> Any:
        if isinstance(self.of, Classify):
            label = next((label for label in self.of.labels if _same(self._word(label), text)), "")
            return self.of.merge.get(label, label)
        if isinstance(self.of, Regress):
            return _number(text, self.of.least - 1)
        if isinstance(self.of, Choose):
            return next((label for n, label in enumerate(self.of.labels) if _same(f"choice{n + 1}", text)), "")
        return "" if _same(text, "unanswerable") else text

    def scores(self, items: Sequence[Item], predictions: Sequence[Any]) -> dict[str, float]:
        if isinstance(self.of, Classify):
            return _class_scores(self.of, items, predictions)
        if isinstance(self.of, Choose):
            labelled = [(item, label) for item, label in zip(items, predictions, strict=True) if item.gold is not None]
            wrong = {0: self.of.labels[1]}  # a label that is not the right one
            said = [label or wrong.get(item.gold, self.of.labels[0]) for item, label in labelled]
            return self.of.scores([item for item, _ in labelled], said)
        if isinstance(self.of, Span):
            return self.of.scores(items, [Answer(text, 0.0) for text in predictions])
        return self.of.scores(items, predictions)

    def notes(self, items: Sequence[Item], predictions: Sequence[Any]) -> list[str]:
        """How many texts are none of the labels."""
        other = sum(label == "" for label in predictions) if isinstance(self.of, Classify | Choose) else 0
        return [f"{other} of {len(predictions)} texts are none of the labels"] if other else []

    def _word(self, label: str) -> str:
        return self.words.get(label, label)


def as_text(of: Classify | Regress | Choose | Span, name: str, writing: Writing | None = None) -> TextToText:
    """The text-to-text form of a task, with the names that are usual for its parts.

    >>> as_text(Classify(text="a", label="b", labels=("0", "1")), "cola").question(Item("x:1", ("So it is .",))).text
    'cola sentence: So it is .'
    """
    made = TextToText(of=of, name=name)
    long = 64 if isinstance(of, Span) else made.writing.max_new
    return replace(made, writing=writing or replace(made.writing, max_new=long))


def _names(of: Classify | Regress | Choose | Span, texts: int) -> tuple[str, ...]:
    if isinstance(of, Choose):
        return ("context", "question", *(f"choice{number + 1}" for number in range(texts - 2)))
    if isinstance(of, Span):
        return ("question", "context")
    return ("sentence",) if texts == 1 else ("sentence1", "sentence2")


def _same(one: str, other: str) -> bool:
    """Whether two words are equal but for case and blanks, which a vocabulary may not keep.

    >>> _same("not_entailment", "Not _ entailment")
    True
    """
    return "".join(one.split()).lower() == "".join(other.split()).lower()


def _number(text: str, otherwise: float) -> float:
    try:
        found = float("".join(text.split()))
    except ValueError:
        return otherwise
    return found if np.isfinite(found) else otherwise


def _class_scores(of: Classify, items: Sequence[Item], predictions: Sequence[str]) -> dict[str, float]:
    """The metrics of a classification in which some answers are no label."""
    names = list(dict.fromkeys(of.merge.get(label, label) for label in of.labels))
    number = {name: at for at, name in enumerate(names)}
    gold = [of.merge.get(of.labels[item.gold], of.labels[item.gold]) for item in items if item.gold is not None]
    said = [label for item, label in zip(items, predictions, strict=True) if item.gold is not None]
    gold_N, said_N = (np.array([number.get(each, NO_LABEL) for each in labels], np.int64) for labels in (gold, said))
    if not len(gold_N):
        return {}
    return {name: _share(name, gold_N, said_N) for name in of.metrics}


def _share(name: str, gold_N: np.ndarray, said_N: np.ndarray) -> float:
    """A metric; F1 of two classes asks for one class against all else."""
    return (
        METRICS[name]((gold_N == 1).astype(int), (said_N == 1).astype(int))
        if name == "f1"
        else METRICS[name](gold_N, said_N)
    )
