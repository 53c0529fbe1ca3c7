"""Few-shot prompts: solved examples before the question (GPT-3, 2.1), the same whatever else is asked."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from preprocessing.rng import key


class Example(NamedTuple):
    """A question and its answer, as they stand in a prompt."""

    question: str
    answer: str  # with the blank before it

    @property
    def text(self) -> str:
        return self.question + self.answer


def shots(pool: Sequence[Example], count: int, seed: int, question: str) -> list[Example]:
    """`count` examples for a question, all different, in random order; the question itself is never among them.

    They depend on the seed, the pool and the question, not on its place or on what was asked before. ValueError where
    the pool is too small.
    """
    others = [example for example in dict.fromkeys(pool) if example.question != question]
    if len(others) < count:
        raise ValueError(f"{count} examples are asked for, and {len(others)} differ from the question; ask for fewer")
    digest = hashlib.sha256(question.encode()).digest()
    rng = key(seed, "task").at(0, int.from_bytes(digest[:8], "big"))
    return [others[number] for number in rng.choice(len(others), count, replace=False)]


def prompt(examples: Sequence[Example], between: str = "\n\n") -> str:
    """The text that stands before a question: each example, and `between` behind it.

    >>> prompt([Example("2+2=", " 4"), Example("1+2=", " 3")], "; ") + "3+3="
    '2+2= 4; 1+2= 3; 3+3='
    """
    return "".join(example.text + between for example in examples)
