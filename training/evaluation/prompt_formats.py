"""How models of each kind read a question and generate an answer: training sequences and prompts.

Seq2SeqPrompt   an encoder-decoder (T5, BART), or an encoder with a decoder added on top
DecoderPrompt   a decoder: question and answer are one text, and only the answer is learned
EncoderPrompt   an encoder: question and answer are one sequence; a token of the answer attends to the tokens on
                its left (UniLM)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol, overload

import numpy as np

from preprocessing.errors import BadInput, with_article
from preprocessing.objectives import MaskedLM
from preprocessing.rng import key
from preprocessing.schema import IGNORE, Row
from preprocessing.tokenization import Vocab
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.generation import MaskSlot, Prompt
from training.evaluation.tasks import GenerationSettings
from training.finetuning import Example, MaskedTargetTokens, Target, TargetTokens, Tuning, with_decoder
from training.losses import LogitsFor, Loss, has_token_bias, has_transform, plain_loss
from training.specs import Architecture, Encoder, EncoderDecoder

LEAST_ROOM = 4  # minimum room for a question, in tokens


class PromptFormat(Protocol):
    """How a model reads questions and generates answers."""

    @property
    def trunk(self) -> Architecture:
        """The architecture that generates: the model's own, or one with an added decoder."""

    @property
    def loss(self) -> Loss:
        """The loss whose head predicts tokens."""

    @property
    def blank(self) -> MaskSlot | None:
        """How an encoder generates; None for models with a decoder."""

    @property
    def target(self) -> Target:
        """The fine-tuning target."""

    @property
    def room(self) -> int:
        """Maximum number of tokens of a question."""

    def answer_ids(self, text: str) -> tuple[list[int], str]:
        """The tokens of an answer, with its end token; and "cut" if it was truncated, else ""."""

    def row(self, question: Sequence[int], answer: Sequence[int], rng: np.random.Generator) -> Row:
        """A training sequence."""

    def prompt(self, question: Sequence[int]) -> Prompt:
        """The prompt to continue from."""


@dataclass(frozen=True)
class Seq2SeqPrompt:
    """An encoder reads the question; a decoder generates the answer after its start token.

    With `plain`, sources have no [CLS] and the decoder starts with [PAD] (T5, PEGASUS). Otherwise it starts with the
    token that ends a sequence (BART, MASS), as in pretraining.
    """

    trunk: Architecture
    loss: Loss
    vocab: Vocab
    how: GenerationSettings
    plain: bool
    blank: MaskSlot | None = None

    @property
    def target(self) -> Target:
        return TargetTokens(bias=has_token_bias(self.loss, self.trunk), smoothing=self.how.label_smoothing)

    @property
    def room(self) -> int:
        return _room(self.trunk.longest - len(self._source([])), self.how)

    @property
    def start(self) -> int:
        """The ID of the token that the decoder starts with."""
        id = self.vocab.pad if self.plain else self.vocab.sep
        if id is None:
            raise BadInput(
                "the vocabulary has no special token for the start of a decoder; use a tokenizer with [PAD] and [SEP]"
            )
        return id

    def answer_ids(self, text: str) -> tuple[list[int], str]:
        return _cut_at_end(self.vocab.encode(text), self.vocab, min(self.how.max_new_tokens, self.trunk.longest))

    def row(self, question: Sequence[int], answer: Sequence[int], rng: np.random.Generator) -> Row:
        row = _row([self.start, *answer[:-1]], answer)
        return row | {"source_input_ids": np.array(self._source(question), np.int32)}

    def prompt(self, question: Sequence[int]) -> Prompt:
        return Prompt(np.array([self.start]), np.array(self._source(question), np.int64))

    def _source(self, question: Sequence[int]) -> list[int]:
        around = _around(self.vocab, question)
        return around[1:] if self.plain and around[0] == self.vocab.cls else around


@dataclass(frozen=True)
class DecoderPrompt:
    """A decoder reads the question and continues it; the end-of-text token comes first, if the vocabulary has one."""

    trunk: Architecture
    loss: Loss
    vocab: Vocab
    how: GenerationSettings
    blank: MaskSlot | None = None

    @property
    def target(self) -> Target:
        if self.loss.logits_for != "causal":
            raise BadInput(
                f"this {self.trunk.kind} cannot be fine-tuned to generate; give a decoder, or an encoder-decoder"
            )
        return TargetTokens(bias=has_token_bias(self.loss, self.trunk), smoothing=self.how.label_smoothing)

    @property
    def room(self) -> int:
        return _room(self.trunk.longest - self.how.max_new_tokens - 1, self.how)

    def answer_ids(self, text: str) -> tuple[list[int], str]:
        return _cut_at_end(self.vocab.encode(self.how.target_delimiter + text), self.vocab, self.how.max_new_tokens)

    def row(self, question: Sequence[int], answer: Sequence[int], rng: np.random.Generator) -> Row:
        first = self._first(question)
        return _row([*first, *answer[:-1]], [*[IGNORE] * (len(first) - 1), *answer])

    def prompt(self, question: Sequence[int]) -> Prompt:
        return Prompt(np.array(self._first(question), np.int64))

    def _first(self, question: Sequence[int]) -> list[int]:
        return [*([] if self.vocab.sep is None else [self.vocab.sep]), *question]


