"""Nets learn what there is to learn in the mini-world: thresholds of reference/family.md D1, and short runs below them.

The net is tiny (2 layers, width 64) and begins by the rule for small widths: init_std = 0.02 * sqrt(768 / width). It is
examined on held-out text. A short run asks only that the net uses context; the full-length ones are marked slow.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from preprocessing.choose import Tokens
from preprocessing.rewrite import Cloze, Shift
from preprocessing.schema import Bools, Ints, Row
from tests.mini_world import AT, CLS, MASK, SEP, VOCAB_SIZE, World, bigram_cross_entropy, unigram_entropy, world
from tests.training.batches import unpadded
from training.model import Model, parameter_groups
from training.spec import Decoder, Encoder, Loss, MaskedTokens, NextToken, Norm, PairLabel, Trunk

TINY: dict[str, Any] = {"layers": 2, "width": 64, "heads": 2, "max_positions": 48, "init_std": 0.02 * (768 / 64) ** 0.5}
ENCODER = Encoder(**TINY, dropout=0.0, attention_dropout=0.0)
DECODER = Decoder(**TINY, dropout=0.0, attention_dropout=0.0)


@dataclass(frozen=True)
class Specials:
    """What rewriting reads of a vocabulary."""

    size: int = VOCAB_SIZE
    mask: int = MASK
    special_ids: tuple[int, ...] = tuple(range(AT["det"]))


@dataclass(frozen=True)
class Course:
    """Who learns what from which rows, for how long."""

    trunk: Trunk
    losses: tuple[Loss, ...]
    sample: Callable[[World, int, np.random.Generator], list[Row]]
    steps: int
    batch: int
    peak: float  # learning rate


@pytest.fixture(scope="module")
def train() -> World:
    return world(seed=0, num_documents=4000)


@pytest.fixture(scope="module")
def held_out() -> World:
    return world(seed=1, num_documents=400)


def masked(parts: list[Ints], rng: np.random.Generator) -> Row:
    """[CLS] and each part with its [SEP], 15 % of the tokens chosen and rewritten 80/10/10."""
    ids_S = np.concatenate([[CLS], *(np.append(part, SEP) for part in parts)])
    segments_S = np.repeat(np.arange(len(parts)), [len(part) + 1 for part in parts])
    row: Row = {"ids": ids_S, "segments": np.append(0, segments_S), "special": np.isin(ids_S, [CLS, SEP])}
    return Cloze()(row | {"hits": Tokens()(row, rng)}, Specials(), rng)


def masked_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text with masks."""
    starts = rng.integers(len(text.ids_T) - length, size=count)
    return [masked([text.ids_T[start : start + length - 2]], rng) for start in starts]


def next_token_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text that ask for each next token."""
    starts = rng.integers(len(text.ids_T) - length, size=count)
    rows = [{"ids": text.ids_T[start : start + length + 1], "segments": np.zeros(length + 1)} for start in starts]
    return [Shift()(row, Specials(), rng) for row in rows]


def pair_rows(text: World, count: int, rng: np.random.Generator, half: int = 22) -> list[Row]:
    """Two windows that begin with a sentence; the second goes on from the first, or (label 1) is of another document."""
    document_T = np.repeat(np.arange(len(text.num_tokens_N)), text.num_tokens_N)
    start = np.flatnonzero(text.sentence_starts_T[: -2 * half])
    start = start[document_T[start] == document_T[start + 2 * half - 1]]
    first = rng.choice(start, count)
    other = rng.choice(start, count)
    is_random = (rng.random(count) < 0.5) & (document_T[first] != document_T[other])
    second = np.where(is_random, other, first + half)
    return [
        masked([text.ids_T[a : a + half], text.ids_T[b : b + half]], rng) | {"pair_label": np.int8(label)}
        for a, b, label in zip(first, second, is_random, strict=True)
    ]


def learn(course: Course, text: World, seed: int = 0) -> Model:
    """AdamW, warm-up of 50 steps, then linearly to zero; gradients clipped at norm 1."""
    torch.set_num_threads(1)
    rng, model = np.random.default_rng(seed), Model(course.trunk, course.losses, VOCAB_SIZE, seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=0.01), betas=(0.9, 0.98))
    for step in range(course.steps):
        for group in optimizer.param_groups:
            group["lr"] = course.peak * min((step + 1) / 50, 1 - step / course.steps)
        scores = model(unpadded(course.sample(text, course.batch, rng)))
        torch.stack([score.loss / score.count for score in scores.values()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def examine(model: Model, rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Mean loss and accuracy of each head."""
    scores = model(unpadded(rows))
    return {kind: (float(s.loss) / s.count, int(s.correct) / s.count) for kind, s in scores.items()}


@torch.no_grad()
def agreement(model: Model, text: World) -> float:
    """Share of sentences whose number the net reads off the particle at their right end, determiner and verb masked."""
    start_M = np.flatnonzero(text.sentence_starts_T[:-46])[:500]
    rows = []
    for start in start_M:
        ids_S = np.concatenate([[CLS], text.ids_T[start : start + 46], [SEP]])
        ids_S[[1, 3]] = MASK
        rows.append(
            {"ids": ids_S, "segments": np.zeros(48), "labels": np.where(np.arange(48) == 1, text.ids_T[start], -100)}
        )
    batch = unpadded(rows)
    feature = model.heads["masked_tokens"].features(model.trunk(batch)[batch["targets_at"]])
    determiner_M2 = F.linear(feature, model.trunk.tokens.weight[AT["det"] : AT["end"]])
    return float((determiner_M2.argmax(-1) == batch["targets"] - AT["det"]).float().mean())
