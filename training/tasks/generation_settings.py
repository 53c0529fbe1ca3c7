"""What tasks have in common whose answer a net writes: what is asked, the keys of writing, what of a text counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.text import sentences
from training.files import describe_faults
from training.likelihood import FewShotExample, shots, too_few
from training.tasks.labeled_task import TaskItem, TaskKind

if TYPE_CHECKING:
    from training.generation import GenerationLimits, Method

Encode = Callable[[str], Sequence[int]]
"""Ids of a text without special tokens."""


@dataclass(frozen=True)
class TaskPrompt:
    """What a net is asked: examples, or an instruction, then the question. Of a long one `tail` always stays."""

    before: tuple[str, ...]
    body: str
    tail: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.before) + self.body + self.tail


@spec
class GenerationSettings:
    """Generation of answers: prompt, lengths, decoding and fine-tuning.

    With one beam decoding is greedy, or tokens are sampled if `top_k` is above 0 or `top_p` below 1.
    """

    instruction: str = key(default="", doc="Text before all examples and the question (GPT-3 2.4).")
    # Few-shot examples also exclude fine-tuning.
    zero_shot: bool = key(default=False, doc="Whether fine-tuning is skipped although there is a split train.")
    num_fewshot: int = key(default=0, doc="Number of examples before each question, drawn from the split train.")
    fewshot_delimiter: str = key(default="\n", doc="Text after the instruction and after each example.")
    target_delimiter: str = key(default=" ", doc="Text between question and answer, for decoder models.")
    # Longer questions are truncated at their end, before the tail of the prompt.
    max_source_length: int = key(default=512, doc="Maximum question length in tokens; 0: the limit of the model.")
    max_new_tokens: int = key(default=64, doc="Maximum answer length in tokens, end token included.")
    min_new_tokens: int = key(default=0, doc="Minimum answer length in tokens.")
    until: str = key(default="", doc="Text that ends an answer and is not part of it.")
    max_sentences: int = key(default=0, doc="Number of sentences of the output to score, from its start; 0: all.")
    num_beams: int = key(default=1, doc="Beam width; 1: no beam search.")
    length_penalty: float = key(default=1.0, doc="Exponent of the length by which a beam's log-probability is divided.")
    no_repeat_ngram_size: int = key(
        default=0, doc="Size of n-grams that may occur only once in an answer; 0: no restriction."
    )
    force_eos: bool = key(default=False, doc="Whether the last of max_new_tokens is always the end token (BART).")
    top_k: int = key(default=0, doc="Number of most probable tokens to sample from; 0: all.")
    top_p: float = key(default=1.0, doc="Cumulative probability of the most probable tokens to sample from.")
    temperature: float = key(default=1.0, doc="Sampling temperature.")
    seed: int = key(default=0, doc="Seed for examples and sampling.")
    label_smoothing: float = key(
        default=0.0, doc="Label smoothing in fine-tuning: the fraction that is spread over all tokens."
    )
    target_mask_prob: float = key(
        default=0.7, doc="Fraction of target tokens to mask when an encoder is fine-tuned to generate (UniLM)."
    )
    decoder: Literal["pretrained", "random"] = key(
        default="pretrained", doc="Decoder for an encoder model: itself, or an additional one with random weights."
    )

    def __post_init__(self) -> None:
        for name in ("num_fewshot", "max_source_length", "max_sentences", "no_repeat_ngram_size", "top_k"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a whole number from 0 up")
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "a whole number from 1 up")
        require(
            0 <= self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens",
            self.min_new_tokens,
            f"from 0 up to max_new_tokens, {self.max_new_tokens}",
        )
        require(self.num_beams >= 1, "num_beams", self.num_beams, "a whole number from 1 up")
        require(self.num_beams == 1 or not self.draws, "num_beams", self.num_beams, "1 where tokens are drawn")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "a number above 0 and up to 1")
        require(self.temperature > 0, "temperature", self.temperature, "a number above 0")
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "a share, below 1")
        require(0 < self.target_mask_prob <= 1, "target_mask_prob", self.target_mask_prob, "a share above 0")

    @property
    def tunes(self) -> bool:
        """Whether a net is fine-tuned on `train` first, where there is such a split."""
        return not (self.zero_shot or self.num_fewshot)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn."""
        return self.top_k > 0 or self.top_p < 1

    def method(self) -> "Method":
        """How tokens are chosen."""
        from training.generation import BeamSearch, GreedyDecoding, SampledDecoding

        if self.num_beams > 1:
            return BeamSearch(num_beams=self.num_beams, length_penalty=self.length_penalty)
        drawn = SampledDecoding(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return drawn if self.draws else GreedyDecoding()

    def limits(self, ends: Sequence[int], barred: Sequence[int]) -> "GenerationLimits":
        """What may be written, with tokens that end a text and tokens that are in none."""
        from training.generation import GenerationLimits

        return GenerationLimits(
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            ends=tuple(ends),
            barred=tuple(barred),
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            no_repeat_in="new",
            force_eos=self.force_eos and bool(ends),
        )

    def kept(self, text: str) -> str:
        """What of a text that was written counts.

        >>> GenerationSettings(until="\\n", max_sentences=2).kept(" One. Two! Three.\\nQ: four")
        'One. Two!'
        """
        text = text.partition(self.until)[0] if self.until else text
        text = "".join(sentences(text.strip())[: self.max_sentences]) if self.max_sentences else text
        return text.strip()


class GenerationTask(TaskKind, Protocol):
    """A kind whose answer is a text that a net writes."""

    @property
    def generation(self) -> GenerationSettings:
        """How answers are written."""

    def question(self, item: TaskItem) -> TaskPrompt:
        """What a net reads."""

    def target(self, item: TaskItem) -> str:
        """What it is to write; BadInput where the item has no answer."""

    def predictions(self, items: Sequence[TaskItem], texts: Sequence[str]) -> list[Any]:
        """What the texts that were written for the items say, as `scores` and a submission take it."""

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> dict[str, float]:
        """Each of `metrics` as a share, of the items that have an answer."""

    def majority(self, items: Sequence[TaskItem]) -> list[Any]:
        """The most frequent right answer as the prediction of each item; [] where there is none."""

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        """How scores were counted, and what could not be: a line each."""


def build_prompts(task: GenerationTask, items: Sequence[TaskItem], train: Sequence[TaskItem]) -> list[TaskPrompt]:
    """The question of each item, with the instruction and examples from `train` before it.

    Which examples follows from the seed, `train` and the question alone. BadInput where `train` has too few.
    """
    how, pool = task.generation, _pool(task, train)
    first = (how.instruction + how.fewshot_delimiter,) if how.instruction else ()
    found = []
    for item in items:
        question = task.question(item)
        try:
            drawn = shots(pool, how.num_fewshot, how.seed, question.text)
        except ValueError as error:
            raise BadInput(f"{item.place}: {error}") from None
        before = (*first, *(example.text + how.fewshot_delimiter for example in drawn))
        found.append(TaskPrompt(before, question.body, question.tail))
    return found


def _pool(task: GenerationTask, train: Sequence[TaskItem]) -> list[FewShotExample]:
    """What examples are drawn from: the items that have an answer."""
    known = [item for item in train if item.gold is not None] if task.generation.num_fewshot else []
    return [
        FewShotExample(task.question(item).text, task.generation.target_delimiter + task.target(item)) for item in known
    ]


def select_askable(
    task: GenerationTask, items: Sequence[TaskItem], train: Sequence[TaskItem]
) -> tuple[list[TaskItem], list[str]]:
    """The items for which `train` has enough examples, and a note of the others, which are among its examples.

    BadInput where there is none of those.
    """
    questions = [task.question(item).text for item in items] if task.generation.num_fewshot else []
    why = too_few(_pool(task, train), task.generation.num_fewshot, questions)
    if not why:
        return list(items), []
    lacking = [f"{items[number].place}: {reason}" for number, reason in why.items()]
    if len(why) == len(items):
        raise BadInput(lacking[0])
    kept = [item for number, item in enumerate(items) if number not in why]
    return kept, [
        f"{len(why):,} of {len(items):,} items are left out, and count in no score: {describe_faults(lacking)}"
    ]


def ids_of(question: TaskPrompt, encode: Encode, room: int) -> tuple[list[int], str]:
    """The ids of a question, at most `room`, and what had to be left out of it, "" where nothing had.

    The first examples are left out first, then the question loses its end, but for the tail.

    >>> ids_of(TaskPrompt(("ab",), "cdef", "!"), lambda text: [ord(char) for char in text], 4)
    ([99, 100, 101, 33], 'cut')
    """
    for first in range(len(question.before) + 1):
        ids = list(encode("".join(question.before[first:]) + question.body + question.tail))
        if len(ids) <= room:
            return ids, "fewer examples" if first else ""
    tail = list(encode(question.tail)) if question.tail else []
    return [*list(encode(question.body))[: max(room - len(tail), 0)], *tail][-room:], "cut"
