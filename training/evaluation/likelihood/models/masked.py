"""Pseudo-log-likelihood of a text by a masked language model: mask each token once and predict it from the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.tokenization import SPECIAL, Template, TemplatedRow, Vocab
from training.evaluation.likelihood import (
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
from training.evaluation.likelihood.models.batches import (
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
class _MaskedSequence:
    """The sequence of a request, with one masked token."""

    request: int
    row: Row


class _EncodedRequest(NamedTuple):
    """The sequence of a request and the positions of its continuation.

    `cut` is the number of dropped context tokens; `shares_token` is as in LogP.
    """

    row: TemplatedRow
    scored: Ints
    cut: int
    shares_token: bool


def score_masked(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    kind: PseudoKind = "within_word_l2r",
    micro_tokens: int = MICRO_TOKENS,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """Return the pseudo-log-likelihood of each continuation within the whole text, in the order of the requests.

    With an empty context, this is the pseudo-log-likelihood of the text. Special tokens are read, but not predicted.
    If a sequence is too long, the start of its context is dropped. Raises BadInput if the model has no masked-token
    head, and UnscoredRequests if a continuation is too long.
    """
    head = head_of(model, "masked")
    if vocab.mask is None:
        raise BadInput("the vocabulary has no mask token; use a masked language model")
    template, encode, sequences = Template(vocab), encoder(vocab), list[_MaskedSequence]()
    encoded = each_of(requests, lambda request: _read(template, encode, request, model.spec.model.longest))
    for number, each in enumerate(encoded):
        sequences += [
            _MaskedSequence(number, _mask_token(each.row, at, vocab.mask, kind)) for at in each.scored.tolist()
        ]
    cuts, shares = [each.cut for each in encoded], [each.shares_token for each in encoded]
    unknown = [unknown_of(vocab, each.row.ids.tolist()) for each in encoded]
    count_N = np.bincount([each.request for each in sequences], minlength=len(cuts))
    log_p_M, right_M = torch.zeros(len(sequences), dtype=torch.float64), torch.zeros(len(sequences), dtype=torch.bool)
    done = 0
    with evaluation_mode(model):
        for part in by_length(list(enumerate(sequences)), lambda each: len(each[1].row["input_ids"]), micro_tokens):
            batch = tensors(collate_unpadded([each.row for _, each in part]), device_of(model))
            log_p, right = head.log_p(model.trunk(batch), batch, model.trunk.table)  # type: ignore[arg-type]
            at = torch.tensor([number for number, _ in part])
            log_p_M[at], right_M[at] = log_p.double().cpu(), right.cpu()
            done += len(part)
            on_batch(done * len(cuts) // len(sequences), len(cuts))
    return sum_log_ps(log_p_M, right_M, count_N.tolist(), cuts, unknown, shares) if sequences else []


def _read(template: Template, encoder: TextEncoder, request: Request, longest: int) -> _EncodedRequest:
    """Encode a request. Scoring starts at the same character as for a decoder."""
    context, continuation = split_at_word(request)
    start = join_request(encoder, request).start
    row = template.row(context + continuation)
    scored = (row.text != SPECIAL) & (row.stop > start)
    over = max(0, len(row.ids) - longest)
    free = np.flatnonzero((row.text != SPECIAL) & ~scored)
    if over > len(free):
        most = longest - (len(row.ids) - len(free) - int(scored.sum()))
        raise BadInput(f"continuation too long: got {scored.sum()} tokens, expected at most {most}; shorten it")
    kept = np.setdiff1d(np.arange(len(row.ids)), free[:over])
    return _EncodedRequest(row.at(kept), np.flatnonzero(scored[kept]), over, start < len(context))


def _mask_token(row: TemplatedRow, at: int, mask: int, kind: PseudoKind) -> Row:
    """The sequence in which the token at position `at` is masked; this token is the only label."""
    ids_S, labels_S = row.ids.copy(), np.full(len(row.ids), IGNORE, np.int32)
    labels_S[at] = ids_S[at]
    later = (row.word == row.word[at]) & (np.arange(len(ids_S)) > at)
    ids_S[at] = mask
    if kind == "within_word_l2r":
        ids_S[later] = mask
    return {"input_ids": ids_S, "token_type_ids": row.segments, "labels": labels_S}
