"""How well does a net predict a text? Perplexity by token, word and byte; nothing is fine-tuned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, Self

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.files import Records
from training.likelihood import LikelihoodModel, Perplexity, PerplexityText, Request, Windowing, detokenize, total
from training.tasks.labeled_task import TaskItem, Way, texts_of
from training.tasks.split import each_row

METRICS: Final[Mapping[str, Callable[[Perplexity], float]]] = {
    "token_perplexity": attrgetter("by_token"),
    "word_perplexity": attrgetter("by_word"),
    "byte_perplexity": attrgetter("by_byte"),
    "bits_per_byte": attrgetter("bits_by_byte"),
    "bits_per_character": attrgetter("bits_by_byte"),  # of enwik8 and text8, whose characters are bytes
}
_LONG_WORD: Final = 40  # bytes, on average, which no language with blanks has
_CHARACTERS: Final = 200  # of a text that an example shows


@spec
class PerplexityTask:
    """Perplexity of running text: WikiText, PTB, enwik8, text8, lm1b (GPT-2 3.1, Transformer-XL 4.1).

    Each record is a separate text. It is read in windows of `window` tokens, each of which predicts `stride` new
    tokens, or, with `carry_memory`, uses the memory of the previous windows. Words and bytes are counted in the text as
    written in the file, whatever the model reads, so detokenization cannot improve a score.
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
    # If the trained length is unknown, 0 is the number of positions, at most 1,024.
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
            require(getattr(self, name) >= 0, name, getattr(self, name), "a number of tokens from 0 up")
        require(not (self.carry_memory and self.stride), "stride", self.stride, "0 where a memory is carried along")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def within(self, rows: int) -> Self:
        """The task in windows of `rows` tokens, where it has no window and strides are not longer."""
        return self if self.window or rows < self.stride else replace(self, window=rows)

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Items with the text as the file has it; there is no answer beside it."""
        column = columns.get("text", self.text)
        return each_row(records, lambda record, place: TaskItem(place, texts_of(record, place, [column]), True))

    def answers(
        self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel
    ) -> list[Perplexity]:
        return reader.perplexities(self.texts_of(items), Windowing(self.window, self.stride, self.carry_memory))

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[Perplexity]) -> list[dict[str, Any]]:
        """For each text its -log p in nats and what that is divided by."""
        return [{"nats": one.nats, "tokens": one.tokens, "words": one.words, "bytes": one.bytes} for one in answers]

    def scores(self, items: Sequence[TaskItem], answers: Sequence[Perplexity]) -> dict[str, float]:
        """Each of the metrics over all texts together, the denominators, and how they were read."""
        whole = total(answers)
        found = {name: METRICS[name](whole) for name in self.metrics}
        counts = {"tokens": whole.tokens, "unknown": whole.unknown, "words": whole.words, "bytes": whole.bytes}
        read = {"window": whole.window, "stride": whole.stride, "memory": whole.memory}
        return found | {name: float(count) for name, count in (counts | read).items()}

    def notes(self, items: Sequence[TaskItem], answers: Sequence[Perplexity], reader: LikelihoodModel) -> list[str]:
        whole = total(answers)
        words = ", ends of lines among the words" if self.line_ends and not whole.ends_left_out else ""
        undone = "" if self.detokenize == "nothing" else "; words and bytes as the file has them, before detokenising"
        return [
            f"log p, from left to right: {whole.describe()}{words}{undone}",
            *_lost(whole, reader),
            *self._of_words(whole),
            *blank(items),
        ]

    def _of_words(self, whole: Perplexity) -> list[str]:
        """That words say nothing where a language has no blanks between them."""
        if "word_perplexity" not in self.metrics or whole.bytes < _LONG_WORD * max(1, whole.words):
            return []
        said = f"the texts have {whole.bytes / max(1, whole.words):,.0f} bytes a word, as where no blanks stand between"
        return [f"{said} words: word_perplexity says nothing; give metrics: [bits_per_byte, token_perplexity]"]

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The beginning of the first text that is not blank."""
        begin = next((text for item in items if (text := self.text_of(item).text[:_CHARACTERS]).strip()), "")
        return reader.shown(Request("", begin)) if begin else ""

    def texts_of(self, items: Sequence[TaskItem]) -> list[PerplexityText]:
        """What the net reads of the items; BadInput where there is nothing in any of them."""
        if not items:
            raise BadInput("there is no text to predict")
        found = [self.text_of(item) for item in items]
        if not any(each.text.strip() for each in found):
            raise BadInput(f"{items[0].place}: this text and all others are blank: there is nothing to predict")
        return found

    def text_of(self, item: TaskItem) -> PerplexityText:
        """What the net reads of an item, and what words and bytes are counted in."""
        (given,) = item.texts
        return PerplexityText(detokenize(given) if self.detokenize == "wikitext" else given, given, self.line_ends)


def blank(items: Sequence[TaskItem]) -> list[str]:
    """What there is to say of blank texts, as a corpus may have: how many, and where the first one is.

    >>> blank([TaskItem("a.txt:1", ("so",)), TaskItem("a.txt:2", (" ",))])
    ['1 of 2 texts are blank, the first one a.txt:2: they have no word to predict']
    """
    places = [item.place for item in items if not item.texts[0].strip()]
    count = f"{len(places):,} of {len(items):,} texts are blank"
    return [f"{count}, the first one {places[0]}: they have no word to predict"] if places else []


def _lost(whole: Perplexity, reader: LikelihoodModel) -> list[str]:
    """What of the text is not predicted, as the vocabulary does not keep it."""
    found = list[str]()
    if whole.ends_left_out:
        found.append(
            f"the vocabulary has no token for {whole.ends_left_out:,} ends of lines: they are not predicted, and "
            "count as bytes, not as words"
        )
    if reader.vocab.normalised("A") == reader.vocab.normalised("a"):
        found.append("the vocabulary lower-cases: capitals are not predicted, though words and bytes have them")
    return found
