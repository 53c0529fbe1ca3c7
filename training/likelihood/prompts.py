"""Few-shot prompts: solved examples before the question (GPT-3, 2.1), the same whatever else is asked."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from preprocessing.rng import key


class FewShotExample(NamedTuple):
    """A question and its answer, as they stand in a prompt."""

    question: str
    answer: str  # with the blank before it

    @property
    def text(self) -> str:
        return self.question + self.answer


def shots(pool: Sequence[FewShotExample], count: int, seed: int, question: str) -> list[FewShotExample]:
    """`count` examples for a question, all different, in random order; the question itself is never among them.

    They depend on the seed, the pool and the question, not on its place or on what was asked before. ValueError where
    the pool is too small.
    """
    others = [example for example in dict.fromkeys(pool) if example.question != question]
    if len(others) < count:
        raise ValueError(_too_few(count, len(others)))
    digest = hashlib.sha256(question.encode()).digest()
    rng = key(seed, "task").at(0, int.from_bytes(digest[:8], "big"))
    return [others[number] for number in rng.choice(len(others), count, replace=False)]


def too_few(pool: Sequence[FewShotExample], count: int, questions: Sequence[str]) -> dict[int, str]:
    """Numbers of the questions for which the pool has too few examples, as it has the question itself, and how few.

    >>> too_few([FewShotExample("2+2=", " 4"), FewShotExample("1+2=", " 3")], 2, ["3+3=", "2+2="])
    {1: '2 examples are asked for, and 1 differ from the question; ask for fewer'}
    """
    distinct = dict.fromkeys(pool)
    same = Counter(example.question for example in distinct)
    left = {number: len(distinct) - same[question] for number, question in enumerate(questions)}
    return {number: _too_few(count, others) for number, others in left.items() if others < count}


def _too_few(count: int, others: int) -> str:
    return f"{count} examples are asked for, and {others} differ from the question; ask for fewer"


def prompt(examples: Sequence[FewShotExample], between: str = "\n\n") -> str:
    """The text that stands before a question: each example, and `between` behind it.

    >>> prompt([FewShotExample("2+2=", " 4"), FewShotExample("1+2=", " 3")], "; ") + "3+3="
    '2+2= 4; 1+2= 3; 3+3='
    """
    return "".join(example.text + between for example in examples)
