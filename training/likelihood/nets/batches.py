"""What nets that are asked have in common: their head, batches of like length, evaluation without a gradient."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.schema import Batch
from training.losses.heads import AdaptiveHead, MaskedTokensHead, NextTokenHead
from training.model import Model

Head = AdaptiveHead | MaskedTokensHead | NextTokenHead
T = TypeVar("T")

MICRO_TOKENS: Final = 16_384
CAUSAL: Final = (AdaptiveHead, NextTokenHead)
MASKED: Final = (MaskedTokensHead,)


def head_of(model: Model, kinds: tuple[type[Head], ...]) -> Head:
    """The head of one of these kinds. BadInput where the net has none, or has an encoder and a decoder, or two nets."""
    trunk = model.spec.trunk
    found = next((head for head in model.heads.values() if isinstance(head, kinds)), None)
    if found is None or trunk.reads_source or len(trunk.nets) > 1:
        raise BadInput(
            f"this net, {trunk.kind} with {', '.join(model.heads) or 'no head'}, gives no likelihood of a text; use a "
            "decoder with next_token, or an encoder with masked_tokens"
        )
    return found


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Without dropout and without gradients; afterwards the model trains again, if it did before."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def by_length(given: Sequence[T], size: Callable[[T], int], micro_tokens: int) -> Iterator[list[T]]:
    """All of them, the longest first, in batches of at most `micro_tokens` tokens with padding, or of a single one.

    >>> list(by_length(["a", "bb", "ccc", "d"], len, 4))
    [['ccc'], ['bb', 'a'], ['d']]
    """
    batch = list[T]()
    for each in sorted(given, key=size, reverse=True):
        if batch and (len(batch) + 1) * size(batch[0]) > micro_tokens:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def tensors(batch: Batch | Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """A batch on a device; `lengths` stay on the CPU, where the layout of rows is worked out."""
    return {
        name: torch.from_numpy(array) if name == "lengths" else torch.from_numpy(array).to(device)
        for name, array in batch.items()
    }


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device
