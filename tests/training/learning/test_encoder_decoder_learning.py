"""Encoder-decoders learn the mini-world: thresholds of reference/family.md D1, and short runs with weaker
thresholds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from preprocessing.masking import FragmentMasking, RandomSpans
from preprocessing.objectives import Denoising, GapSentenceGeneration, MaskedLM, SpanCorruption
from preprocessing.objectives import MaskedSeq2Seq as FragmentRewrite
from preprocessing.objectives.denoising import Edit
from preprocessing.schema import IGNORE, Row
from tests.mini_world import AT, MASK, PAD, SEP, VOCAB_SIZE, World, bigram_cross_entropy, unigram_entropy
from tests.training.batches import collate_unpadded
from tests.training.encoder_decoders import NO_DROPOUT, PEGASUS_KNOBS, T5_KNOBS
from tests.training.learning.test_learning import ENCODER, Course, examine, learn, next_token_rows
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.specs import EncoderDecoder, Seq2SeqLearnedPositions

LOSSES = (NextToken(),)
SENTINELS = 10
T5 = EncoderDecoder(num_hidden_layers=2, hidden_size=64, num_attention_heads=2, **T5_KNOBS, **NO_DROPOUT)
BART = EncoderDecoder(
    num_hidden_layers=2,
    hidden_size=64,
    num_attention_heads=2,
    position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=64),
    init_std=0.02 * (768 / 64) ** 0.5,
    **NO_DROPOUT,
)
PEGASUS = EncoderDecoder(
    num_hidden_layers=2,
    hidden_size=64,
    num_attention_heads=2,
    init_std=0.02 * (768 / 64) ** 0.5,
    **PEGASUS_KNOBS,
    **NO_DROPOUT,
)


@dataclass(frozen=True)
class Specials:
    """The attributes of a vocabulary that objectives use; the last IDs are the sentinels of T5."""

    size: int = VOCAB_SIZE
    pad: int = PAD
    sep: int = SEP
    mask: int = MASK
    sentinels: int = 0
    special_ids: tuple[int, ...] = tuple(range(AT["determiner"]))


def windows(text: World, count: int, length: int, rng: np.random.Generator) -> list[Row]:
    """Windows of text without special tokens."""
    starts, first_S = rng.integers(len(text.ids_T) - length, size=count), np.arange(length) == 0
    return [
        {
            "input_ids": text.ids_T[start : start + length],
            "special_tokens_mask": np.zeros(length, np.bool_),
            "word_starts": text.word_starts_T[start : start + length] | first_S,
            "sentence_starts": text.sentence_starts_T[start : start + length] | first_S,
        }
        for start in starts
    ]


def span_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """T5: 15 % of 54 tokens, in spans of 3, each replaced by a sentinel."""
    vocab, masking = Specials(size=VOCAB_SIZE + SENTINELS, sentinels=SENTINELS), RandomSpans()
    rows = windows(text, count, 54, rng)
    return [SpanCorruption()(row | {"hits": masking(row, rng)}, vocab, rng) for row in rows]


def noised_rows(text: World, count: int, rng: np.random.Generator, edit: Edit = "text_infilling") -> list[Row]:
    """BART: 40 tokens with one of its five noise types; infilling hides 30 % of their words."""
    return [Denoising(noise_types=(edit,))(row, Specials(), rng) for row in windows(text, count, 40, rng)]


def gap_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """PEGASUS: six sentences of one document. The model predicts the two that overlap most with the others."""
    bound_M1 = np.append(np.flatnonzero(text.sentence_starts_T), len(text.ids_T))
    document_M = np.repeat(np.arange(len(text.num_tokens_N)), text.num_tokens_N)[bound_M1[:-1]]
    first_N = rng.choice(np.flatnonzero(document_M[:-5] == document_M[5:]), count)
    parts = [slice(*bound_M1[[first, first + 6]]) for first in first_N]
    rows = [{"input_ids": text.ids_T[part], "sentence_starts": text.sentence_starts_T[part]} for part in parts]
    return [
        GapSentenceGeneration()(row | {"special_tokens_mask": np.zeros(len(row["input_ids"]), bool)}, Specials(), rng)
        for row in rows
    ]


def hidden_windows(text: World, count: int, rng: np.random.Generator, rate: float) -> list[Row]:
    """Windows of 48 tokens, of which a contiguous fraction `rate` is chosen."""
    masking = FragmentMasking(rate=rate)
    return [row | {"hits": masking(row, rng)} for row in windows(text, count, 48, rng)]


def fragment_rows(text: World, count: int, rng: np.random.Generator, rate: float = 0.5) -> list[Row]:
    """MASS: the chosen fragment is fully hidden from the encoder, and the decoder predicts it."""
    return [hide(row) for row in hidden_windows(text, count, rng, rate)]


def hide(row: Row) -> Row:
    """The sequence with all chosen tokens masked. None is kept or replaced at random, so that no random numbers are
    needed."""
    return FragmentRewrite(mask_replace_prob=1.0, random_replace_prob=0.0)(row, Specials(), np.random.default_rng(0))


def single_token_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """The targets of MASS with k = 1, as a masked language model predicts them."""
    cloze, segments_S = MaskedLM(mask_replace_prob=1.0, random_replace_prob=0.0), np.zeros(48)
    rows = hidden_windows(text, count, rng, rate=1 / 48)
    return [cloze(row | {"token_type_ids": segments_S}, Specials(), rng) for row in rows]


def left_to_right(rows: list[Row]) -> list[Row]:
    """The same targets for a causal model, without the first token of a sequence, which has no context."""
    return [
        {
            "input_ids": row["input_ids"][:-1],
            "token_type_ids": np.zeros(len(row["input_ids"]) - 1),
            "labels": np.where(row["hits"] > 0, row["input_ids"], IGNORE)[1:],
        }
        for row in rows
    ]


@torch.no_grad()
def examine_spans(model: Model, text: World) -> tuple[float, float]:
    """Loss of the text in T5's spans, and accuracy of the next sentinel. Only its number is tested, not its position,
    because the length of a span is unknown."""
    batch = collate_unpadded(span_rows(text, 500, np.random.default_rng(1)))
    logits_MV, target_M = F.linear(model.trunk(batch)[batch["targets_at"]], model.trunk.table), batch["targets"]
    is_sentinel_M = target_M >= VOCAB_SIZE
    is_text_M = (target_M >= AT["determiner"]) & ~is_sentinel_M
    best_M = VOCAB_SIZE + logits_MV[is_sentinel_M, VOCAB_SIZE:].argmax(-1)
    loss = F.cross_entropy(logits_MV[is_text_M], target_M[is_text_M])
    return float(loss), float((best_M == target_M[is_sentinel_M]).float().mean())


@torch.no_grad()
def examine_verbs(model: Model, rows: list[Row]) -> tuple[float, float]:
    """Loss of the verbs of first gap sentences that begin with a determiner and a name, and its minimum without the
    source. The determiner gives the number of the verb. Only the source gives the topic of the document."""
    batch = collate_unpadded(rows)
    begin_B = torch.tensor([0, *(len(row["labels"]) for row in rows[:-1])]).cumsum(0)
    subject_B = batch["targets"][begin_B + 1]
    begin_N = begin_B[(subject_B >= AT["name"]) & (subject_B < AT["noun"])]
    logits_NV = F.linear(model.trunk(batch)[batch["targets_at"][begin_N + 2]], model.trunk.table)
    number_N, verb_N = batch["targets"][begin_N], batch["targets"][begin_N + 2]
    of_number = [verb_N[number_N == number].numpy() for number in number_N.unique()]
    least = sum(len(verbs) * unigram_entropy(verbs) for verbs in of_number) / len(verb_N)
    return float(F.cross_entropy(logits_NV, verb_N)), least


def examine_infilling(model: Model, text: World) -> tuple[float, float]:
    """Loss of a text whose source is noised, and of the same text whose source is all masks."""
    rows = noised_rows(text, 500, np.random.default_rng(1))
    blind = [row | {"source_input_ids": np.full_like(row["source_input_ids"], MASK)} for row in rows]
    return examine(model, rows)["next_token"][0], examine(model, blind)["next_token"][0]


# Short runs.


def test_a_short_run_on_spans_learns_words_and_sentinels(train: World, held_out: World) -> None:
    course = Course(T5, LOSSES, span_rows, steps=100, batch=16, peak=1e-2, vocab_size=VOCAB_SIZE + SENTINELS)
    loss, sentinels = examine_spans(learn(course, train), held_out)
    assert loss < math.log(VOCAB_SIZE) - 0.7
    assert sentinels > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("trunk", "sample"), [(BART, noised_rows), (BART, fragment_rows), (PEGASUS, gap_rows)])
def test_a_short_run_uses_context(
    trunk: EncoderDecoder,
    sample: Callable[[World, int, np.random.Generator], list[Row]],
    train: World,
    held_out: World,
) -> None:
    course = Course(trunk, LOSSES, sample, steps=80, batch=16, peak=5e-3)
    rows = sample(held_out, 200, np.random.default_rng(1))
    assert examine(learn(course, train), rows)["next_token"][0] < unigram_entropy(held_out.ids_T) - 0.5


# Full length: reference/family.md D1.


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("steps", "threshold"), [(900, 4.4), (1400, 3.9)])
def test_spans_are_learned(steps: int, threshold: float, train: World, held_out: World) -> None:
    """D1 has 3.9 after 2,400 steps, which take more than three minutes; 1,600 steps gave 3.647."""
    course = Course(T5, LOSSES, span_rows, steps=steps, batch=64, peak=3e-3, vocab_size=VOCAB_SIZE + SENTINELS)
    loss, sentinels = examine_spans(learn(course, train), held_out)
    assert loss < threshold
    assert sentinels > 0.99


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_infilling_is_learned(train: World, held_out: World) -> None:
    course = Course(BART, LOSSES, noised_rows, steps=900, batch=64, peak=2e-3)
    loss, blind = examine_infilling(learn(course, train), held_out)
    assert loss < 1.0
    assert blind > 2 * loss


def noise_losses(train: World, held_out: World, seed: int) -> dict[Edit, float]:
    """Loss of a model for each of the five noise types."""
    found = dict[Edit, float]()
    for edit in get_args(Edit):
        course = Course(BART, LOSSES, partial(noised_rows, edit=edit), steps=600, batch=16, peak=3e-3)
        model, rows = learn(course, train, seed), noised_rows(held_out, 500, np.random.default_rng(1), edit)
        found[edit] = examine(model, rows)["next_token"][0]
    return found


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_all_five_noise_types_are_learned(train: World, held_out: World) -> None:
    """Losses of three seeds: masks 1.083, .988, 1.139; infilling 1.217, 1.194, 1.221; deletion 1.278, 1.276, 1.228;
    permutation 1.742, 1.592, 1.594; rotation 1.759, 1.627, 1.658. D1 expected rotation to be the easiest. Within 600
    steps, a text that keeps its position is copied better than one that moves."""
    loss = noise_losses(train, held_out, seed=0)
    assert max(loss.values()) < bigram_cross_entropy(train.ids_T, held_out.ids_T) - 0.8
    kept: tuple[Edit, ...] = ("token_masking", "token_deletion", "text_infilling")
    assert max(loss[edit] for edit in kept) < min(loss["sentence_permutation"], loss["document_rotation"])


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_gap_sentences_follow_the_topic_of_their_source(train: World, held_out: World) -> None:
    """Losses of three seeds: 2.166, 2.146, 2.137 for a verb; 3.674, 3.585, 5.523 with a masked source; 2.112, 2.197,
    2.172 for the whole text. A verb of a known topic has a loss of 2.137 in closed form (Zipf's law over 12 verbs).
    Without the source, the loss is at least 3.389, by counting. This is less than 2.137 + log 4, because the selection
    prefers sentences with shared verbs."""
    model = learn(Course(PEGASUS, LOSSES, gap_rows, steps=800, batch=16, peak=3e-3), train)
    rows = gap_rows(held_out, 2000, np.random.default_rng(1))
    blind = [row | {"source_input_ids": np.full_like(row["source_input_ids"], MASK)} for row in rows]
    (loss, least), (alone, _) = (examine_verbs(model, given) for given in (rows, blind))
    assert loss < least - 1.0
    assert alone > least
    assert examine(model, rows)["next_token"][0] < bigram_cross_entropy(train.ids_T, held_out.ids_T) - 0.7


@pytest.fixture(scope="module")
def causal(train: World) -> Model:
    """A causal model built like BART's decoder, after 1,500 steps of 768 targets, as many as MASS predicts."""
    trunk = replace(ENCODER, attention_mask="causal", type_vocab_size=0)
    return learn(Course(trunk, LOSSES, next_token_rows, steps=1500, batch=16, peak=2e-3), train)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_fragments_use_both_sides_and_are_no_harder_than_causal_prediction(
    causal: Model, train: World, held_out: World
) -> None:
    """Losses of three seeds: 2.360, 2.398, 2.268; with a hidden source 2.473, 2.507, 2.452; the causal model 2.361,
    2.391, 2.422 at the same positions. D1 expected the fragment to be easier; at this size it is as hard, or easier."""
    model = learn(Course(BART, LOSSES, fragment_rows, steps=1500, batch=32, peak=2e-3), train)
    asked = hidden_windows(held_out, 500, np.random.default_rng(1), rate=0.5)
    rows = [hide(row) for row in asked]
    blind = [row | {"source_seen": np.zeros_like(row["source_seen"])} for row in rows]
    loss, alone = (examine(model, given)["next_token"][0] for given in (rows, blind))
    assert loss < bigram_cross_entropy(train.ids_T, held_out.ids_T) - 0.6
    assert alone > loss + 0.07
    assert loss < examine(causal, left_to_right(asked))["next_token"][0] + 0.05


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_fragment_as_long_as_its_sequence_is_as_hard_as_causal_prediction(
    causal: Model, train: World, held_out: World
) -> None:
    """Losses of three seeds: 2.453, 2.414, 2.565; the causal model 2.378, 2.406, 2.434. D1 expected a difference of
    .1."""
    whole = partial(fragment_rows, rate=1.0)
    model = learn(Course(BART, LOSSES, whole, steps=1500, batch=16, peak=2e-3), train)
    windows = hidden_windows(held_out, 500, np.random.default_rng(1), rate=1.0)
    asked = [row | {"hits": np.minimum(np.arange(48), 1)} for row in windows]  # all but the first token
    wanted = examine(causal, left_to_right(asked))["next_token"][0]
    assert wanted < bigram_cross_entropy(train.ids_T, held_out.ids_T) - 0.6
    assert examine(model, [hide(row) for row in asked])["next_token"][0] == pytest.approx(wanted, abs=0.17)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_fragment_of_one_token_is_no_harder_than_a_mask(train: World, held_out: World) -> None:
    """Losses of seed 0 after 1,500 steps: 2.818, and 3.594 of a masked language model with the same targets. Losses of
    seeds 1 and 2 after 800 steps: 3.146 and 3.027, and 4.185 and 4.592. Both models have the same task. But the decoder
    receives the token before the hidden one, which a masked language model must find by its position."""
    encoder, single = replace(ENCODER, type_vocab_size=0), (MaskedTokens(transform=False),)
    masks = Course(encoder, single, single_token_rows, steps=800, batch=64, peak=2e-3)
    fragments = Course(BART, LOSSES, partial(fragment_rows, rate=1 / 48), steps=800, batch=64, peak=2e-3)
    masked, loss = (
        examine(learn(course, train), course.sample(held_out, 2000, np.random.default_rng(1)))[kind][0]
        for course, kind in ((masks, "masked_tokens"), (fragments, "next_token"))
    )
    assert loss < unigram_entropy(held_out.ids_T) - 1.0
    assert loss < masked + 0.1
