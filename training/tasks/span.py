"""Which stretch of a text answers a question?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from preprocessing.spec import require, spec
from preprocessing.vocab import Template, Templated, Vocab, windows
from training import metrics as measures
from training.files import Records
from training.tasks.labelled import Encoded, Item, Outputs, Way, texts_of
from training.tasks.split import value_of

if TYPE_CHECKING:
    from training.finetuning import Target

METRICS: Final = ("f1", "exact")
_BEST: Final = 20  # first and last tokens that are looked at, and as many pairs of them
_NOTHING: Final = "empty"  # what the reference answers where no pair of tokens is possible


class Answer(NamedTuple):
    """The best stretch of a text, and by how much no answer is better (in logits; 2.0)."""

    text: str
    no_answer: float


@spec
class Span:
    """A stretch of a text that answers a question: SQuAD 1.1 and 2.0, XQuAD, CMRC (BERT 4.2, 4.3).

    Long texts are read in windows, one every `step` tokens; a window without the answer is trained to point at its
    first token. A token counts in the window where it has most text around it.
    """

    kind: Literal["span"] = "span"
    way: ClassVar[Way] = "tuned"
    version: Literal[1, 2] = 1  # of SQuAD: 2 has questions without an answer
    step: int = 128  # tokens from the beginning of a window to that of the next one (`doc_stride`)
    most_question: int = 64  # tokens
    most_answer: int = 30  # tokens
    threshold: float = 0.0  # no answer is given where it is better by more than this (version 2)
    metrics: tuple[str, ...] = ("f1", "exact")

    def __post_init__(self) -> None:
        for name in ("step", "most_question", "most_answer"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "a whole number from 1 up")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[Item]:
        """Items with the texts (question, context), and as gold (id, answers, their first characters)."""
        found = []
        for record, place in zip(records.rows, records.places, strict=True):
            gold = tuple(value_of(record, name, place) for name in ("id", "answers", "starts"))
            found.append(Item(place, texts_of(record, place, ("question", "context")), gold))
        return found

    def encoded(self, items: Sequence[Item], vocab: Vocab, length: int, *, training: bool) -> Encoded:
        template, encoded, lost = Template(vocab), Encoded(), 0
        for number, item in enumerate(items):
            _, answers, starts = item.gold
            if training and answers and starts[0] < 0:
                lost += 1
                continue
            question, context = item.texts
            whole = template.row(question.lstrip(), context)
            if not (whole.text == 1).any():
                lost += 1
                continue
            for window in windows(whole, length, min(self.step, length // 3), self.most_question):
                begin, end = _ends(window, answers[0], starts[0]) if answers and starts[0] >= 0 else (0, 0)
                encoded.examples.append([window.columns() | {"start": np.asarray(begin), "stop": np.asarray(end)}])
                encoded.item_of.append(number)
                encoded.stands_for.append(window)
        if lost:
            encoded.notes.append(
                f"{lost} questions are left out: their answer is not where it is said to stand, or no text"
            )
        return encoded

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import AnswerSpan

        return (AnswerSpan(),)

    def predictions(self, items: Sequence[Item], encoded: Encoded, outputs: Outputs) -> list[Answer]:
        """The answer to each item, "" where none is better by more than the threshold (version 2)."""
        logits = dict[int, Any]()
        for numbers, heads in outputs:
            logits |= dict(zip(numbers, heads["answer_span"].numpy(), strict=True))
        windows_of: dict[int, list[int]] = {}
        for example, item in enumerate(encoded.item_of):
            windows_of.setdefault(item, []).append(example)
        found = [Answer("", 0.0)] * len(items)
        for item, examples in windows_of.items():
            found[item] = self._answer(items[item].texts[1], [(encoded.stands_for[at], logits[at]) for at in examples])
        return found

    def _answer(self, context: str, given: Sequence[tuple[Templated, Any]]) -> Answer:
        """The best pair of tokens of all windows; see the reference's run_squad.py."""
        owner = widest([window for window, _ in given])
        best, text = -np.inf, _NOTHING if self.version == 1 else ""
        none = min(float(logits_S2[0].sum()) for _, logits_S2 in given)
        for number, (window, logits_S2) in enumerate(given):
            size = len(window.ids)
            first, last = (np.argsort(-logits_S2[:size, side], kind="stable")[:_BEST] for side in (0, 1))
            for begin in first.tolist():
                if window.text[begin] != 1 or owner[int(window.token[begin])] != number:
                    continue
                for end in last.tolist():
                    score = float(logits_S2[begin, 0] + logits_S2[end, 1])
                    if score > best and begin <= end < begin + self.most_answer and window.text[end] == 1:
                        best, text = score, context[window.start[begin] : window.stop[end]]
        difference = none - best
        return Answer("" if self.version == 2 and difference > self.threshold else text, difference)

    def scores(self, items: Sequence[Item], predictions: Sequence[Answer]) -> dict[str, float]:
        """F1 and exact match as shares; of version 2 over answerable and other questions too, and with the threshold
        that is best for these very questions."""
        golds = {item.gold[0]: item.gold[1] for item in items}
        texts = {item.gold[0]: answer.text for item, answer in zip(items, predictions, strict=True)}
        found = measures.squad1(golds, texts) if self.version == 1 else measures.squad2(golds, texts)
        return {name: found[name] / 100 for name in self.metrics} | {
            name: value / 100 for name, value in found.items() if name not in METRICS
        }


def widest(given: Sequence[Templated]) -> dict[int, int]:
    """For each token of the second text the window in which it has most text before it and behind it.

    The smaller of the two sides counts, then a hundredth of the window's size; of equal ones the first (run_squad.py).
    """
    best = dict[int, tuple[float, int]]()
    for number, window in enumerate(given):
        token_S = window.token[window.text == 1]
        for place, token in enumerate(token_S.tolist()):
            score = min(place, len(token_S) - 1 - place) + 0.01 * len(token_S)
            if token not in best or score > best[token][0]:
                best[token] = score, number
    return {token: number for token, (_, number) in best.items()}


def _ends(window: Templated, answer: str, start: int) -> tuple[int, int]:
    """First and last token of an answer in a window, (0, 0) where it is not all in it."""
    inside = np.flatnonzero((window.text == 1) & (window.stop > start) & (window.start < start + len(answer)))
    if not len(inside):
        return 0, 0
    first, last = int(inside[0]), int(inside[-1])
    whole = window.start[first] <= start and window.stop[last] >= start + len(answer.rstrip())
    return (first, last) if whole else (0, 0)
