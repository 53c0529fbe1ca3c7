"""Encoder-decoders learn the mini-world: thresholds of reference/family.md D1, and short runs below them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from preprocessing import fragment, sentinel
from preprocessing.choose import Fragment, NoiseSpans
from preprocessing.noise import Noise
from preprocessing.schema import IGNORE, Row
from tests.mini_world import AT, MASK, PAD, SEP, VOCAB_SIZE, World, bigram_cross_entropy, unigram_entropy
from tests.training.batches import unpadded
from tests.training.encoder_decoders import NO_DROPOUT, T5_KNOBS
from tests.training.test_learning import DECODER, Course, examine, learn, next_token_rows
from training.model import Model
from training.spec import EncoderDecoder, NextToken

LOSSES = (NextToken(),)
SENTINELS = 10
T5 = EncoderDecoder(layers=2, width=64, heads=2, **T5_KNOBS, **NO_DROPOUT)
BART = EncoderDecoder(layers=2, width=64, heads=2, max_positions=64, init_std=0.02 * (768 / 64) ** 0.5, **NO_DROPOUT)


@dataclass(frozen=True)
class Specials:
    """What rewriting reads of a vocabulary; the last ids are the sentinels of T5."""

    size: int = VOCAB_SIZE
    pad: int = PAD
    sep: int = SEP
    mask: int = MASK
    sentinels: int = 0
    special_ids: tuple[int, ...] = tuple(range(AT["det"]))


def windows(text: World, count: int, length: int, rng: np.random.Generator) -> list[Row]:
    """Stretches of text without special tokens."""
    starts = rng.integers(len(text.ids_T) - length, size=count)
    return [
        {
            "ids": text.ids_T[start : start + length],
            "special": np.zeros(length, np.bool_),
            "word_starts": text.word_starts_T[start : start + length],
        }
        for start in starts
    ]


def span_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """T5: 15 % of 54 tokens, in spans of 3, each behind a sentinel."""
    vocab, choose = Specials(size=VOCAB_SIZE + SENTINELS, sentinels=SENTINELS), NoiseSpans()
    rows = windows(text, count, 54, rng)
    return [sentinel.Sentinel()(row | {"hits": choose(row, rng)}, vocab, rng) for row in rows]


def infilled_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """BART: 40 tokens, 30 % of their words behind masks."""
    return [Noise(edits=("infill",))(row, Specials(), rng) for row in windows(text, count, 40, rng)]


def hidden_windows(text: World, count: int, rng: np.random.Generator, rate: float) -> list[Row]:
    """Windows of 48 tokens of which a run, a share `rate` of them, is chosen."""
    choose = Fragment(rate=rate)
    return [row | {"hits": choose(row, rng)} for row in windows(text, count, 48, rng)]


def fragment_rows(text: World, count: int, rng: np.random.Generator, rate: float = 0.5) -> list[Row]:
    """MASS: the chosen run is hidden from the encoder and asked of the decoder."""
    return [fragment.Fragment()(row, Specials(), rng) for row in hidden_windows(text, count, rng, rate)]


def left_to_right(rows: list[Row]) -> list[Row]:
    """The same questions for a causal net, but for the first token of a row, which nothing precedes."""
    return [
        {
            "ids": row["ids"][:-1],
            "segments": np.zeros(len(row["ids"]) - 1),
            "labels": np.where(row["hits"] > 0, row["ids"], IGNORE)[1:],
        }
        for row in rows
    ]


@torch.no_grad()
def examine_spans(model: Model, text: World) -> tuple[float, float]:
    """Loss of the text that T5's spans hide, and how often the sentinel is known that comes next: which of them, and
    not where, since nothing says how long a span was."""
    batch = unpadded(span_rows(text, 500, np.random.default_rng(1)))
    logits_MV, target_M = F.linear(model.trunk(batch)[batch["targets_at"]], model.trunk.table), batch["targets"]
    is_sentinel_M = target_M >= VOCAB_SIZE
    is_text_M = (target_M >= AT["det"]) & ~is_sentinel_M
    best_M = VOCAB_SIZE + logits_MV[is_sentinel_M, VOCAB_SIZE:].argmax(-1)
    loss = F.cross_entropy(logits_MV[is_text_M], target_M[is_text_M])
    return float(loss), float((best_M == target_M[is_sentinel_M]).float().mean())


def examine_infilling(model: Model, text: World) -> tuple[float, float]:
    """Loss of a text that is given with noise, and of the same text where its source is nothing but masks."""
    rows = infilled_rows(text, 500, np.random.default_rng(1))
    blind = [row | {"source_ids": np.full_like(row["source_ids"], MASK)} for row in rows]
    return examine(model, rows)["next_token"][0], examine(model, blind)["next_token"][0]


# Short runs.


def test_a_short_run_over_spans_knows_words_and_sentinels(train: World, held_out: World) -> None:
    course = Course(T5, LOSSES, span_rows, steps=100, batch=16, peak=1e-2, vocab_size=VOCAB_SIZE + SENTINELS)
    loss, sentinels = examine_spans(learn(course, train), held_out)
    assert loss < math.log(VOCAB_SIZE) - 0.7
    assert sentinels > 0.8


@pytest.mark.parametrize("sample", [infilled_rows, fragment_rows])
def test_a_short_run_uses_context(
    sample: Callable[[World, int, np.random.Generator], list[Row]], train: World, held_out: World
) -> None:
    course = Course(BART, LOSSES, sample, steps=80, batch=16, peak=5e-3)
    rows = sample(held_out, 200, np.random.default_rng(1))
    assert examine(learn(course, train), rows)["next_token"][0] < unigram_entropy(held_out.ids_T) - 0.5


# Full length: reference/family.md D1.


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("steps", "threshold"), [(900, 4.4), (2400, 3.9)])
def test_spans_are_learnt(steps: int, threshold: float, train: World, held_out: World) -> None:
    course = Course(T5, LOSSES, span_rows, steps=steps, batch=64, peak=3e-3, vocab_size=VOCAB_SIZE + SENTINELS)
    loss, sentinels = examine_spans(learn(course, train), held_out)
    assert loss < threshold
    assert sentinels > 0.99


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_infilled_text_is_restored(train: World, held_out: World) -> None:
    course = Course(BART, LOSSES, infilled_rows, steps=900, batch=64, peak=2e-3)
    loss, blind = examine_infilling(learn(course, train), held_out)
    assert loss < 1.0
    assert blind > 2 * loss


@pytest.fixture(scope="module")
def causal(train: World) -> Model:
    """A left-to-right net of the same size after 1,500 steps."""
    return learn(Course(DECODER, LOSSES, next_token_rows, steps=1500, batch=32, peak=2e-3), train)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_fragments_are_learnt_better_than_by_any_bigram_and_from_their_surroundings(
    train: World, held_out: World
) -> None:
    """One seed gave 2.41, and 2.53 with the source hidden. A causal net of as many questions gets 2.37, so that the
    fragment is not the easier task at this size."""
    model = learn(Course(BART, LOSSES, fragment_rows, steps=1500, batch=32, peak=2e-3), train)
    rows = fragment_rows(held_out, 500, np.random.default_rng(1))
    hidden = [row | {"source_seen": np.zeros_like(row["source_seen"])} for row in rows]
    loss, alone = (examine(model, asked)["next_token"][0] for asked in (rows, hidden))
    assert loss < bigram_cross_entropy(train.ids_T, held_out.ids_T) - 0.4
    assert alone > loss + 0.05


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_fragment_as_long_as_its_row_is_as_hard_as_left_to_right(
    causal: Model, train: World, held_out: World
) -> None:
    """One seed gave 2.45, the causal net, whose norms stand before its layers, 2.27."""
    whole = partial(fragment_rows, rate=1.0)
    model = learn(Course(BART, LOSSES, whole, steps=1500, batch=32, peak=2e-3), train)
    windows = hidden_windows(held_out, 500, np.random.default_rng(1), rate=1.0)
    asked = [row | {"hits": np.minimum(np.arange(48), 1)} for row in windows]  # all but the first token
    found = [fragment.Fragment(mask=1.0, swap=0.0)(row, Specials(), np.random.default_rng(0)) for row in asked]
    wanted = examine(causal, left_to_right(asked))["next_token"][0]
    assert examine(model, found)["next_token"][0] == pytest.approx(wanted, abs=0.25)
