"""The effective context length of a model: perplexity at several context lengths, without fine-tuning."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from preprocessing.spec import key, require, spec
from training.evaluation.files import Records
from training.evaluation.likelihood import LikelihoodModel, Perplexity, Windowing, total
from training.evaluation.tasks.labeled_task import TaskItem, Way
from training.evaluation.tasks.perplexity import PerplexityTask, blank

Lengths = Sequence[Perplexity]
"""The perplexities of one text, one per context length."""


@spec
class ContextLength:
    """Perplexity by context length, and the effective context length.

    The effective length is the longest length whose perplexity is better than that of the previous length by more than
    a fraction `gain` (arXiv:1901.02860, 4.4). A window has twice the context length and predicts its second half. So
    the context of each token is between one and two times that length. Memory is not used.
    """

    kind: Literal["context_length"] = "context_length"
    way: ClassVar[Way] = "scored"
    left_to_right: ClassVar[bool] = True
    numerics: ClassVar[int] = 0
    answer_key: ClassVar[str] = ""
    text: str = key(default="text", doc="Column of the text.")
    detokenize: Literal["nothing", "wikitext"] = key(
        default="nothing", doc="Detokenization to apply before the model reads the text."
    )
    lengths: tuple[int, ...] = key(default=(8, 16, 32, 64), doc="Context lengths in tokens, in increasing order.")
    gain: float = key(default=0.01, doc="Minimum relative improvement of perplexity for a longer context to count.")

    metrics: ClassVar[tuple[str, ...]] = ("effective_length",)

    def __post_init__(self) -> None:
        grow = list(self.lengths) == sorted(set(self.lengths)) and len(self.lengths) >= 2 and self.lengths[0] >= 1
        require(grow, "lengths", list(self.lengths), "two or more numbers of tokens, each larger than the one before")
        require(0 < self.gain < 1, "gain", self.gain, "a fraction between 0 and 1")

    def within(self, rows: int) -> Self:
        return self

    @property
    def _read(self) -> PerplexityTask:
        return PerplexityTask(text=self.text, detokenize=self.detokenize)

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the text as in the file, without an answer."""
        return self._read.items(records, columns)

    def answers(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> list[Lengths]:
        by_length = [
            reader.perplexities(self._read.texts_of(items), Windowing(2 * length, length)) for length in self.lengths
        ]
        return list(zip(*by_length, strict=True))

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[Lengths]) -> list[dict[str, Any]]:
        """For each text, -log p in nats per context length."""
        return [
            {str(length): one.nats for length, one in zip(self.lengths, each, strict=True)} | {"tokens": each[0].tokens}
            for each in answers
        ]

    def restore_answer(self, prediction: Mapping[str, Any]) -> Lengths:
        """The inverse of `predictions`; words, bytes and counts of unknown tokens are lost."""
        tokens = prediction["tokens"]
        return [Perplexity(prediction[str(n)], tokens, 0, 0, 2 * n, n) for n in self.lengths]

    def scores(self, items: Sequence[TaskItem], answers: Sequence[Lengths]) -> dict[str, float]:
        """The effective length, and the token perplexity at each length."""
        by_length = [total(column).by_token for column in zip(*answers, strict=True)]
        used = [
            length
            for length, before, here in zip(self.lengths[1:], by_length, by_length[1:], strict=False)
            if here < (1 - self.gain) * before
        ]
        named = {f"perplexity_{n}": value for n, value in zip(self.lengths, by_length, strict=True)}
        return {"effective_length": float(max(used, default=self.lengths[0]))} | named

    def notes(self, items: Sequence[TaskItem], answers: Sequence[Lengths], reader: LikelihoodModel) -> list[str]:
        longest = (
            "; the effective length is the longest one tested"
            if self.scores((), answers)["effective_length"] == self.lengths[-1]
            else ""
        )
        whole = total([each[0] for each in answers])
        unknown = f"; {whole.unknown:,} of {whole.tokens:,} tokens are unknown" if whole.unknown else ""
        return [
            "the context of each token is between one and two times the given length; "
            f"a length counts if it improves perplexity by more than {100 * self.gain:g}%{longest}{unknown}",
            *blank(items),
        ]

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The start of the first text."""
        return self._read.example(items, train, reader)
