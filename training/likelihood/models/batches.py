"""What nets that are asked have in common: their head, batches of like length, evaluation without a gradient."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.schema import Batch
from training.likelihood import LogP
from training.losses.heads import AdaptiveHead, MaskedTokensHead, NextTokenHead
from training.model import Model

OnBatch = Callable[[int, int], None]
"""Takes how many texts are answered, and how many there are."""

Head = AdaptiveHead | MaskedTokensHead | NextTokenHead
T = TypeVar("T")

MICRO_TOKENS: Final = 16_384
CAUSAL: Final = (AdaptiveHead, NextTokenHead)
MASKED: Final = (MaskedTokensHead,)
SOURCE: Final = (NextTokenHead, MaskedTokensHead)


def ignore_activity(done: int, of: int) -> None:
    """The `on_batch` of nets that nobody waits for."""


def head_of(model: Model, kinds: tuple[type[Head], ...]) -> Head:
    """The head of one of these kinds; of a net that predicts in any order the one that fills in. BadInput where the net
    has none, where it has two nets, and where it reads a source that is not asked for or the other way round."""
    trunk = model.spec.model
    kinds = MASKED if trunk.hides_own_token else kinds
    found = next((head for head in model.heads.values() if isinstance(head, kinds)), None)
    if found is None or trunk.reads_source != (kinds == SOURCE) or len(trunk.nets) > 1:
        raise BadInput(
            f"this net, {trunk.kind} with {', '.join(model.heads) or 'no head'}, gives no likelihood of a text; use a "
            "decoder with next_token, or an encoder with masked_tokens (of ELECTRA the generator)"
        )
    return found


def sum_log_ps(
    log_p_M: Tensor,
    right_M: Tensor,
    counts: Sequence[int],
    cuts: Sequence[int],
    unknown: Sequence[int],
    shares_token: Sequence[bool],
) -> list[LogP]:
    """Targets in runs of `counts` as log-probabilities of continuations, which lost `cuts` tokens of their context;
    `unknown` tokens of both are not in the vocabulary."""
    stops = np.cumsum(counts)
    nats_M, right = log_p_M.double().cpu().numpy(), right_M.cpu().numpy()
    starts = stops - np.asarray(counts, np.int64)
    total_N, greedy_N = np.add.reduceat(nats_M, starts), np.logical_and.reduceat(right, starts)
    last = nats_M[stops - 1].tolist(), right[stops - 1].tolist()
    return list(map(LogP, total_N.tolist(), counts, greedy_N.tolist(), cuts, *last, unknown, shares_token))


@contextmanager
def evaluation_mode(model: Model) -> Iterator[None]:
    """Without dropout and without gradients; afterwards the model trains again, if it did before."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def by_length(given: Sequence[T], size: Callable[[T], int], micro_tokens: int, least: float = 0.0) -> Iterator[list[T]]:
    """All of them, the longest first, in batches of at most `micro_tokens` tokens with padding, or of a single one. In
    a batch none is shorter than `least` of the longest.

    >>> list(by_length(["a", "bb", "ccc", "d"], len, 4)), list(by_length(["a", "bb", "ccc"], len, 9, least=0.6))
    ([['ccc'], ['bb', 'a'], ['d']], [['ccc', 'bb'], ['a']])
    """
    batch = list[T]()
    for each in sorted(given, key=size, reverse=True):
        if batch and ((len(batch) + 1) * size(batch[0]) > micro_tokens or size(each) < least * size(batch[0])):
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
