"""Perplexity of texts of any length by a decoder, in windows, or with a memory that is carried along."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from preprocessing.collate import unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Row
from preprocessing.vocab import Vocab
from training.likelihood import Pair, Perplexity, Text, first_of, windows
from training.likelihood.nets.batches import CAUSAL, MICRO_TOKENS, device_of, evaluating, head_of, tensors
from training.likelihood.nets.causal import token_log_ps
from training.model import Model

_SLOT: Final = -1  # of the memory: below those of training
_MOST: Final = 1_024  # tokens of a window where positions need no table


def perplexity(
    model: Model,
    vocab: Vocab,
    texts: Sequence[Text],
    *,
    window: int = 0,
    stride: int = 0,
    carry: bool = False,
    micro_tokens: int = MICRO_TOKENS,
) -> Perplexity:
    """How well a decoder predicts texts, each on its own behind the token that begins a text.

    A prediction is from at most `window` tokens (0: as many as the net has positions, 1,024 at most), and each window
    predicts `stride` new ones (0: as many, so that windows are disjoint, as in lm-eval). With `carry` each window has
    the memory of those before it (Transformer-XL, arXiv:1901.02860, 3.2); then windows are disjoint. BadInput where the
    net is no decoder, has no such memory, or the numbers do not fit it.
    """
    head_of(model, CAUSAL)
    window, stride = _sizes(model, window, stride, carry)
    ids = [vocab.encode(text.text) for text in texts]
    if carry:
        nats = -sum(_carried(model, first_of(vocab), each, window) for each in ids if each)
    else:
        pairs = chain.from_iterable(pairs_of([first_of(vocab), *each], window, stride) for each in ids)
        found = token_log_ps(model, list(pairs), micro_tokens=micro_tokens, share=False)
        nats = -sum(float(each.nats_S.sum()) for each in found)
    words, num_bytes = sum(text.words for text in texts), sum(text.bytes for text in texts)
    memory = model.spec.trunk.memory if carry else 0
    return Perplexity(nats, sum(map(len, ids)), words, num_bytes, window, stride, memory)


def pairs_of(ids: Sequence[int], window: int, stride: int) -> list[Pair]:
    """The windows over a text whose first id is that behind which it begins.

    >>> pairs_of([0, 1, 2, 3, 4, 5], window=3, stride=3)
    [([0], [1, 2, 3]), ([2, 3], [4, 5])]
    """
    return [
        (list(ids[begin + 1 : first + 1]), list(ids[first + 1 : stop + 1]))
        for begin, first, stop in windows(len(ids) - 1, window, stride)
    ]


def _sizes(model: Model, window: int, stride: int, carry: bool) -> tuple[int, int]:
    """Window and stride as they are used."""
    trunk = model.spec.trunk
    if carry and not trunk.memory:
        raise BadInput("this net has no memory to carry along; leave `carry` out")
    if carry and stride not in (0, window):
        raise BadInput(f"stride is {stride}, allowed is {window}, the window, where a memory is carried along")
    window = window or min(trunk.longest, _MOST)
    if not 1 <= window <= trunk.longest:
        raise BadInput(f"window is {window}, allowed is 1 to {trunk.longest}, the positions of the net")
    if not 1 <= (stride or window) <= window:
        raise BadInput(f"stride is {stride}, allowed is 1 to {window}, the window")
    return window, stride or window


def _carried(model: Model, first: int, ids: Sequence[int], window: int) -> float:
    """The log-probability of a text, window by window, each with the memory of those before it."""
    whole, total, head = np.array([first, *ids], np.int32), 0.0, head_of(model, CAUSAL)
    with evaluating(model):
        for start in range(0, len(ids), window):
            stop = min(start + window, len(ids))
            row: Row = {
                "ids": whole[start:stop],
                "segments": np.zeros(stop - start, np.int8),
                "labels": whole[start + 1 : stop + 1],
            }
            assert IGNORE not in row["labels"]
            batch = unpadded([row]) | {"slot": np.array(_SLOT), "fresh": np.array([start == 0])}
            columns = tensors(batch, device_of(model))
            log_p_M, _ = head.log_p(model.trunk(columns), columns, model.trunk.table)  # type: ignore[arg-type]
            total += float(log_p_M.double().sum())
    return total
