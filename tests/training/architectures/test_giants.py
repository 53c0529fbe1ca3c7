"""One layer of each giant recipe is computed at its published size. It is the middle of three pipeline stages with one
block each, in one process and split over several workers (tensor parallelism). Of T5, one block of each side is
computed."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from orchestration.config import load
from tests.training.architectures.giant_layer import TOKENS, forward_and_backward, initialize, inputs_of, layer_of
from tests.training.batches import collate_unpadded
from tests.training.encoder_decoders import VOCAB, rows_of
from training.model import Model
from training.specs import EncoderDecoder

GIANTS = [
    ("megatron_8b", torch.float32, 8),  # workers that share the layer, as in the paper
    *((name, torch.float32, 2) for name in ("gpt3_6_7b", "gpt3_13b", "turing_nlg", "gpt3_175b")),
    ("mt_nlg_530b", torch.bfloat16, 2),
]
# weights that are split over the workers; the others are whole on all workers
SPLIT = ("attention.qkv.weight", "attention.qkv.bias", "attention.out.weight", "up.weight", "up.bias", "down.weight")


def available_bytes() -> int:
    """Available memory, as Linux reports it."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def reference_block(weights: dict[str, Tensor], x: Tensor, heads: int, eps: float) -> Tensor:
    """A pre-norm block of GPT-2 (2.3), implemented a second time."""

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


def skip_without_memory(model: Model, recipe: str, dtype: torch.dtype) -> None:
    sizes = [weight.numel() for weight in model.parameters()]
    # includes one weight in float32 during initialization
    needed = sum(sizes) * dtype.itemsize + 4 * max(sizes) + 2_000_000_000
    if (free := available_bytes()) < needed:
        pytest.skip(f"a layer of {recipe} needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")


def run_split(recipe: str, dtype: torch.dtype, of: int, folder: Path) -> list[dict[str, Tensor]]:
    """The results of `of` workers that each compute a shard of the layer."""
    program = [
        sys.executable,
        "-m",
        "tests.training.architectures.giant_layer",
        recipe,
        str(dtype).removeprefix("torch."),
    ]
    workers = [subprocess.Popen([*program, str(rank), str(of), str(folder)]) for rank in range(of)]
    try:
        codes = [worker.wait(timeout=1500) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert codes == [0] * of
    return [safetensors.torch.load_file(folder / f"{rank}.safetensors") for rank in range(of)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("recipe", "dtype", "of"), GIANTS, ids=str)
def test_one_giant_layer_computes_forward_and_backward(
    recipe: str, dtype: torch.dtype, of: int, tmp_path: Path
) -> None:
    model = layer_of(recipe)
    skip_without_memory(model, recipe, dtype)
    norms, trunk = initialize(model, dtype), model.spec.model
    weights = {name.removeprefix("trunk.blocks.1."): weight.detach() for name, weight in model.named_parameters()}
    x, d_made = inputs_of(trunk.hidden_size, dtype)
    wanted = reference_block(weights, x, trunk.num_attention_heads, trunk.norm_eps)
    wanted.flatten().dot(d_made.flatten()).backward()
    wanted, d_wanted = wanted.detach(), x.grad
    assert d_wanted is not None
    near = 2e-2 if dtype == torch.bfloat16 else 1e-5

    def check(made: Tensor, d_x: Tensor) -> None:
        for found, oracle in ((made, wanted), (d_x, d_wanted)):
            assert float((found - oracle).norm()) < near * float(oracle.norm())

    check(*forward_and_backward(model, dtype))
    assert norms.keys() == {name for name, _ in model.named_parameters()}
    assert all(math.isfinite(norm) and norm > 0 for norm in norms.values())
    del model, weights
    shares = run_split(recipe, dtype, of, tmp_path)
    for seen in shares:
        check(seen["made"], seen["d_x"])
    for name, norm in norms.items():
        parts = torch.stack([seen[f"norm {name}"] for seen in shares])
        found = parts.norm() if name.endswith(SPLIT) else parts.max()
        assert float(found) == pytest.approx(norm, rel=near), name


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_block_of_each_side_of_t5_11b_computes_forward_and_backward() -> None:
    giant = load("t5_11b")
    assert isinstance(giant.model, EncoderDecoder)
    trunk = replace(giant.model, num_hidden_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
    with torch.device("meta"):
        model = Model(trunk, giant.losses, VOCAB, giant.seed)
    skip_without_memory(model, "t5_11b", torch.float32)
    norms = initialize(model, torch.float32)
    score = model(collate_unpadded(rows_of(trunk, [TOKENS], [TOKENS])))["next_token"]
    (score.loss / score.count).backward()
    assert math.isfinite(score.loss.item())
    assert norms.keys() == {name for name, _ in model.named_parameters()}
    assert all(math.isfinite(norm) and norm > 0 for norm in norms.values())
