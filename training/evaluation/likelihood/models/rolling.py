"""Perplexity of texts of any length by a decoder, or by XLNet in the order of the text. Texts are read in windows,
optionally with a memory of earlier windows."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood import (
    MOST_WINDOW,
    Pair,
    Perplexity,
    PerplexityText,
    Windowing,
    first_of,
    targets_of,
    total,
    windows,
)
from training.evaluation.likelihood.models.batches import (
    MICRO_TOKENS,
    OnBatch,
    device_of,
    evaluation_mode,
    head_of,
    ignore_activity,
    tensors,
)
from training.evaluation.likelihood.models.causal import token_log_ps
from training.evaluation.likelihood.models.ordered import in_order
from training.model import Model
from training.specs import Architecture, RelativePositions

_SLOT: Final = -1  # memory slot of the evaluation; slots of training are 0 or more


def perplexity(
    model: Model,
    vocab: Vocab,
    texts: Sequence[PerplexityText],
    *,
    window: int = 0,
    stride: int = 0,
    carry: bool = False,
    micro_tokens: int = MICRO_TOKENS,
) -> Perplexity:
    """Return the perplexity of all texts together; the parameters are those of `perplexities`."""
    return total(perplexities(model, vocab, texts, Windowing(window, stride, carry), micro_tokens))


def perplexities(
    model: Model,
    vocab: Vocab,
    texts: Sequence[PerplexityText],
    windowing: Windowing,
    micro_tokens: int = MICRO_TOKENS,
    on_batch: OnBatch = ignore_activity,
) -> list[Perplexity]:
    """Return the perplexity of each text, read separately after the start token.

    A prediction uses at most `window` tokens (0: all positions of the model, at most 1,024). Each window predicts
    `stride` new tokens (0: equal to the window, so windows are disjoint, as in lm-eval). With `carry`, each window
    has the memory of earlier windows (Transformer-XL, arXiv:1901.02860, 3.2), and windows must be disjoint. Raises
    BadInput if the model is not a decoder, has no such memory, or the windows do not fit it.
    """
    head_of(model, "causal")
    window, stride = _sizes(model, *windowing)
    targets = [targets_of(vocab, text) for text in texts]
    first = first_of(vocab)
    if windowing.carry:
        nats = [score_with_memory(model, first, each.ids, window, on_batch) for each in targets]
    else:
        pairs = [pairs_of([first, *each.ids], window, stride) for each in targets]
        flat = list(chain.from_iterable(pairs))
        results = iter(token_log_ps(model, flat, micro_tokens=micro_tokens, share=False, on_batch=on_batch))
        nats = [sum(float(next(results).nats_S.sum()) for _ in each) for each in pairs]
    memory = _memory(model.spec.model) if windowing.carry else 0
    return [
        Perplexity(
            -one, len(each.ids), each.words, text.bytes, window, stride, memory, each.unknown, each.ends_left_out
        )
        for one, each, text in zip(nats, targets, texts, strict=True)
    ]


def pairs_of(ids: Sequence[int], window: int, stride: int) -> list[Pair]:
    """Split a text into windows of context and continuation; the first ID is the start token.

    >>> pairs_of([0, 1, 2, 3, 4, 5], window=3, stride=3)
    [([0], [1, 2, 3]), ([2, 3], [4, 5])]
    """
    return [
        (list(ids[begin + 1 : first + 1]), list(ids[first + 1 : stop + 1]))
        for begin, first, stop in windows(len(ids) - 1, window, stride)
    ]


def _sizes(model: Model, window: int, stride: int, carry: bool) -> tuple[int, int]:
    """Return the effective window and stride. Raises BadInput if they do not fit the model."""
    trunk = model.spec.model
    if carry and not trunk.mem_len:
        raise BadInput("invalid carry_memory: got true, but the model has no memory; remove carry_memory")
    if carry and stride not in (0, window):
        raise BadInput(
            f"invalid stride: got {stride}, expected {window}, equal to the window, because carry_memory is true"
        )
    window = window or min(trunk.longest, MOST_WINDOW, (trunk.reuse_len or MOST_WINDOW) if carry else MOST_WINDOW)
    if carry and trunk.reuse_len and window > trunk.reuse_len:
        raise BadInput(
            f"invalid window: got {window}, expected 1 to {trunk.reuse_len} (reuse_len), the size of the memory"
        )
    least = 2 if carry and trunk.hides_own_token else 1  # XLNet does not predict the start token
    if not least <= window <= trunk.longest:
        raise BadInput(f"invalid window: got {window}, expected {least} to {trunk.longest} (positions of the model)")
    if not 1 <= (stride or window) <= window:
        raise BadInput(f"invalid stride: got {stride}, expected 1 to {window} (window)")
    return window, stride or window


def _memory(trunk: Architecture) -> int:
    """The size of the memory in an evaluation: the number of tokens before a window."""
    return (
        trunk.position_embedding.reach(training=False)[0]
        if isinstance(trunk.position_embedding, RelativePositions)
        else trunk.mem_len
    )


def score_with_memory(
    model: Model, first: int, ids: Sequence[int], window: int, on_batch: OnBatch = ignore_activity
) -> float:
    """Return the log-probability of a text; each window has the memory of earlier windows."""
    whole, nats, head = [first, *ids], 0.0, head_of(model, "causal")
    queries = model.spec.model.hides_own_token  # queries are at the positions that they predict
    end = len(whole) if queries else len(ids)
    with evaluation_mode(model):
        for start in range(0, end if ids else 0, window):
            stop = min(start + window, end)
            row = in_order(whole[start:stop], int(start == 0)) if queries else _shift_row(whole, start, stop)
            batch = collate_unpadded([row]) | {"slot": np.array(_SLOT), "fresh": np.array([start == 0])}
            columns = tensors(batch, device_of(model))
            log_p_M, _ = head.log_p(model.trunk(columns), columns, model.trunk.table)  # type: ignore[arg-type]
            nats += float(log_p_M.double().sum())
            on_batch(stop, end)
    return nats


def _shift_row(ids: Sequence[int], start: int, stop: int) -> Row:
    """A sequence whose tokens predict their successors."""
    return {
        "input_ids": np.array(ids[start:stop], np.int32),
        "token_type_ids": np.zeros(stop - start, np.int8),
        "labels": np.array(ids[start + 1 : stop + 1], np.int32),
    }