@dataclass(frozen=True)
class EncoderPrompt:
    """An encoder reads [CLS] question [SEP] answer [SEP]. Some tokens of the answer are masked and learned."""

    trunk: Architecture
    loss: Loss
    vocab: Vocab
    how: GenerationSettings
    blank: MaskSlot

    @property
    def target(self) -> Target:
        return MaskedTargetTokens(transform=has_transform(self.loss, self.trunk), smoothing=self.how.label_smoothing)

    @property
    def room(self) -> int:
        return _room(self.trunk.longest - self.how.max_new_tokens - len(_around(self.vocab, [])), self.how)

    def answer_ids(self, text: str) -> tuple[list[int], str]:
        return _cut_at_end(self.vocab.encode(text), self.vocab, self.how.max_new_tokens)

    def row(self, question: Sequence[int], answer: Sequence[int], rng: np.random.Generator) -> Row:
        read = _around(self.vocab, question)
        ids_S, place_S = np.array([*read, *answer], np.int32), np.arange(len(read) + len(answer), dtype=np.int32)
        written_S = place_S >= len(read)
        hit_S = written_S & (rng.random(len(ids_S)) < self.how.target_mask_prob)
        if not hit_S.any():  # a sequence needs at least one target
            hit_S[len(read) + int(rng.integers(len(answer)))] = True
        first, second = self.blank.segments
        row = {"input_ids": ids_S, "special_tokens_mask": ~hit_S, "hits": np.cumsum(hit_S) * hit_S}
        rank_S = np.where(written_S, place_S, 0).astype(np.int32)
        masked = MaskedLM()(row, self.vocab, rng)
        segments_S = np.where(written_S, second, first).astype(np.int8)
        return {
            "input_ids": masked["input_ids"],
            "labels": masked["labels"],
            "token_type_ids": segments_S,
            "rank": rank_S,
            "reach": rank_S,
        }

    def prompt(self, question: Sequence[int]) -> Prompt:
        return Prompt(np.array(_around(self.vocab, question), np.int64))


def prompt_format_of(net: EvaluatedModel, how: GenerationSettings) -> PromptFormat:
    """The prompt format of a model. Raises BadInput if it cannot generate, like a generator with a discriminator."""
    trunk, vocab = net.spec.model, net.vocab
    if how.decoder == "random":
        return Seq2SeqPrompt(with_decoder(trunk), plain_loss("causal"), vocab, how, plain=False)
    if isinstance(trunk, EncoderDecoder):
        loss = _loss_for("causal", net.spec.losses) or plain_loss("causal")
        return Seq2SeqPrompt(trunk, replace(loss, weight=1.0), vocab, how, plain=trunk.begins_with_padding)
    if trunk.writes == "causal":
        loss = _loss_for("masked", net.spec.losses) or _loss_for("causal", net.spec.losses) or plain_loss("causal")
        return DecoderPrompt(trunk, replace(loss, weight=1.0), vocab, how)
    if not isinstance(trunk, Encoder) or not trunk.writes or vocab.mask is None:
        raise BadInput(
            f"{with_article(trunk.kind)} cannot generate text; give a decoder, an encoder or an encoder-decoder"
        )
    loss = _loss_for("masked", net.spec.losses) or plain_loss("masked")
    segments = (
        (4, 5) if trunk.type_vocab_size >= 6 else (0, 1) if trunk.type_vocab_size >= 2 else (0, 0)
    )  # UniLM has six segment embeddings
    return EncoderPrompt(
        replace(trunk, attention_mask="per_sequence"), loss, vocab, how, MaskSlot(vocab.mask, segments)
    )


class PromptDataset(Sequence[Example]):
    """Training sequences, built on access: `copies` of each pair, with different masks."""

    def __init__(
        self, form: PromptFormat, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], copies: int, seed: int
    ) -> None:
        self._form, self._pairs, self._copies, self._key = form, pairs, copies, key(seed, "masking")

    def __len__(self) -> int:
        return len(self._pairs) * self._copies

    @overload
    def __getitem__(self, at: int) -> Example: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Example]: ...
    def __getitem__(self, at: int | slice) -> Example | Sequence[Example]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        if not 0 <= at < len(self):
            raise IndexError(at)
        copy, number = divmod(int(at), len(self._pairs))
        return [self._form.row(*self._pairs[number], self._key.at(copy, number))]

    def __iter__(self) -> Iterator[Example]:
        return (self[number] for number in range(len(self)))


def copies_of(form: PromptFormat, examples: int, tuning: Tuning) -> tuple[int, Tuning]:
    """The number of copies of each example, and the tuning adapted to them.

    If the format draws masks, there is one copy per epoch, so that no two epochs use the same masks.
    """
    if form.blank is None:
        return 1, tuning
    epochs = tuning.max_steps * tuning.batch_size / examples if tuning.max_steps else tuning.epochs
    copies = max(1, ceil(epochs))
    return copies, replace(tuning, epochs=tuning.epochs / copies)


def _loss_for(logits_for: LogitsFor, losses: Sequence[Loss]) -> Loss | None:
    return next((loss for loss in losses if loss.logits_for == logits_for), None)


def _room(room: int, how: GenerationSettings) -> int:
    if room < LEAST_ROOM:
        raise BadInput(
            f"invalid generation.max_new_tokens: got {how.max_new_tokens}, which leaves no room for a question; "
            "use a smaller value"
        )
    return min(room, how.max_source_length or room)


def _around(vocab: Vocab, ids: Sequence[int]) -> list[int]:
    """A text with the special tokens that an encoder expects before and after it."""
    return [*vocab.around.before, *ids, *vocab.around.behind]


def _cut_at_end(ids: Sequence[int], vocab: Vocab, most: int) -> tuple[list[int], str]:
    end = [] if vocab.sep is None else [vocab.sep]
    room = most - len(end)
    return [*ids[:room], *end], "cut" if len(ids) > room else ""


def _row(ids: Sequence[int], labels: Sequence[int]) -> Row:
    return {
        "input_ids": np.array(ids, np.int32),
        "token_type_ids": np.zeros(len(ids), np.int8),
        "labels": np.array(labels, np.int32),
    }
