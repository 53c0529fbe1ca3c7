"""Few-shot prompts: solved examples before the question (GPT-3, 2.1). They do not depend on other questions."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from preprocessing.rng import key


class FewShotExample(NamedTuple):
    """A question and its answer, as in a prompt."""

    question: str
    answer: str  # with its leading blank

    @property
    def text(self) -> str:
        return self.question + self.answer


def shots(pool: Sequence[FewShotExample], count: int, seed: int, question: str) -> list[FewShotExample]:
    """Draw `count` different examples for a question, in random order; the question itself is excluded.

    They depend on the seed, the pool and the question only. Raises ValueError if the pool is too small.
    """
    others = [example for example in dict.fromkeys(pool) if example.question != question]
    if len(others) < count:
        raise ValueError(_too_few(count, len(others)))
    digest = hashlib.sha256(question.encode()).digest()
    rng = key(seed, "task").at(0, int.from_bytes(digest[:8], "big"))
    return [others[number] for number in rng.choice(len(others), count, replace=False)]


def too_few(pool: Sequence[FewShotExample], count: int, questions: Sequence[str]) -> dict[int, str]:
    """The indices of questions that have too few examples in the pool, with a message. The question itself does not
    count.

    >>> too_few([FewShotExample("2+2=", " 4"), FewShotExample("1+2=", " 3")], 2, ["3+3=", "2+2="])
    {1: 'too few examples: got 1 that differ from the question, expected 2; lower num_fewshot'}
    """
    distinct = dict.fromkeys(pool)
    repeated = Counter(example.question for example in distinct)
    available = {number: len(distinct) - repeated[question] for number, question in enumerate(questions)}
    return {number: _too_few(count, others) for number, others in available.items() if others < count}


def _too_few(count: int, others: int) -> str:
    return f"too few examples: got {others} that differ from the question, expected {count}; lower num_fewshot"


def prompt(examples: Sequence[FewShotExample], between: str = "\n\n") -> str:
    """The text before a question: each example, followed by `between`.

    >>> prompt([FewShotExample("2+2=", " 4"), FewShotExample("1+2=", " 3")], "; ") + "3+3="
    '2+2= 4; 1+2= 3; 3+3='
    """
    return "".join(example.text + between for example in examples)
