"""Shared parts of tasks with generated answers: prompts, generation settings, and trimming of generated texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from preprocessing.errors import BadInput
from preprocessing.spec import require, spec
from preprocessing.text import sentences
from training.files import describe_faults
from training.likelihood import FewShotExample, shots, too_few
from training.tasks.labeled_task import TaskItem, TaskKind

if TYPE_CHECKING:
    from training.generation import GenerationLimits, Method

Encode = Callable[[str], Sequence[int]]
"""Maps a text to token IDs without special tokens."""


@dataclass(frozen=True)
class TaskPrompt:
    """A prompt: an instruction and examples, then the question. If it is truncated, `tail` is kept."""

    before: tuple[str, ...]
    body: str
    tail: str = ""

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(self.before) + self.body + self.tail


@spec
class GenerationSettings:
    """How a net writes answers: prompt, lengths, method, and how it is fine-tuned to write.

    With one beam it takes the best token each time, or, where `top_k` is above 0 or `top_p` below 1, draws tokens.
    """

    instruction: str = ""  # before all else (GPT-3 2.4)
    zero_shot: bool = (
        False  # no fine-tuning, though there is a split `train`; nor is there any with examples in prompts
    )
    num_fewshot: int = 0  # examples before a question, drawn from the split `train` for each question
    fewshot_delimiter: str = "\n"  # behind the instruction and behind each example
    target_delimiter: str = " "  # between a question and its answer, in one text of a decoder
    max_source_length: int = (
        512  # most tokens of a question; 0: as many as the net reads. Its end is cut, but for the tail
    )
    max_new_tokens: int = 64  # most tokens of an answer, its end among them
    min_new_tokens: int = 0
    until: str = ""  # a text that ends an answer, in none of it
    max_sentences: int = 0  # how many sentences of what was written count, from its beginning; 0: all
    num_beams: int = 1
    length_penalty: float = 1.0  # exponent of the length that the log-probability of a beam is divided by
    no_repeat_ngram_size: int = 0  # no n-gram of this size twice in an answer; 0: any
    force_eos: bool = False  # the last of max_new_tokens is the one that ends a text (BART)
    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0
    seed: int = 0  # of examples and draws
    label_smoothing: float = 0.0  # of targets while it is fine-tuned: this share of each is spread over all tokens
    target_mask_prob: float = (
        0.7  # share of target tokens that are masked while an encoder is fine-tuned to write (UniLM)
    )
    decoder: Literal["pretrained", "random"] = (
        "pretrained"  # random: an encoder gets a decoder with random weights on top of it
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
        require(
            self.num_beams == 1 or not self.is_sampling,
            "num_beams",
            self.num_beams,
            "1 if tokens are sampled (top_k above 0 or top_p below 1)",
        )
        require(0 < self.top_p <= 1, "top_p", self.top_p, "a number above 0 and up to 1")
        require(self.temperature > 0, "temperature", self.temperature, "a number above 0")
        require(
            0 <= self.label_smoothing < 1,
            "label_smoothing",
            self.label_smoothing,
            "a fraction from 0 up to (not including) 1",
        )
        require(
            0 < self.target_mask_prob <= 1, "target_mask_prob", self.target_mask_prob, "a fraction above 0, at most 1"
        )

    @property
    def tunes(self) -> bool:
        """Whether the model is fine-tuned on `train` first, if this split exists."""
        return not (self.zero_shot or self.num_fewshot)

    @property
    def is_sampling(self) -> bool:
        """Whether tokens are sampled."""
        return self.top_k > 0 or self.top_p < 1

    def method(self) -> "Method":
        """The decoding method."""
        from training.generation import BeamSearch, GreedyDecoding, SampledDecoding

        if self.num_beams > 1:
            return BeamSearch(num_beams=self.num_beams, length_penalty=self.length_penalty)
        drawn = SampledDecoding(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return drawn if self.is_sampling else GreedyDecoding()

    def limits(self, ends: Sequence[int], barred: Sequence[int]) -> "GenerationLimits":
        """The generation limits; `ends` are end tokens, and `barred` tokens are never generated."""
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

    def trim(self, text: str) -> str:
        """Trim a generated text: stop at `until`, keep at most `max_sentences` sentences, and strip blanks.

        >>> GenerationSettings(until="\\n", max_sentences=2).trim(" One. Two! Three.\\nQ: four")
        'One. Two!'
        """
        text = text.partition(self.until)[0] if self.until else text
        text = "".join(sentences(text.strip())[: self.max_sentences]) if self.max_sentences else text
        return text.strip()


class GenerationTask(TaskKind, Protocol):
    """A kind of task whose answer is generated text."""

    @property
    def generation(self) -> GenerationSettings:
        """The generation settings."""

    def question(self, item: TaskItem) -> TaskPrompt:
        """The prompt of an item, without examples."""

    def target(self, item: TaskItem) -> str:
        """The target text of an item. Raises BadInput if it has no answer."""

    def predictions(self, items: Sequence[TaskItem], texts: Sequence[str]) -> list[Any]:
        """Convert generated texts to predictions, in the form for `scores` and for leaderboard files."""

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> dict[str, float]:
        """The value of each metric as a fraction, over the items with a gold answer."""

    def majority(self, items: Sequence[TaskItem]) -> list[Any]:
        """The most frequent gold answer as the prediction for each item; [] if there is none."""

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Any]) -> list[str]:
        """Notes on the metrics and on items that could not be scored, one line each."""


def build_prompts(task: GenerationTask, items: Sequence[TaskItem], train: Sequence[TaskItem]) -> list[TaskPrompt]:
    """Return the prompt of each item, with the instruction and examples from `train`.

    The examples depend on the seed, `train` and the question only. Raises BadInput if `train` has too few examples.
    """
    how, pool = task.generation, _pool(task, train)
    first = (how.instruction + how.fewshot_delimiter,) if how.instruction else ()
    prompts = []
    for item in items:
        question = task.question(item)
        try:
            examples = shots(pool, how.num_fewshot, how.seed, question.text)
        except ValueError as error:
            raise BadInput(f"{item.place}: {error}") from None
        before = (*first, *(example.text + how.fewshot_delimiter for example in examples))
        prompts.append(TaskPrompt(before, question.body, question.tail))
    return prompts


def _pool(task: GenerationTask, train: Sequence[TaskItem]) -> list[FewShotExample]:
    """The few-shot examples to draw from: items with an answer."""
    known = [item for item in train if item.gold is not None] if task.generation.num_fewshot else []
    return [
        FewShotExample(task.question(item).text, task.generation.target_delimiter + task.target(item)) for item in known
    ]


def select_askable(
    task: GenerationTask, items: Sequence[TaskItem], train: Sequence[TaskItem]
) -> tuple[list[TaskItem], list[str]]:
    """Return the items for which `train` has enough other examples, and a note on the rest.

    Raises BadInput if there are no such items.
    """
    questions = [task.question(item).text for item in items] if task.generation.num_fewshot else []
    why = too_few(_pool(task, train), task.generation.num_fewshot, questions)
    if not why:
        return list(items), []
    reasons = [f"{items[number].place}: {reason}" for number, reason in why.items()]
    if len(why) == len(items):
        raise BadInput(reasons[0])
    kept = [item for number, item in enumerate(items) if number not in why]
    return kept, [
        f"{len(why):,} of {len(items):,} items are left out, and do not count in the scores: {describe_faults(reasons)}"
    ]


def ids_of(question: TaskPrompt, encode: Encode, room: int) -> tuple[list[int], str]:
    """Return at most `room` token IDs of a prompt, and what was left out ("" if nothing).

    Examples are dropped from the start. Then the question is truncated at its end, but the tail is kept.

    >>> ids_of(TaskPrompt(("ab",), "cdef", "!"), lambda text: [ord(char) for char in text], 4)
    ([99, 100, 101, 33], 'truncated')
    """
    for first in range(len(question.before) + 1):
        ids = list(encode("".join(question.before[first:]) + question.body + question.tail))
        if len(ids) <= room:
            return ids, "fewer examples" if first else ""
    tail = list(encode(question.tail)) if question.tail else []
    return [*list(encode(question.body))[: max(room - len(tail), 0)], *tail][-room:], "truncated"
