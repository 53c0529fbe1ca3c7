"""FlexAttention's block masks, compared with a dense mask of the same relation."""

import shutil

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tests.training.batches import collate_unpadded, random_rows
from training.architectures import flex
from training.architectures.fused import FusedLinear
from training.losses import SentencePair
from training.model import Model
from training.specs import AlternatingWindow, Decoder, Encoder, LearnedPositions

LENGTHS = [130, 1, 300, 77, 128]
T = sum(LENGTHS)
GENERATOR = torch.Generator().manual_seed(0)
ROW_T = flex.row_of(F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0)), T)
RANK_T, REACH_T = (torch.randint(0, 300, (T,), generator=GENERATOR) for _ in range(2))
SAME = ROW_T[:, None] == ROW_T
APART = torch.arange(T) - torch.arange(T)[:, None]
RULES: dict[str, tuple[BlockMask, Tensor]] = {
    "ranks": (flex.rank_mask(ROW_T, RANK_T, REACH_T), SAME & ((REACH_T[:, None] >= RANK_T) | (APART == 0))),
    "band": (flex.band(ROW_T, 20, 7), SAME & (APART >= -20) & (APART <= 7)),
    "before": (flex.band(ROW_T, 127, 0), SAME & (APART >= -127) & (APART <= 0)),
    "wide": (flex.band(ROW_T, 128, 129), SAME & (APART >= -128) & (APART <= 129)),
    "all": (flex.band(ROW_T, T, T), SAME),
}


@pytest.mark.parametrize("name", RULES)
def test_block_mask_equals_the_dense_mask(name: str) -> None:
    who, seen_TT = RULES[name]
    at = torch.arange(T)
    nothing = torch.zeros((), dtype=torch.int64)
    assert torch.equal(who.mask_mod(nothing, nothing, at[:, None], at), seen_TT)


@pytest.mark.parametrize("name", RULES)
def test_blocks_cover_every_pair_and_skip_distant_ones(name: str) -> None:
    who, seen_TT = RULES[name]
    asked_NN = who.to_dense()[0, 0].bool()
    padded = F.pad(seen_TT, (0, -T % flex.BLOCK, 0, -T % flex.BLOCK))
    wanted_NN = padded.unfold(0, flex.BLOCK, flex.BLOCK).unfold(1, flex.BLOCK, flex.BLOCK).any(-1).any(-1)
    assert not (wanted_NN & ~asked_NN).any()
    assert asked_NN.sum() < asked_NN.numel()


def dense(qkv_T3HK: Tensor, seen_TT: Tensor) -> Tensor:
    query, key, value = qkv_T3HK.permute(1, 2, 0, 3)[:, None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen_TT)[0].transpose(0, 1)


def attended(qkv_T3HK: Tensor, who: BlockMask) -> Tensor:
    return flex.attend(qkv_T3HK[:, 0], qkv_T3HK[:, 1:].flatten(1, 2), who)


UNILM = Encoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=64),
    init_std=0.2,
    attention_mask="per_sequence",
)
BANDED = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=64),
    attention_window=AlternatingWindow(size=3),
    init_std=0.2,
)


@pytest.mark.filterwarnings("ignore:flex_attention called")
@pytest.mark.parametrize(("trunk", "asked"), [(UNILM, 2), (BANDED, 1)])  # banded attention is in every second layer
@torch.no_grad()
def test_attention_with_a_block_mask_equals_attention_with_a_dense_mask(
    trunk: Encoder | Decoder, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, batch = (
        Model(trunk, (SentencePair(),), 50, seed=0).eval().trunk,
        collate_unpadded(random_rows([5, 21, 1, 12], 50)),
    )
    batch |= {name: torch.randint(0, 12, (39,), generator=GENERATOR) for name in ("rank", "reach")}
    wanted, calls = net(batch), []

    def kernel(*args: Tensor, block_mask: BlockMask) -> object:
        calls.append(block_mask)
        return flex_attention(*args, block_mask=block_mask)

    monkeypatch.setattr(flex, "fits", lambda x, dropout: dropout == 0)
    monkeypatch.setattr(flex, "_kernel", lambda: kernel)
    projections = [module for module in net.modules() if isinstance(module, FusedLinear)]
    made: list[nn.Module] = []
    for module in projections:
        module.register_forward_hook(lambda module, given, states: made.append(module))
    torch.testing.assert_close(net(batch), wanted, rtol=0, atol=1e-5)
    assert len(calls) == asked
    assert made == projections  # each module is called once


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ to compile a kernel")
@torch.no_grad()
def test_compiled_kernel_equals_a_dense_mask() -> None:
    qkv = torch.randn(T, 3, 2, 16, generator=GENERATOR)
    for who, seen_TT in RULES.values():
        torch.testing.assert_close(attended(qkv, who), dense(qkv, seen_TT), rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ranks", "band"])
def test_kernel_and_its_gradient_on_a_gpu_equal_a_dense_mask(name: str) -> None:
    row_T, rank_T, reach_T = (x.cuda() for x in (ROW_T, RANK_T, REACH_T))
    who = flex.rank_mask(row_T, rank_T, reach_T) if name == "ranks" else flex.band(row_T, 20, 7)
    qkv = torch.randn(T, 3, 4, 64, device="cuda", requires_grad=True)
    found, wanted = attended(qkv, who), dense(qkv, RULES[name][1].cuda())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-2)
    weight = torch.randn_like(found)
    gradients = [torch.autograd.grad((mixed * weight).sum(), qkv)[0] for mixed in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-2)
