"""Models learn the structure of the mini-world: thresholds of reference/family.md D1, and short runs with weaker ones.

The model is tiny (2 layers, width 64). It is initialized by the rule for small widths: init_std = 0.02 * sqrt(768 /
width). It is evaluated on held-out text. A short run only tests that the model uses context; the full-length runs are
marked slow. Masked tokens are trained for half as many steps as in D1, with three times the learning rate. This gives
better results in half the time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from preprocessing.masking import TokenMasking
from preprocessing.objectives import CausalLM, MaskedLM
from preprocessing.schema import IGNORE, Ints, Row
from tests.mini_world import AT, CLS, MASK, SEP, VOCAB_SIZE, World, bigram_cross_entropy, unigram_entropy
from tests.training.batches import collate_unpadded
from training.losses import Loss, MaskedTokens, NextToken, SentencePair
from training.model import Model, parameter_groups
from training.specs import Architecture, Decoder, Encoder, LearnedPositions, Visibility
from training.specs.stack import NormPosition

TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "init_std": 0.02 * (768 / 64) ** 0.5,
}
ENCODER = Encoder(
    **TINY, position_embedding=LearnedPositions(max_position_embeddings=64), hidden_dropout=0.0, attention_dropout=0.0
)
DECODER = Decoder(
    **TINY, position_embedding=LearnedPositions(max_position_embeddings=64), hidden_dropout=0.0, attention_dropout=0.0
)


@dataclass(frozen=True)
class Specials:
    """The attributes of a vocabulary that objectives use."""

    size: int = VOCAB_SIZE
    mask: int = MASK
    special_ids: tuple[int, ...] = tuple(range(AT["determiner"]))


@dataclass(frozen=True)
class Course:
    """A training setup: the model, its losses and data, and the length of training."""

    trunk: Architecture
    losses: tuple[Loss, ...]
    sample: Callable[[World, int, np.random.Generator], list[Row]]
    steps: int
    batch: int
    peak: float  # learning rate
    vocab_size: int = VOCAB_SIZE


def masked(parts: list[Ints], rng: np.random.Generator) -> Row:
    """[CLS] and each part with its [SEP]; 15 % of the tokens are chosen and replaced 80/10/10."""
    ids_S = np.concatenate([[CLS], *(np.append(part, SEP) for part in parts)])
    segments_S = np.repeat(np.arange(len(parts)), [len(part) + 1 for part in parts])
    row: Row = {
        "input_ids": ids_S,
        "token_type_ids": np.append(0, segments_S),
        "special_tokens_mask": np.isin(ids_S, [CLS, SEP]),
    }
    return MaskedLM()(row | {"hits": TokenMasking()(row, rng)}, Specials(), rng)


def masked_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text with masks."""
    starts = rng.integers(len(text.ids_T) - length, size=count)
    return [masked([text.ids_T[start : start + length - 2]], rng) for start in starts]


def next_token_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text with the next token as the target."""
    starts = rng.integers(len(text.ids_T) - length, size=count)
    rows = [
        {"input_ids": text.ids_T[start : start + length + 1], "token_type_ids": np.zeros(length + 1)}
        for start in starts
    ]
    return [CausalLM()(row, Specials(), rng) for row in rows]


def pair_rows(text: World, count: int, rng: np.random.Generator) -> list[Row]:
    """Two sentences followed by the next two or (label 1) by two of another document. The boundary between them does
    not reveal the label."""
    start_M = np.flatnonzero(text.sentence_starts_T)
    document_M = np.repeat(np.arange(len(text.num_tokens_N)), text.num_tokens_N)[start_M]
    inside = np.flatnonzero(document_M[:-4] == document_M[3:-1])  # three more sentences follow in the document
    first, other = rng.choice(inside, count), rng.choice(inside, count)
    is_random = (rng.random(count) < 0.5) & (document_M[first] != document_M[other])
    second = np.where(is_random, other, first + 2)
    return [
        masked([text.ids_T[start_M[i] : start_M[i + 2]] for i in pair], rng) | {"next_sentence_label": np.int8(label)}
        for *pair, label in zip(first, second, is_random, strict=True)
    ]


def learn(course: Course, text: World, seed: int = 0) -> Model:
    """Train by AdamW: warmup of 50 steps, then linear decay to zero; gradients clipped at norm 1."""
    torch.set_num_threads(1)
    rng, model = np.random.default_rng(seed), Model(course.trunk, course.losses, course.vocab_size, seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=0.01), betas=(0.9, 0.98))
    for step in range(course.steps):
        for group in optimizer.param_groups:
            group["lr"] = course.peak * min((step + 1) / 50, 1 - step / course.steps)
        scores = model(collate_unpadded(course.sample(text, course.batch, rng)))
        torch.stack([score.loss / score.count for score in scores.values()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def examine(model: Model, rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Mean loss and accuracy of each head."""
    scores = model(collate_unpadded(rows))
    return {kind: (float(s.loss) / s.count, int(s.correct) / s.count) for kind, s in scores.items()}


