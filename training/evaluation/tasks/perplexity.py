"""Perplexity of texts per token, word and byte, without fine-tuning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, Self

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.evaluation.files import Records
from training.evaluation.likelihood import (
    LikelihoodModel,
    Perplexity,
    PerplexityText,
    Request,
    Windowing,
    detokenize,
    total,
)
from training.evaluation.tasks.labeled_task import TaskItem, Way, texts_of
from training.evaluation.tasks.split import each_row

METRICS: Final[Mapping[str, Callable[[Perplexity], float]]] = {
    "token_perplexity": attrgetter("by_token"),
    "word_perplexity": attrgetter("by_word"),
    "byte_perplexity": attrgetter("by_byte"),
    "bits_per_byte": attrgetter("bits_by_byte"),
    "bits_per_character": attrgetter("bits_by_byte"),  # for enwik8 and text8, whose characters are bytes
}
_LONG_WORD: Final = 40  # bytes per word; higher means that the language has no blanks between words
_CHARACTERS: Final = 200  # maximum characters of an example


@spec
class PerplexityTask:
    """Perplexity of running text: WikiText, PTB, enwik8, text8, lm1b (GPT-2 3.1, Transformer-XL 4.1).

    Each record is a separate text. It is read in windows of `window` tokens. Each window predicts `stride` new tokens.
    With `carry_memory`, windows do not overlap, and each uses the memory of the previous windows. Words and bytes are
    counted in the text as written in the file, whatever the model reads, so detokenization cannot improve a score.
    """

    kind: Literal["perplexity"] = "perplexity"
    way: ClassVar[Way] = "scored"
    left_to_right: ClassVar[bool] = True
    numerics: ClassVar[int] = 1
    answer_key: ClassVar[str] = ""
    text: str = key(default="text", doc="Column of the text.")
    detokenize: Literal["nothing", "wikitext"] = key(
        default="nothing", doc="Detokenization to apply before the model reads the text."
    )
    line_ends: bool = key(default=False, doc="Whether line ends are predicted as words: <eos> of PTB and WikiText.")
    # If the trained length is unknown, 0 means the number of positions of the model, at most 1,024.
    window: int = key(default=0, doc="Window size in tokens; 0: the trained sequence length.")
    stride: int = key(default=0, doc="New tokens per window; 0: all, so that windows do not overlap.")
    carry_memory: bool = key(default=False, doc="Whether memory carries over between windows (Transformer-XL, XLNet).")
    metrics: tuple[str, ...] = key(
        default=("word_perplexity", "token_perplexity", "byte_perplexity", "bits_per_byte"),
        choices=METRICS,
        doc="Metrics to report; the first selects hyperparameters.",
    )

    def __post_init__(self) -> None:
        for name in ("window", "stride"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0 tokens")
        require(not (self.carry_memory and self.stride), "stride", self.stride, "0 with carry_memory")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def within(self, rows: int) -> Self:
        """Return the task with windows of `rows` tokens, unless it sets a window or a longer stride."""
        return self if self.window or rows < self.stride else replace(self, window=rows)

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the text as in the file, without an answer."""
        column = columns.get("text", self.text)
        return each_row(records, lambda record, place: TaskItem(place, texts_of(record, place, [column]), True))

    def answers(
        self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel
    ) -> list[Perplexity]:
        return reader.perplexities(self.texts_of(items), Windowing(self.window, self.stride, self.carry_memory))

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[Perplexity]) -> list[dict[str, Any]]:
        """For each text, -log p in nats, and the counts that it is divided by."""
        return [{"nats": one.nats, "tokens": one.tokens, "words": one.words, "bytes": one.bytes} for one in answers]

    def restore_answer(self, prediction: Mapping[str, Any]) -> Perplexity:
        """The inverse of `predictions`; windows and counts of unknown tokens are lost."""
        return Perplexity(**prediction, window=0, stride=0)

    def scores(self, items: Sequence[TaskItem], answers: Sequence[Perplexity]) -> dict[str, float]:
        """The metrics over all texts together, the counts, and the windows."""
        whole = total(answers)
        values = {name: METRICS[name](whole) for name in self.metrics}
        counts = {"tokens": whole.tokens, "unknown": whole.unknown, "words": whole.words, "bytes": whole.bytes}
        read = {"window": whole.window, "stride": whole.stride, "memory": whole.memory}
        return values | {name: float(count) for name, count in (counts | read).items()}

    def notes(self, items: Sequence[TaskItem], answers: Sequence[Perplexity], reader: LikelihoodModel) -> list[str]:
        whole = total(answers)
        words = ", line ends counted as words" if self.line_ends and not whole.ends_left_out else ""
        undone = "" if self.detokenize == "nothing" else "; words and bytes are counted before detokenization"
        return [
            f"log p, from left to right: {whole.describe()}{words}{undone}",
            *_describe_lost(whole, reader),
            *self._of_words(whole),
            *blank(items),
        ]

    def _of_words(self, whole: Perplexity) -> list[str]:
        """A note if word perplexity is meaningless, because the language has no blanks between words."""
        if "word_perplexity" not in self.metrics or whole.bytes < _LONG_WORD * max(1, whole.words):
            return []
        size = f"{whole.bytes / max(1, whole.words):,.0f} bytes per word: the language seems to have no blanks between"
        return [f"{size} words, so word_perplexity is meaningless; set metrics: [bits_per_byte, token_perplexity]"]

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The start of the first text that is not blank."""
        begin = next((text for item in items if (text := self.text_of(item).text[:_CHARACTERS]).strip()), "")
        return reader.format_request(Request("", begin)) if begin else ""

    def texts_of(self, items: Sequence[TaskItem]) -> list[PerplexityText]:
        """Return the texts of the items. Raises BadInput if all are blank."""
        if not items:
            raise BadInput("no text to predict; give a file with text")
        texts = [self.text_of(item) for item in items]
        if not any(each.text.strip() for each in texts):
            raise BadInput(f"{items[0].place}: all texts are blank; give a file with text")
        return texts

    def text_of(self, item: TaskItem) -> PerplexityText:
        """The text of an item for the model, with the original text for counts of words and bytes."""
        (text,) = item.texts
        return PerplexityText(detokenize(text) if self.detokenize == "wikitext" else text, text, self.line_ends)


def blank(items: Sequence[TaskItem]) -> list[str]:
    """A note on blank texts: their number, and the place of the first; empty if there are none.

    >>> blank([TaskItem("a.txt:1", ("so",)), TaskItem("a.txt:2", (" ",))])
    ['1 of 2 texts are blank (first: a.txt:2) and have no words to predict']
    """
    places = [item.place for item in items if not item.texts[0].strip()]
    count = f"{len(places):,} of {len(items):,} texts are blank"
    return [f"{count} (first: {places[0]}) and have no words to predict"] if places else []


def _describe_lost(whole: Perplexity, reader: LikelihoodModel) -> list[str]:
    """Notes on characters of the text that the vocabulary does not keep."""
    notes = list[str]()
    if whole.ends_left_out:
        notes.append(
            f"the vocabulary has no token for {whole.ends_left_out:,} line ends: they are not predicted, and "
            "count as bytes, not as words"
        )
    if reader.vocab.normalize("A") == reader.vocab.normalize("a"):
        notes.append("the vocabulary is lowercase: capital letters are not predicted, but count in words and bytes")
    return notes
