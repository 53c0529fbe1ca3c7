"""A program that computes one layer of a giant recipe, either whole or one worker's shard of it.

python -m tests.training.architectures.giant_layer RECIPE DTYPE RANK WORLD FOLDER
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, distributed, nn

from orchestration.config import load
from tests.training.batches import collate_unpadded, random_rows
from training.architectures import WHOLE, PipelineStage, Share, StageInputs
from training.model import Model, materialize

TOKENS, VOCAB = 8, 1_000


def layer_of(recipe: str, share: Share = WHOLE) -> Model:
    """The middle of three pipeline stages with one block each, on the meta device."""
    giant = load(recipe)
    trunk = replace(giant.model, num_hidden_layers=3, hidden_dropout=0.0, attention_dropout=0.0)
    with torch.device("meta"):
        return Model(trunk, giant.losses, VOCAB, giant.seed, share, PipelineStage(1, 3))


def norm_of(x: Tensor) -> float:
    """The norm, summed in chunks in float64: torch's float32 sum on a CPU is off by 3e-3 for 40 million numbers."""
    return math.sqrt(sum(float(piece.double().square().sum()) for piece in x.flatten().split(2**24)))


def initialize(model: Model, dtype: torch.dtype) -> dict[str, float]:
    """Create the weights of a model on the meta device. The returned dictionary receives the norms of their gradients.
    At most one gradient is in memory at a time."""
    materialize(model, lambda value: nn.Parameter(value.to(dtype)))
    norms: dict[str, float] = {}
    for name, weight in model.named_parameters():

        def measured(weight: Tensor, name: str = name) -> None:
            assert weight.grad is not None
            norms[name], weight.grad = norm_of(weight.grad), None

        weight.register_post_accumulate_grad_hook(measured)
    return norms


def inputs_of(width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The input states of the layer, and the gradient of its output states."""
    generator = torch.Generator().manual_seed(0)
    x, d_made = (torch.randn(TOKENS, width, generator=generator).to(dtype) for _ in range(2))
    return x.requires_grad_(), d_made


def forward_and_backward(model: Model, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The output states of the layer, and the gradient of its input states."""
    x, d_made = inputs_of(model.spec.model.hidden_size, dtype)
    made = model(collate_unpadded(random_rows([TOKENS], VOCAB)), StageInputs(x, None))
    made.flatten().dot(d_made.flatten()).backward()
    assert x.grad is not None
    return made.detach(), x.grad


def main(recipe: str, dtype: torch.dtype, rank: int, world: int, folder: Path) -> None:
    """Write RANK.safetensors: outputs, input gradients, and the gradient norms of this worker's weights."""
    distributed.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=world)
    model = layer_of(recipe, Share(rank, world, distributed.group.WORLD))
    norms: dict[str, float] = {}
    # one after the other, because each worker draws the whole weights before it keeps its shard
    for number in range(world):
        if number == rank:
            norms = initialize(model, dtype)
        distributed.barrier()
    made, d_x = forward_and_backward(model, dtype)
    tensors = {"made": made, "d_x": d_x} | {f"norm {name}": torch.tensor(norm) for name, norm in norms.items()}
    safetensors.torch.save_file(tensors, folder / f"{rank}.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
