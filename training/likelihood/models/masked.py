"""Pseudo-log-likelihood of a text by a masked language model: each token is masked once and predicted from others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from preprocessing.collate import unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.tokenization import SPECIAL, Template, TemplatedRow, Vocab
from training.likelihood import (
    LogP,
    PseudoKind,
    Request,
    TextEncoder,
    each_of,
    encoder,
    join_request,
    split_at_word,
    unknown_of,
)
from training.likelihood.models.batches import (
    MASKED,
    MICRO_TOKENS,
    OnBatch,
    by_length,
    device_of,
    evaluation_mode,
    head_of,
    ignore_activity,
    sum_log_ps,
    tensors,
)
from training.model import Model


@dataclass(frozen=True)
class _Asked:
    """A row of one request with one of its tokens masked."""

    request: int
    row: Row


class _Read(NamedTuple):
    """The row of a request, the places of its continuation, how many tokens of the context are left out, and whether it
    shares a token with that."""

    row: TemplatedRow
    scored: Ints
    cut: int
    shares_token: bool


def masked(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    kind: PseudoKind = "within_word_l2r",
    micro_tokens: int = MICRO_TOKENS,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """The pseudo-log-likelihood of each continuation in the row of the whole text, in the order of the requests.

    With an empty context it is that of the text. Special tokens are read and not predicted. A row that is too long
    loses the beginning of its context. BadInput where the net has no masked tokens, Unscored where a continuation does
    not fit.
    """
    head = head_of(model, MASKED)
    if vocab.mask is None:
        raise BadInput("the vocabulary has no mask; use one that has")
    template, encode, asked = Template(vocab), encoder(vocab), list[_Asked]()
    read = each_of(requests, lambda request: _read(template, encode, request, model.spec.model.longest))
    for number, each in enumerate(read):
        asked += [_Asked(number, _masked(each.row, at, vocab.mask, kind)) for at in each.scored.tolist()]
    cuts, shares = [each.cut for each in read], [each.shares_token for each in read]
    unknown = [unknown_of(vocab, each.row.ids.tolist()) for each in read]
    count_N = np.bincount([each.request for each in asked], minlength=len(cuts))
    log_p_M, right_M = torch.zeros(len(asked), dtype=torch.float64), torch.zeros(len(asked), dtype=torch.bool)
    done = 0
    with evaluation_mode(model):
        for part in by_length(list(enumerate(asked)), lambda each: len(each[1].row["input_ids"]), micro_tokens):
            batch = tensors(unpadded([each.row for _, each in part]), device_of(model))
            log_p, right = head.log_p(model.trunk(batch), batch, model.trunk.table)  # type: ignore[arg-type]
            at = torch.tensor([number for number, _ in part])
            log_p_M[at], right_M[at] = log_p.double().cpu(), right.cpu()
            done += len(part)
            on_batch(done * len(cuts) // len(asked), len(cuts))
    return sum_log_ps(log_p_M, right_M, count_N.tolist(), cuts, unknown, shares) if asked else []


def _read(template: Template, encoder: TextEncoder, request: Request, longest: int) -> _Read:
    """A request as it is read. Its tokens are scored from where those of a decoder are."""
    context, continuation = split_at_word(request)
    start = join_request(encoder, request).start
    row = template.row(context + continuation)
    scored = (row.text != SPECIAL) & (row.stop > start)
    over = max(0, len(row.ids) - longest)
    free = np.flatnonzero((row.text != SPECIAL) & ~scored)
    if over > len(free):
        raise BadInput(f"a continuation of {scored.sum()} tokens does not fit a net of {longest} positions")
    kept = np.setdiff1d(np.arange(len(row.ids)), free[:over])
    return _Read(row.at(kept), np.flatnonzero(scored[kept]), over, start < len(context))


def _masked(row: TemplatedRow, at: int, mask: int, kind: PseudoKind) -> Row:
    """The row with the token at a place masked and asked for."""
    ids_S, labels_S = row.ids.copy(), np.full(len(row.ids), IGNORE, np.int32)
    labels_S[at] = ids_S[at]
    later = (row.word == row.word[at]) & (np.arange(len(ids_S)) > at)
    ids_S[at] = mask
    if kind == "within_word_l2r":
        ids_S[later] = mask
    return {"input_ids": ids_S, "token_type_ids": row.segments, "labels": labels_S}