@torch.no_grad()
def agreement(model: Model, text: World, length: int = 48) -> float:
    """Fraction of sentences whose number the model infers from the final particle, with determiner and verb masked."""
    start_M = np.flatnonzero(text.sentence_starts_T[: 2 - length])[:500]
    rows = []
    for start in start_M:
        ids_S = np.concatenate([[CLS], text.ids_T[start : start + length - 2], [SEP]])
        ids_S[[1, 3]] = MASK
        labels_S = np.where(np.arange(length) == 1, text.ids_T[start], IGNORE)
        rows.append({"input_ids": ids_S, "token_type_ids": np.zeros(length), "labels": labels_S})
    batch = collate_unpadded(rows)
    feature = model.heads["masked_tokens"].features(model.trunk(batch)[batch["targets_at"]])
    determiner_M2 = F.linear(feature, model.trunk.tokens.weight[AT["determiner"] : AT["particle"]])
    return float((determiner_M2.argmax(-1) == batch["targets"] - AT["determiner"]).float().mean())


# Short runs.


def test_a_short_masked_run_uses_context(train: World, held_out: World) -> None:
    course = Course(ENCODER, (MaskedTokens(),), partial(masked_rows, length=24), steps=200, batch=64, peak=5e-3)
    model = learn(course, train)
    loss, _ = examine(model, course.sample(held_out, 1000, np.random.default_rng(1)))["masked_tokens"]
    assert loss < unigram_entropy(held_out.ids_T) - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_short_causal_run_uses_context(norm: NormPosition, train: World, held_out: World) -> None:
    trunk = replace(DECODER, norm_position=norm)
    model = learn(Course(trunk, (NextToken(),), next_token_rows, steps=100, batch=32, peak=5e-3), train)
    loss, _ = examine(model, next_token_rows(held_out, 500, np.random.default_rng(1)))["next_token"]
    assert loss < unigram_entropy(held_out.ids_T) - 1.0


# Full length: reference/family.md D1.


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_masked_tokens_are_learned_better_than_by_bigrams(train: World, held_out: World) -> None:
    """Three seeds: losses 1.945, 1.939, 1.952, and accuracies .540, .535, .530."""
    model = learn(Course(ENCODER, (MaskedTokens(),), masked_rows, steps=1500, batch=64, peak=3e-3), train)
    loss, accuracy = examine(model, masked_rows(held_out, 2000, np.random.default_rng(1)))["masked_tokens"]
    assert loss < bigram_cross_entropy(train.ids_T, held_out.ids_T)
    assert loss < 0.5 * unigram_entropy(train.ids_T)
    assert accuracy > 0.45


def agreement_with(visibility: Visibility, train: World, held_out: World, seed: int) -> float:
    """Agreement with the particle of a masked language model with this attention mask."""
    trunk, sample = replace(ENCODER, attention_mask=visibility), partial(masked_rows, length=24)
    model = learn(Course(trunk, (MaskedTokens(),), sample, steps=800, batch=32, peak=3e-3), train, seed)
    return agreement(model, held_out, length=24)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_only_a_model_with_full_attention_reads_the_particle(train: World, held_out: World) -> None:
    """Three seeds: .992, .996, .984 and .528, .528, .472; guessing gives .5."""
    both, left = (agreement_with(visibility, train, held_out, seed=0) for visibility in ("bidirectional", "causal"))
    assert both > left + 0.3


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_next_tokens_are_learned_better_than_by_bigrams(norm: NormPosition, train: World, held_out: World) -> None:
    trunk = replace(DECODER, norm_position=norm)
    model = learn(Course(trunk, (NextToken(),), next_token_rows, steps=900, batch=32, peak=2e-3), train)
    loss, _ = examine(model, next_token_rows(held_out, 500, np.random.default_rng(1)))["next_token"]
    assert loss < 2.6


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pairs_are_learned_together_with_masked_tokens(train: World, held_out: World) -> None:
    """Three seeds: pair accuracies .897, .887, .900, and masked losses 1.863, 1.867, 1.819."""
    course = Course(ENCODER, (MaskedTokens(), SentencePair()), pair_rows, steps=1500, batch=64, peak=3e-3)
    found = examine(learn(course, train), pair_rows(held_out, 2000, np.random.default_rng(1)))
    assert found["sentence_pair"][1] > 0.85
    assert found["masked_tokens"][0] < 0.5 * unigram_entropy(train.ids_T)
