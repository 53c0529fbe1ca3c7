"""Transformer-XL and XLNet learn the structure of the mini-world: reference/family.md D1, and short runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.masking import PartialPrediction
from preprocessing.objectives import CausalLM, PermutationLM
from preprocessing.schema import Ints, Row
from tests.mini_world import VOCAB_SIZE, World, unigram_entropy
from tests.training.batches import collate_unpadded
from tests.training.learning.test_learning import Specials
from training.losses import MaskedTokens, NextToken
from training.model import Model, parameter_groups
from training.specs import Architecture, Decoder, RelativePositions, TwoStream

TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "init_std": 0.02 * (768 / 64) ** 0.5,
}
XL = Decoder(
    **TINY,
    position_embedding=RelativePositions(mem_len=32),
    norm_position="post",
    activation="relu",
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
XLNET = TwoStream(**TINY, hidden_dropout=0.0, attention_dropout=0.0)
LENGTH = 16  # tokens of a sequence in a stream


def streams(text: World, count: int, slot: int, order: Ints | None = None) -> Iterator[dict[str, Tensor]]:
    """The text as `count` parallel streams, one batch per step through them; `order` may permute the steps."""
    steps = (len(text.ids_T) - count) // (count * LENGTH)
    start_B = np.arange(count) * steps * LENGTH
    for step in np.arange(steps) if order is None else order[order < steps]:
        at_BS = start_B[:, None] + step * LENGTH + np.arange(LENGTH + 1)
        rows = [{"input_ids": text.ids_T[at_S], "token_type_ids": np.zeros(LENGTH + 1)} for at_S in at_BS]
        batch = collate_unpadded([CausalLM()(row, Specials(), np.random.default_rng(0)) for row in rows])
        yield batch | {"slot": torch.tensor(slot), "fresh": torch.full((count,), bool(step == 0 and order is None))}


def permuted(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """Windows of text, of which 1 in 6 tokens is predicted in a random order."""
    start_N = rng.integers(len(text.ids_T) - length, size=count)
    rows = [
        {
            "input_ids": text.ids_T[start:][:length],
            "token_type_ids": np.zeros(length),
            "special_tokens_mask": np.zeros(length, dtype=bool),
        }
        | {"word_starts": text.word_starts_T[start:][:length]}
        for start in start_N
    ]
    return [
        PermutationLM(perm_size=length)(row | {"hits": PartialPrediction()(row, rng)}, Specials(), rng) for row in rows
    ]


def learn(trunk: Architecture, batches: Iterator[dict[str, Tensor]], steps: int, peak: float) -> Model:
    """Train by AdamW: warmup of 50 steps, then linear decay to zero; gradients clipped at norm 1."""
    torch.set_num_threads(1)
    loss = MaskedTokens(transform=False) if isinstance(trunk, TwoStream) else NextToken(bias=True)
    model = Model(trunk, (loss,), VOCAB_SIZE, seed=0)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=0.01), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak * min((step + 1) / 50, 1 - step / steps)
        score = model(next(batches))[loss.kind]
        (score.loss / score.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def endless_streams(text: World, count: int) -> Iterator[dict[str, Tensor]]:
    while True:
        yield from streams(text, count, slot=0)


def endless_permuted(text: World, count: int, seed: int) -> Iterator[dict[str, Tensor]]:
    rng = np.random.default_rng(seed)
    while True:
        yield collate_unpadded(permuted(text, count, rng))


@torch.no_grad()
def examine(model: Model, batches: Iterator[dict[str, Tensor]]) -> float:
    """Mean loss of the only head over all batches."""
    scores = [score for batch in batches for score in model(batch).values()]
    return sum(float(score.loss) for score in scores) / sum(score.count for score in scores)


@pytest.mark.slow
def test_a_short_run_with_a_memory_uses_context(train: World, held_out: World) -> None:
    model = learn(XL, endless_streams(train, 32), steps=120, peak=5e-3)
    assert examine(model, streams(held_out, 8, slot=-1)) < unigram_entropy(held_out.ids_T) - 1.0


@pytest.mark.slow
def test_a_short_run_with_permuted_prediction_uses_context(train: World, held_out: World) -> None:
    model = learn(XLNET, endless_permuted(train, 32, seed=0), steps=120, peak=5e-3)
    loss = examine(model, iter([collate_unpadded(permuted(held_out, 300, np.random.default_rng(1)))]))
    assert loss < unigram_entropy(held_out.ids_T) - 0.5


# Full length: reference/family.md D1.


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_memory_of_the_previous_text_reduces_the_loss(train: World, held_out: World) -> None:
    model, forgetful = (
        learn(
            replace(XL, position_embedding=RelativePositions(mem_len=memory)),
            endless_streams(train, 32),
            steps=900,
            peak=2e-3,
        )
        for memory in (32, 0)
    )
    loss, without = (examine(net, streams(held_out, 8, slot=-1)) for net in (model, forgetful))
    assert loss < without - 0.05
    order = np.random.default_rng(0).permutation(10_000)
    assert examine(model, streams(held_out, 8, slot=-2, order=order)) > loss + 0.05


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_tokens_in_permuted_order_are_learned(train: World, held_out: World) -> None:
    model = learn(XLNET, endless_permuted(train, 32, seed=0), steps=900, peak=2e-3)
    assert examine(model, iter([collate_unpadded(permuted(held_out, 500, np.random.default_rng(1)))])) < 2.9
