"""Banded attention, compared with a dense mask of the same relation."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.architectures.banded import attend_to_band
from training.losses import Loss, MaskedTokens, NextToken
from training.model import Model
from training.specs import (
    AlternatingWindow,
    AttentionWindow,
    Decoder,
    Encoder,
    FullAttention,
    LearnedPositions,
    SlidingWindow,
)

SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
SIZES |= {"hidden_dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}
ENCODER = Encoder(
    **SIZES, position_embedding=LearnedPositions(max_position_embeddings=64), attention_window=SlidingWindow(size=4)
)
GLOBAL = replace(ENCODER, attention_window=SlidingWindow(size=4, global_tokens="first"))
BANDED = Decoder(
    **SIZES, position_embedding=LearnedPositions(max_position_embeddings=64), attention_window=AlternatingWindow(size=3)
)
VOCAB = 50
RAGGED = [5, 21, 1, 12]


def band_mask(longest: int, before: int, after: int, first: bool) -> Tensor:
    """Attention mask [S, S] (rows: queries, columns: keys)."""
    offset = torch.arange(longest) - torch.arange(longest)[:, None]
    seen = (offset >= -before) & (offset <= after)
    seen[:, 0] |= first
    return seen


def dense(qkv_BS3HK: Tensor, seen_BSS: Tensor) -> Tensor:
    query, key, value = qkv_BS3HK.unbind(2)
    score = torch.einsum("bqhk,bshk->bhqs", query, key) / math.sqrt(query.shape[-1])
    return torch.einsum("bhqs,bshk->bqhk", score.masked_fill(~seen_BSS[:, None], -torch.inf).softmax(-1), value)


def banded(qkv_BS3HK: Tensor, lengths_B: Tensor, before: int, after: int, *, first: bool) -> Tensor:
    query, key, value = qkv_BS3HK.unbind(2)
    return attend_to_band(query, torch.cat([key, value], 2), lengths_B, before, after, first=first)


def net(trunk: Encoder | Decoder) -> Model:
    loss: Loss = NextToken() if isinstance(trunk, Decoder) else MaskedTokens()
    return Model(trunk, (loss,), VOCAB, seed=0)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 0), (0, 0), (1, 5), (20, 20), (100, 100), (100, 0)])
def test_band_equals_a_dense_mask(before: int, after: int, first: bool) -> None:
    lengths_B = torch.tensor(RAGGED)
    longest = max(RAGGED)
    qkv = torch.randn(4, longest, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    inside_BS = torch.arange(longest) < lengths_B[:, None]
    seen_BSS = band_mask(longest, before, after, first) & inside_BS[:, None]
    found = banded(qkv, lengths_B, before, after, first=first)
    torch.testing.assert_close(found[inside_BS], dense(qkv, seen_BSS)[inside_BS], rtol=0, atol=1e-6)


@pytest.mark.parametrize("first", [False, True])
def test_gradients_of_a_band_equal_those_of_a_dense_mask_and_are_zero_at_padding(first: bool) -> None:
    lengths_B, longest = torch.tensor(RAGGED), max(RAGGED)
    inside_BS = torch.arange(longest) < lengths_B[:, None]
    seen_BSS = band_mask(longest, 2, 2, first) & inside_BS[:, None]
    generator, gradients = torch.Generator().manual_seed(0), []
    qkv, weight = (torch.randn(4, longest, *parts, 2, 8, generator=generator) for parts in ((3,), ()))
    for fast in (True, False):
        given = qkv.clone().requires_grad_()
        mixed = banded(given, lengths_B, 2, 2, first=first) if fast else dense(given, seen_BSS | ~inside_BS[..., None])
        (mixed[inside_BS] * weight[inside_BS]).sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert not gradients[0][~inside_BS].any()


class Largest(TorchDispatchMode):
    """Records the size of the largest new tensor."""

    size = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.numel())
        return made


def test_tensors_of_a_band_do_not_grow_quadratically() -> None:
    sizes = []
    for longest in (256, 512):
        with Largest() as largest:
            banded(torch.zeros(1, longest, 3, 1, 2), torch.tensor([longest]), 4, 4, first=True)
        sizes.append(largest.size)
    assert sizes[1] <= 2 * sizes[0]


@pytest.mark.parametrize("trunk", [ENCODER, GLOBAL, BANDED])
def test_unpadded_states_and_gradients_equal_padded_ones(trunk: Encoder | Decoder) -> None:
    rows, model = random_rows(RAGGED, VOCAB), net(trunk)
    flat_TD, rectangle_BSD = model.trunk(collate_unpadded(rows)), model.trunk(collate_padded(rows, 24))
    by_token = torch.cat([row[:length] for row, length in zip(rectangle_BSD, RAGGED, strict=True)])
    torch.testing.assert_close(flat_TD, by_token, rtol=0, atol=1e-5)
    parameters = list(model.parameters())
    gradients = [
        torch.autograd.grad(score.loss, parameters)
        for batch in (collate_unpadded(rows), collate_padded(rows, 24))
        for score in model(batch).values()
    ]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_a_window_wider_than_the_sequence_equals_full_attention() -> None:
    rows, windowed = random_rows(RAGGED, VOCAB), net(replace(ENCODER, attention_window=SlidingWindow(size=64)))
    full = net(replace(ENCODER, attention_window=FullAttention()))
    torch.testing.assert_close(
        windowed.trunk(collate_unpadded(rows)), full.trunk(collate_unpadded(rows)), rtol=0, atol=1e-5
    )


def test_a_wide_window_with_tied_global_linears_equals_full_attention() -> None:
    wide = replace(GLOBAL, attention_window=SlidingWindow(size=64, global_tokens="first"))
    rows, windowed, full = (
        random_rows(RAGGED, VOCAB),
        net(wide),
        net(replace(ENCODER, attention_window=FullAttention())),
    )
    state = full.state_dict()
    for number in range(2):
        for leaf in ("weight", "bias"):
            qkv = state[f"trunk.blocks.{number}.attention.qkv.{leaf}"]
            state[f"trunk.blocks.{number}.attention.global_query.{leaf}"] = qkv[:32]
            state[f"trunk.blocks.{number}.attention.global_key_value.{leaf}"] = qkv[32:]
    windowed.load_state_dict(state)
    torch.testing.assert_close(
        windowed.trunk(collate_unpadded(rows)), full.trunk(collate_unpadded(rows)), rtol=0, atol=1e-5
    )


def affected_positions(trunk: Encoder | Decoder, changed: int) -> list[int]:
    """Positions of a sequence of 24 tokens whose state changes when the token at one position changes."""
    batch, model = collate_unpadded(random_rows([24], VOCAB)), net(trunk)
    other = torch.where(torch.arange(24) == changed, (batch["input_ids"] + 1) % VOCAB, batch["input_ids"])
    change_T = (model.trunk(batch) - model.trunk(batch | {"input_ids": other})).abs().amax(-1)
    return (change_T > 1e-6).nonzero().flatten().tolist()


def test_each_layer_widens_the_context_by_half_a_window_on_each_side() -> None:
    assert affected_positions(ENCODER, 12) == list(range(8, 17))


def test_all_tokens_are_reached_through_the_global_token() -> None:
    assert affected_positions(GLOBAL, 12) == list(range(24))


def test_all_tokens_attend_to_the_first_token() -> None:
    assert affected_positions(replace(GLOBAL, num_hidden_layers=1), 0) == list(range(24))
    assert affected_positions(replace(GLOBAL, num_hidden_layers=1), 12) == [0, *range(10, 15)]


def test_decoder_has_a_band_in_every_second_layer() -> None:
    kinds = [block.attention.window is not None for block in net(replace(BANDED, num_hidden_layers=5)).trunk.blocks]
    assert kinds == [False, True, False, True, False]


def test_a_banded_layer_attends_only_to_its_last_tokens() -> None:
    model = net(BANDED)
    model.trunk.blocks = model.trunk.blocks[1:]
    batch = collate_unpadded(random_rows([24], VOCAB))
    other = torch.where(torch.arange(24) == 12, (batch["input_ids"] + 1) % VOCAB, batch["input_ids"])
    change_T = (model.trunk(batch) - model.trunk(batch | {"input_ids": other})).abs().amax(-1)
    assert (change_T > 1e-6).nonzero().flatten().tolist() == [12, 13, 14]


@pytest.mark.parametrize("tokens", [5, 0, -2])
def test_an_invalid_window_size_is_refused(tokens: int) -> None:
    with pytest.raises(
        ValueError,
        match=rf"invalid model\.attention_window\.size: got {tokens}, expected an even number of at least 2 tokens",
    ):
        SlidingWindow(size=tokens)


def test_a_band_of_zero_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"invalid model\.attention_window.size: got 0, expected at least 1 token"):
        AlternatingWindow(size=0)


def test_global_tokens_without_a_window_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'global_tokens'"):
        FullAttention(global_tokens="first")  # type: ignore[call-arg]


def test_a_window_with_another_attention_mask_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"invalid model\.attention_mask: got 'causal', expected bidirectional with an attention window",
    ):
        replace(ENCODER, attention_mask="causal")


@pytest.mark.parametrize(
    ("window", "longest", "message"),
    [
        (FullAttention(), 1, ""),
        (SlidingWindow(size=8), 5, ""),
        (
            SlidingWindow(size=8),
            4,
            "invalid model.attention_window.size: got 8, expected less than 8, because sequences have at most 4 tokens",
        ),
        (AlternatingWindow(size=8), 9, ""),
        (
            AlternatingWindow(size=8),
            8,
            "invalid model.attention_window.size: got 8, expected less than 8, because sequences have at most 8 tokens",
        ),
    ],
)
def test_a_window_that_covers_every_sequence_is_reported(window: AttentionWindow, longest: int, message: str) -> None:
    assert window.fits(longest).startswith(message)
    assert bool(window.fits(longest)) == bool(message)
