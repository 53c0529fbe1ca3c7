"""A trunk, its heads, how they start, and which of their tensors decay."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.knob import knob, require
from training.objectives import Score, head
from training.spec import Decoder, Loss, Trunk
from training.trunks.transformer import Transformer


@knob
class ModelSpec:
    """All that is needed to build a net: what `export.save_weights` writes beside its tensors."""

    trunk: Trunk
    losses: tuple[Loss, ...]
    vocab_size: int  # rows of the token table; may exceed the tokenizer

    def __post_init__(self) -> None:
        kinds = [loss.kind for loss in self.losses]
        require(len(set(kinds)) == len(kinds) > 0, "losses", kinds, "one or more kinds, each once")
        require(self.vocab_size >= 1, "vocab_size", self.vocab_size, "a whole number from 1 up")


class Model(nn.Module):
    """A trunk and one head per loss; the token table belongs to the trunk and is lent to the heads.

    `Model(...)` under `torch.device("meta")` has shapes but no memory.
    """

    def __init__(self, trunk: Trunk, losses: tuple[Loss, ...], vocab_size: int, seed: int) -> None:
        super().__init__()
        self.spec = ModelSpec(trunk=trunk, losses=tuple(losses), vocab_size=vocab_size)
        device = torch.get_default_device()
        with torch.device("meta"):  # torch's constructors would fill the tensors from the global generator first
            self.trunk = Transformer(trunk, vocab_size)
            self.heads = nn.ModuleDict({loss.kind: head(loss, trunk, vocab_size) for loss in self.spec.losses})
        self.to_empty(device=device)
        initialise(self, trunk, seed)

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Score]:
        """Score of each loss, by its kind."""
        hidden = self.trunk(batch)
        table_VD = self.trunk.tokens.weight  # looked up here: ZeRO-3 gathers a partitioned tensor on attribute access
        return {kind: score(hidden, batch, table_VD) for kind, score in self.heads.items()}

    @property
    def num_parameters(self) -> int:
        """Number of weights; the tied table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


@torch.no_grad()
def initialise(model: nn.Module, trunk: Trunk, seed: int) -> None:
    """Weights normal(0, init_std), biases 0, norm gains 1; a Decoder's residual projections shrink by sqrt(2 layers).

    Each tensor has a generator of its own, from the seed and its name: one more head leaves the others as they were.
    The shrinking is GPT-2's (Radford et al. 2019, 2.3). BERT cuts its normal at two deviations; transformers does not.
    A position table may begin with the sinusoids of arXiv:1706.03762, 3.5, of the same variance: neighbours are then
    alike from the start, which a net of minutes would spend most of its steps on learning.
    """
    for prefix, module in model.named_modules():
        for name, tensor in module.named_parameters(prefix, recurse=False):
            if isinstance(module, nn.LayerNorm) and name.endswith("weight"):
                tensor.fill_(1.0)
            elif tensor.ndim == 1:
                tensor.zero_()
            elif name.endswith("positions.weight") and trunk.position_init == "sinusoidal":
                tensor.copy_(sinusoids(*tensor.shape) * math.sqrt(2) * trunk.init_std)
            else:
                residual = isinstance(trunk, Decoder) and name.endswith(("attention.out.weight", "down.weight"))
                std = trunk.init_std / (math.sqrt(2 * trunk.layers) if residual else 1.0)
                address = hashlib.sha256(f"{seed} {name}".encode()).digest()[:4]  # torch's generator reads 32 bits
                tensor.normal_(0.0, std, generator=torch.Generator().manual_seed(int.from_bytes(address, "big")))


def sinusoids(num: int, width: int) -> Tensor:
    """Sines and cosines [num, width] of geometrically spaced frequencies, interleaved (arXiv:1706.03762, 3.5).

    >>> sinusoids(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    angle = torch.arange(num)[:, None] * 10_000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]


def parameter_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimiser: matrices and tables, which decay, and norms and biases, which do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
