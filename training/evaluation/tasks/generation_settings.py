"""Shared parts of tasks with generated answers: prompts, generation settings, and trimming of generated texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.text import sentences
from training.evaluation.files import describe_faults
from training.evaluation.likelihood import FewShotExample, shots, too_few
from training.evaluation.tasks.labeled_task import TaskItem, TaskKind

if TYPE_CHECKING:
    from training.evaluation.generation import GenerationLimits, Method

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
            require(getattr(self, name) >= 0, name, getattr(self, name), "an integer of at least 0")
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "an integer of at least 1")
        require(
            0 <= self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens",
            self.min_new_tokens,
            f"0 to {self.max_new_tokens} (max_new_tokens)",
        )
        require(self.num_beams >= 1, "num_beams", self.num_beams, "an integer of at least 1")
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
            "a fraction of at least 0 and below 1",
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
        from training.evaluation.generation import BeamSearch, GreedyDecoding, SampledDecoding

        if self.num_beams > 1:
            return BeamSearch(num_beams=self.num_beams, length_penalty=self.length_penalty)
        drawn = SampledDecoding(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return drawn if self.is_sampling else GreedyDecoding()

    def limits(self, ends: Sequence[int], barred: Sequence[int]) -> "GenerationLimits":
        """The generation limits; `ends` are end tokens, and `barred` tokens are never generated."""
        from training.evaluation.generation import GenerationLimits

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
