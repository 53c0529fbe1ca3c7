"""A trunk, its heads, how they start, and which of their tensors decay."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.spec import require, spec
from training.losses import Loss, MaskedTokens, check_losses
from training.losses.heads import MaskedTokensHead, head
from training.score import Score
from training.specs import Decoder, Encoder, EncoderDecoder, Trunk, Twin, TwoStream
from training.trunks import FROZEN, EncoderDecoderNet, RelativeDecoder, Transformer, TwinNet, TwoStreamNet, sinusoids_at

Net = Transformer | RelativeDecoder | EncoderDecoderNet | TwoStreamNet | TwinNet


@spec
class ModelSpec:
    """All that is needed to build a net: what `export.save_weights` writes beside its tensors."""

    trunk: Trunk
    losses: tuple[Loss, ...]
    vocab_size: int  # rows of the token table; may exceed the tokenizer

    def __post_init__(self) -> None:
        check_losses(self.trunk, self.losses)
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
            self.trunk = build(trunk, vocab_size)
            self.heads = nn.ModuleDict({loss.kind: head(loss, trunk, vocab_size) for loss in self.spec.losses})
        self.to_empty(device=device)
        initialise(self, trunk, seed)

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Score]:
        """Score of each loss, by its kind."""
        if isinstance(self.trunk, TwinNet):
            return self.trunk.scores(batch, self.heads)
        hidden, table = self.trunk(batch), self.trunk.table
        return {kind: score(hidden, batch, table) for kind, score in self.heads.items()}

    @property
    def num_parameters(self) -> int:
        """Number of weights; the tied table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def build(trunk: Trunk, vocab_size: int) -> Net:
    """The net that a spec describes."""
    match trunk:
        case Decoder(positions="relative"):
            return RelativeDecoder(trunk, vocab_size)
        case Encoder() | Decoder():
            return Transformer(trunk, vocab_size)
        case EncoderDecoder():
            return EncoderDecoderNet(trunk, vocab_size)
        case TwoStream():
            return TwoStreamNet(trunk, vocab_size)
        case Twin():
            is_frozen = trunk.samples == "frozen"
            frozen = MaskedTokensHead(MaskedTokens(), trunk.generator_net, vocab_size) if is_frozen else None
            return TwinNet(trunk, vocab_size, frozen)


@torch.no_grad()
def initialise(model: nn.Module, trunk: Trunk, seed: int) -> None:
    """Weights normal(0, init_std) or what the trunk says of them, biases 0, norm gains 1.

    Each tensor has a generator of its own, from the seed and its name: one more head leaves the others as they were.
    `truncated` cuts the normal at two deviations, as BERT does and transformers does not.
    A position table may begin with the sinusoids of arXiv:1706.03762, 3.5, of the same variance: neighbours are then
    alike from the start, which a net of minutes would spend most of its steps on learning.
    """
    net = model.trunk
    assert isinstance(net, Net)
    for prefix, module in model.named_modules():
        for name, tensor in module.named_parameters(prefix, recurse=False):
            if isinstance(module, nn.LayerNorm | nn.RMSNorm) and name.endswith("weight"):
                tensor.fill_(1.0)
            elif tensor.ndim == 1:
                tensor.zero_()
            elif name.endswith("positions.weight") and getattr(trunk, "position_init", "normal") == "sinusoidal":
                at = torch.arange(len(tensor), device=tensor.device)
                tensor.copy_(sinusoids_at(at, tensor.shape[1]) * math.sqrt(2) * trunk.init_std)
            else:
                its_own = name.startswith("trunk.") or isinstance(net, RelativeDecoder)
                std = net.std(name) if its_own else trunk.init_std
                address = hashlib.sha256(f"{seed} {name}".encode()).digest()[:4]  # torch's generator reads 32 bits
                generator = torch.Generator().manual_seed(int.from_bytes(address, "big"))
                if getattr(trunk, "init", "normal") == "truncated":
                    nn.init.trunc_normal_(tensor, 0.0, std, -2 * std, 2 * std, generator=generator)
                else:
                    tensor.normal_(0.0, std, generator=generator)


def parameter_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimiser: matrices and tables, which decay, and norms and biases, which do not.

    Nor does what is frozen. It never has a gradient, so that it stays; the optimiser knows it, as ZeRO wants it.
    """
    decaying: list[Tensor] = []
    constant: list[Tensor] = []
    for name, parameter in model.named_parameters():
        (decaying if parameter.ndim > 1 and not name.startswith(FROZEN) else constant).append(parameter)
    return [{"params": decaying, "weight_decay": decay}, {"params": constant, "weight_decay": 0.0}]
