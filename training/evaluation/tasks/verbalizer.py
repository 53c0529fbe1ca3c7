"""A labeled task as text (T5, arXiv:1910.10683, appendix D): the names of its texts, and the form of an answer."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from training.evaluation.tasks.labeled_task import LabeledTask, TaskItem


class Verbalizer(LabeledTask, Protocol):
    """A labeled task whose question and answer can be written as text.

    Token classification and ranking are not: the paper has no text form for them.
    """

    most_written: ClassVar[int]
    """Default maximum tokens of an answer."""

    @property
    def renamed(self) -> tuple[str, ...]:
        """Answers that may be replaced by other words."""

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        """The default name and the text of each part of a question."""

    def answer_text(self, gold: Any) -> str:
        """A gold answer as text."""

    def parse_answer(self, text: str) -> Any:
        """Parse a generated text into a prediction for `scores`; "" if it is not an answer."""


def sentences(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The parts of a question with one text or a pair."""
    names = ("sentence",) if len(texts) == 1 else ("sentence1", "sentence2")
    return list(zip(names, texts, strict=True))


def same(one: str, other: str) -> bool:
    """Whether two words are equal, except case and blanks, which a vocabulary may not keep.

    >>> same("not_entailment", "Not _ entailment")
    True
    """
    return "".join(one.split()).lower() == "".join(other.split()).lower()


def number_of(text: str, otherwise: float) -> float:
    """Parse a number, or return `otherwise`.

    >>> number_of("3 . 2", 0.0), number_of("much", -1.0), number_of("nan", -1.0)
    (3.2, -1.0, -1.0)
    """
    try:
        value = float("".join(text.split()))
    except ValueError:
        return otherwise
    return value if math.isfinite(value) else otherwise
