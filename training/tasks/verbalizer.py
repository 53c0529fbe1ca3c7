"""A labelled task in words (T5, arXiv:1910.10683, appendix D): what its texts are called, what an answer looks like."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from training.tasks.labeled_task import LabeledTask, TaskItem


class Verbalizer(LabeledTask, Protocol):
    """A labelled task whose question and answer can be written as text.

    Tag and Rank are none: the paper has no form for a label of each word, nor for rows that compete.
    """

    most_written: ClassVar[int]
    """Tokens of an answer, where nothing else is said."""

    @property
    def renamed(self) -> tuple[str, ...]:
        """Answers that other words may stand for."""

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        """The usual name and the text of each part of a question."""

    def written(self, gold: Any) -> str:
        """A right answer in words."""

    def read(self, text: str) -> Any:
        """The prediction that a text stands for, as `scores` takes it; "" where it is none."""


def sentences(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The parts of a task of one text or a pair."""
    names = ("sentence",) if len(texts) == 1 else ("sentence1", "sentence2")
    return list(zip(names, texts, strict=True))


def same(one: str, other: str) -> bool:
    """Whether two words are equal but for case and blanks, which a vocabulary may not keep.

    >>> same("not_entailment", "Not _ entailment")
    True
    """
    return "".join(one.split()).lower() == "".join(other.split()).lower()


def number_of(text: str, otherwise: float) -> float:
    """The number that a text is.

    >>> number_of("3 . 2", 0.0), number_of("much", -1.0), number_of("nan", -1.0)
    (3.2, -1.0, -1.0)
    """
    try:
        found = float("".join(text.split()))
    except ValueError:
        return otherwise
    return found if math.isfinite(found) else otherwise
