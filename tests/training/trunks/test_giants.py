"""One layer of each giant recipe, at its published sizes, is really computed: a stage of three that has one block, and
of T5 a block of each side."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orchestration.config import load
from tests.training.batches import random_rows, unpadded
from tests.training.encoder_decoders import VOCAB, rows_of
from training.model import Model, materialise
from training.specs import EncoderDecoder
from training.trunks import Given, Stage

TOKENS = 8
GIANTS = [
    *((name, torch.float32) for name in ("gpt3_6_7b", "gpt3_13b", "megatron_8b", "turing_nlg", "gpt3_175b")),
    ("mt_nlg_530b", torch.bfloat16),
]


def free_bytes() -> int:
    """What Linux can give away."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def by_hand(weights: dict[str, Tensor], x: Tensor, heads: int, eps: float) -> Tensor:
    """A pre-norm block of GPT-2 (2.3), written down anew."""

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps)

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    query, key, value = linear("attention.qkv", norm("attention_norm", x)).unflatten(-1, (3, heads, -1)).unbind(1)
    scores = torch.einsum("qhk,shk->hqs", query, key) / math.sqrt(query.shape[-1])
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    mixed = torch.einsum("hqs,shk->qhk", scores.masked_fill(later, -math.inf).softmax(-1), value)
    x = x + linear("attention.out", mixed.flatten(1))
    inner = F.gelu(linear("feed_forward.up", norm("feed_forward_norm", x)), approximate="tanh")
    return x + linear("feed_forward.down", inner)


def begin(model: Model, recipe: str, dtype: torch.dtype) -> dict[str, float]:
    """Make the weights of a model on the meta device; where the norms of their gradients will be, of which no more than
    one is kept at a time."""
    sizes = [weight.numel() for weight in model.parameters()]
    needed = sum(sizes) * dtype.itemsize + 4 * max(sizes) + 2_000_000_000  # and one weight in float32 while it is drawn
    if (free := free_bytes()) < needed:
        pytest.skip(f"a layer of {recipe} needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
    materialise(model, lambda value: nn.Parameter(value.to(dtype)))
    norms: dict[str, float] = {}
    for name, weight in model.named_parameters():

        def measured(weight: Tensor, name: str = name) -> None:
            assert weight.grad is not None
            norms[name], weight.grad = float(weight.grad.norm()), None

        weight.register_post_accumulate_grad_hook(measured)
    return norms


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("recipe", "dtype"), GIANTS, ids=str)
def test_one_layer_of_a_giant_goes_forward_and_back(recipe: str, dtype: torch.dtype) -> None:
    giant = load(recipe)
    trunk = replace(giant.trunk, layers=3, dropout=0.0, attention_dropout=0.0)
    with torch.device("meta"):
        model = Model(trunk, giant.objective.losses, 1_000, giant.seed, stage=Stage(1, 3))
    norms = begin(model, recipe, dtype)
    generator = torch.Generator().manual_seed(0)
    x, d_made = (torch.randn(TOKENS, trunk.width, generator=generator).to(dtype) for _ in range(2))
    batch = unpadded(random_rows([TOKENS], 1_000))
    made = model(batch, Given(x.requires_grad_(), None))
    weights = {name.removeprefix("trunk.blocks.1."): weight.detach() for name, weight in model.named_parameters()}
    given = x.detach().requires_grad_()
    wanted = by_hand(weights, given, trunk.heads, trunk.norm_eps)
    wanted.flatten().dot(d_made.flatten()).backward()
    made.flatten().dot(d_made.flatten()).backward()
    assert x.grad is not None
    assert given.grad is not None
    near = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for found, oracle in ((made.detach(), wanted.detach()), (x.grad, given.grad)):
        assert float((found - oracle).norm()) < near * float(oracle.norm())
    assert norms.keys() == {name for name, _ in model.named_parameters()}
    assert all(math.isfinite(norm) and norm > 0 for norm in norms.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_block_of_each_side_of_t5_11b_goes_forward_and_back() -> None:
    giant = load("t5_11b")
    assert isinstance(giant.trunk, EncoderDecoder)
    trunk = replace(giant.trunk, layers=1, dropout=0.0, attention_dropout=0.0)
    with torch.device("meta"):
        model = Model(trunk, giant.objective.losses, VOCAB, giant.seed)
    norms = begin(model, "t5_11b", torch.float32)
    score = model(unpadded(rows_of(trunk, [TOKENS], [TOKENS])))["next_token"]
    (score.loss / score.count).backward()
    assert math.isfinite(score.loss.item())
    assert norms.keys() == {name for name, _ in model.named_parameters()}
    assert all(math.isfinite(norm) and norm > 0 for norm in norms.values())
