"""Common code of comparisons with transformers: random models, small vocabularies, and loading of exports."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from preprocessing import tokenization
from preprocessing.schema import IGNORE
from preprocessing.tokenization import TokenizerSpec
from training.model import Model
from training.model_spec import ModelSpec

TEXT = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs!"]
ZERO_PAD = tokenization.WordPiece(vocab_size=100)  # its padding is token 0
ONE_PAD = tokenization.ByteLevelBPE(vocab_size=300, special_tokens="roberta")  # its padding is token 1


@cache
def hf() -> Any:
    """The module transformers. Its import is slow, so that only a running test imports it, and not the collection of
    tests."""
    import transformers

    return transformers


def vocabulary(spec: TokenizerSpec, folder: Path) -> Path:
    """Save a small vocabulary in the directory, and return the directory."""
    tokenization.train(spec, TEXT).save(folder)
    return folder


def built(spec: ModelSpec, seed: int = 0) -> Model:
    """A model in evaluation mode with every tensor random: zero biases and unit gains would hide an error."""
    model = Model(spec.model, spec.losses, spec.vocab_size, seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.1, generator=generator))
    return model


def weights(model: Model) -> dict[str, Tensor]:
    """Each weight once, also if it is shared: these weights are saved and exported."""
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def loaded(folder: Path) -> Any:
    """The directory loaded by plain from_pretrained. No tensor may be missing or superfluous."""
    config = hf().AutoConfig.from_pretrained(folder)
    architecture = getattr(hf(), config.architectures[0])
    oracle, info = architecture.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    return oracle.eval()


def randomized(oracle: Any, seed: int = 3) -> Any:
    """Their model with every tensor random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in oracle.parameters():
            tensor.normal_(0, 0.2, generator=generator)
    return oracle.eval()


def labels_of(batch: Mapping[str, Tensor]) -> Tensor:
    """Labels [B, S] of a padded batch, as transformers takes them."""
    labels_BS = torch.full_like(batch["input_ids"], IGNORE)
    labels_BS.view(-1)[batch["targets_at"]] = batch["targets"]
    return labels_BS


def inside(batch: Mapping[str, Tensor]) -> Tensor:
    """Mask [B, S] of the tokens in a padded batch."""
    return torch.arange(batch["input_ids"].shape[1]) < batch["lengths"][:, None]


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    """The gradients of all weights that have one."""
    return {name: weight.grad for name, weight in module.named_parameters() if weight.grad is not None}
