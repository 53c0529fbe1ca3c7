"""Encoders learn their own objectives in the mini-world: span boundaries, translations, four kinds of attention masks.

The thresholds are those of reference/family.md D1. All tests take minutes, and are marked slow.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch

from preprocessing.masking import SpanMasking
from preprocessing.objectives import MaskedLM, UnifiedLM
from preprocessing.objectives.unified_lm import Mode
from preprocessing.schema import IGNORE, Ints, Row
from tests.mini_world import CLS, SEP, VOCAB_SIZE, World, unigram_entropy
from tests.training.batches import collate_unpadded
from tests.training.learning.test_learning import ENCODER, Course, Specials, examine, learn, masked
from training.losses import MaskedTokens, SpanBoundary
from training.losses.heads import boundary_targets
from training.model import Model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


# SpanBERT.


def span_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text whose masked tokens are spans of whole words."""
    rows = []
    for start in rng.integers(len(text.ids_T) - length, size=count):
        inner = slice(start, start + length - 2)
        row: Row = {
            "input_ids": np.concatenate([[CLS], text.ids_T[inner], [SEP]]),
            "token_type_ids": np.zeros(length, dtype=np.int8),
            "word_starts": np.concatenate([[True], text.word_starts_T[inner], [True]]),
        }
        row["word_starts"][1] = True
        row["special_tokens_mask"] = np.isin(row["input_ids"], [CLS, SEP])
        rows.append(
            MaskedLM(replace_unit="span", random_token_source="row")(
                row | {"hits": SpanMasking()(row, rng)}, Specials(), rng
            )
        )
    return rows


def test_spans_are_predicted_from_their_boundaries_on_the_right_sides(train: World, held_out: World) -> None:
    course = Course(ENCODER, (MaskedTokens(), SpanBoundary()), span_rows, steps=900, batch=32, peak=2e-3)
    model, rows = learn(course, train), span_rows(held_out, 1000, np.random.default_rng(1))
    found = examine(model, rows)
    assert found["masked_tokens"][0] < 4.6
    assert found["span_boundary"][0] < 4.3
    assert swapped_boundaries(model, rows) > found["span_boundary"][0] + 0.1


@torch.no_grad()
def swapped_boundaries(model: Model, rows: list[Row]) -> float:
    """Loss of the boundary head if the two boundary states are swapped."""
    head, batch = model.heads["span_boundary"], collate_unpadded(rows)
    here, target = boundary_targets(batch, head.positions), batch["targets"]
    features = head.features(model.trunk(batch), here._replace(before=here.after, after=here.before))
    logits = (features @ model.trunk.table.T + head.bias)[here.counts]
    return float(torch.nn.functional.cross_entropy(logits, target[here.counts]))


# XLM: a second language that equals the first one word by word, in other tokens.


def translated(ids_S: Ints) -> Ints:
    return ids_S + VOCAB_SIZE


def two_languages(first: Ints, second: Ints, rng: np.random.Generator, restart: bool) -> Row:
    """A sentence and one in the second language, masked; with `restart`, positions start again at the second."""
    row = masked([first, translated(second)], rng)
    length = len(first) + 2  # includes [CLS] and [SEP]
    row["languages"] = (np.arange(len(row["input_ids"])) >= length).astype(np.int8)
    if restart:
        row["positions"] = np.arange(len(row["input_ids"])) - length * row["languages"] + row["languages"]
    return row


def parallel_rows(
    text: World, count: int, rng: np.random.Generator, *, restart: bool = True, alone: float = 0.0, true: bool = True
) -> list[Row]:
    """Sentences with their translation, or with that of another sentence; a fraction `alone` of them has none."""
    start_M = np.flatnonzero(text.sentence_starts_T)[:-1]
    rows = []
    for first, other, dice in zip(*rng.integers(len(start_M) - 2, size=(2, count)), rng.random(count), strict=True):
        sentence, another = (text.ids_T[start_M[i] : start_M[i + 2]] for i in (first, other))
        row = two_languages(sentence, sentence if true else another, rng, restart)
        if dice < alone:
            language, length = rng.integers(2), len(sentence) + 2
            parts = [translated(sentence) if language else sentence]
            row = masked(parts, rng) | {"languages": np.full(length, language, dtype=np.int8)}
            row["token_type_ids"], row["positions"] = np.zeros(length, dtype=np.int8), np.arange(length)
        rows.append(row)
    return rows


def context_gain(train: World, held_out: World, restart: bool, alone: float) -> float:
    """The reduction of the masked loss by a true translation, compared with another sentence."""
    trunk = replace(ENCODER, type_vocab_size=0, num_languages=2)
    sample: Callable[..., list[Row]] = partial(parallel_rows, restart=restart)
    course = Course(
        trunk, (MaskedTokens(transform=False),), partial(sample, alone=alone), 1600, 32, 2e-3, 2 * VOCAB_SIZE
    )
    model = learn(course, train)
    true, other = (
        examine(model, sample(held_out, 1000, np.random.default_rng(1), true=true))["masked_tokens"][0]
        for true in (True, False)
    )
    return other - true


def test_a_translation_is_used_if_its_positions_restart(train: World, held_out: World) -> None:
    gain = context_gain(train, held_out, restart=True, alone=0.5)
    assert gain > 0.35
    assert gain > context_gain(train, held_out, restart=False, alone=0.5) + 0.2
    assert gain > context_gain(train, held_out, restart=True, alone=1.0) + 0.15


# UniLM.


def unified_rows(text: World, count: int, rng: np.random.Generator, mode: Mode | None = None) -> list[Row]:
    """Two masked sentences with one of the four attention masks, drawn at random or given by `mode`."""
    start_M = np.flatnonzero(text.sentence_starts_T)
    shares = {f"{name}_prob": float(name == mode) for name in get_args(Mode)} if mode else {}
    unified, rows = UnifiedLM(**shares), []
    for i in rng.integers(len(start_M) - 3, size=count):
        first, second = (text.ids_T[start_M[i + k] : start_M[i + k + 1]] for k in (0, 1))
        whole = masked([first, second], rng)
        asked_S = whole["labels"] != IGNORE
        row = whole | {"input_ids": np.concatenate([[CLS], first, [SEP], second, [SEP]])}
        row["hits"] = np.where(asked_S, np.cumsum(asked_S), 0)
        rows.append(unified(row, Specials(), rng))
    return rows


def test_one_model_learns_all_four_attention_masks(train: World, held_out: World) -> None:
    trunk = replace(ENCODER, type_vocab_size=6, attention_mask="per_sequence")
    model = learn(Course(trunk, (MaskedTokens(),), unified_rows, steps=2000, batch=32, peak=2e-3), train)
    loss = {
        mode: examine(model, unified_rows(held_out, 1000, np.random.default_rng(1), mode))["masked_tokens"][0]
        for mode in get_args(Mode)
    }
    assert max(loss.values()) < unigram_entropy(held_out.ids_T) - 0.5
    assert loss["bidirectional"] < min(loss["left_to_right"], loss["right_to_left"])
