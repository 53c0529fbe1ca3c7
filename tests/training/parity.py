"""What tests of nets beside transformers have in common: random nets, small vocabularies, folders that are loaded."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from preprocessing import tokenization
from preprocessing.schema import IGNORE
from preprocessing.tokenization import TokenizerSpec
from training.model import Model, ModelSpec

TEXT = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs!"]
ZERO_PAD = tokenization.WordPiece(vocab_size=100)  # its padding is token 0
ONE_PAD = tokenization.ByteLevelBPE(vocab_size=300, special_tokens="roberta")  # its padding is token 1


@cache
def hf() -> Any:
    """transformers. It is slow to import, and each process collects all tests: so only a test that runs imports it."""
    import transformers

    return transformers


def vocabulary(spec: TokenizerSpec, folder: Path) -> Path:
    """The folder, with a small vocabulary in it."""
    tokenization.train(spec, TEXT).save(folder)
    return folder


def built(spec: ModelSpec, seed: int = 0) -> Model:
    """A net that evaluates, with every tensor random: zero biases and unit gains would hide a mistake."""
    model = Model(spec.model, spec.losses, spec.vocab_size, seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.1, generator=generator))
    return model


def weights(model: Model) -> dict[str, Tensor]:
    """Each weight once, whatever shares it: what is saved and exported."""
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def loaded(folder: Path) -> Any:
    """What plain from_pretrained makes of the folder; not one tensor may be missing or left over."""
    config = hf().AutoConfig.from_pretrained(folder)
    architecture = getattr(hf(), config.architectures[0])
    oracle, info = architecture.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    return oracle.eval()


def randomised(oracle: Any, seed: int = 3) -> Any:
    """Their net with every tensor random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in oracle.parameters():
            tensor.normal_(0, 0.2, generator=generator)
    return oracle.eval()


def labels_of(batch: Mapping[str, Tensor]) -> Tensor:
    """Labels [B, S] as transformers takes them, of a padded batch."""
    labels_BS = torch.full_like(batch["input_ids"], IGNORE)
    labels_BS.view(-1)[batch["targets_at"]] = batch["targets"]
    return labels_BS


def inside(batch: Mapping[str, Tensor]) -> Tensor:
    """Which places [B, S] of a padded batch have a token."""
    return torch.arange(batch["input_ids"].shape[1]) < batch["lengths"][:, None]


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    """The gradient of each weight that has one."""
    return {name: weight.grad for name, weight in module.named_parameters() if weight.grad is not None}
