"""Shared functions of the likelihood models: heads, batches of similar length, evaluation without gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.schema import Batch
from training.evaluation.likelihood import LogP
from training.losses import LogitsFor
from training.losses.heads import AdaptiveHead, TokenHead
from training.model import Model

OnBatch = Callable[[int, int], None]
"""Receives the number of finished texts and the total number."""

Head = AdaptiveHead | TokenHead
T = TypeVar("T")

MICRO_TOKENS: Final = 16_384


def ignore_activity(done: int, of: int) -> None:
    """Default `on_batch`: do nothing."""


def head_of(model: Model, logits_for: LogitsFor, *, reads_source: bool = False) -> Head:
    """Return the head that predicts tokens in this way; for a model that predicts in any order, that for masked tokens.

    Raises BadInput if the model has no such head or two networks, or if it differs in whether it reads a source.
    """
    trunk = model.spec.model
    head = model.head_for(logits_for)
    if head is None or trunk.reads_source != reads_source or len(trunk.nets) > 1:
        raise BadInput(
            f"cannot compute likelihoods with this model ({trunk.kind} with {', '.join(model.heads) or 'no head'}); "
            "use a decoder with next_token, or an encoder with masked_tokens (for ELECTRA, the generator)"
        )
    return head


def sum_log_ps(
    log_p_M: Tensor,
    right_M: Tensor,
    counts: Sequence[int],
    cuts: Sequence[int],
    unknown: Sequence[int],
    shares_token: Sequence[bool],
) -> list[LogP]:
    """Sum the log-probabilities of consecutive targets, `counts` per continuation.

    `cuts` has the number of dropped context tokens of each request, and `unknown` the number of unknown tokens.
    """
    stops = np.cumsum(counts)
    nats_M, right = log_p_M.double().cpu().numpy(), right_M.cpu().numpy()
    starts = stops - np.asarray(counts, np.int64)
    total_N, greedy_N = np.add.reduceat(nats_M, starts), np.logical_and.reduceat(right, starts)
    last = nats_M[stops - 1].tolist(), right[stops - 1].tolist()
    return list(map(LogP, total_N.tolist(), counts, greedy_N.tolist(), cuts, *last, unknown, shares_token))


@contextmanager
def evaluation_mode(model: Model) -> Iterator[None]:
    """Disable dropout and gradients; restore the training mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def by_length(
    values: Sequence[T], size: Callable[[T], int], micro_tokens: int, least: float = 0.0
) -> Iterator[list[T]]:
    """Yield batches of the values, the longest values first.

    A padded batch has at most `micro_tokens` tokens, unless it has only one value. The size of each value is at least
    `least` times the largest size in its batch.

    >>> list(by_length(["a", "bb", "ccc", "d"], len, 4)), list(by_length(["a", "bb", "ccc"], len, 9, least=0.6))
    ([['ccc'], ['bb', 'a'], ['d']], [['ccc', 'bb'], ['a']])
    """
    batch = list[T]()
    for each in sorted(values, key=size, reverse=True):
        if batch and ((len(batch) + 1) * size(batch[0]) > micro_tokens or size(each) < least * size(batch[0])):
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def tensors(batch: Batch | Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Move a batch to a device; `lengths` stay on the CPU, where the layout of sequences is computed."""
    return {
        name: torch.from_numpy(array) if name == "lengths" else torch.from_numpy(array).to(device)
        for name, array in batch.items()
    }


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device
