"""Log-probabilities of a decoder on top of an encoder (BART, T5, PEGASUS): the context is the source.

The decoder begins as in pretraining: with padding (T5, PEGASUS), or with the token that ends a row and the one that
begins it (BART). The token that ends a row is not scored, so that options may go on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from preprocessing.collate import unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Row
from preprocessing.tokenization import Template, Vocab
from training.formats import FORMATS, model_type
from training.likelihood import (
    LogP,
    Pair,
    Request,
    TextEncoder,
    each_of,
    encoder,
    join_request,
    no_token,
    split_at_word,
    unknown_of,
)
from training.likelihood.models.batches import (
    MICRO_TOKENS,
    SOURCE,
    OnBatch,
    by_length,
    device_of,
    evaluation_mode,
    head_of,
    ignore_activity,
    sum_log_ps,
    tensors,
)
from training.model import Model, ModelSpec


def seq2seq(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    micro_tokens: int = MICRO_TOKENS,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """The log-probability of each continuation behind its context as source, in the order of the requests.

    A source that is too long loses tokens at its beginning. Unscored where a continuation does not fit.
    """
    head, template, longest = head_of(model, SOURCE), Template(vocab), model.spec.model.longest
    begins, encode = begins_with(model.spec, vocab), encoder(vocab)

    def fitting(request: Request) -> SourceAndTarget:
        read = sides(template, encode, request)
        if len(begins) + len(read.continuation) - 1 > longest:
            raise BadInput(
                f"a continuation of {len(read.continuation)} tokens does not fit a net of {longest} positions"
            )
        return read

    both = each_of(requests, fitting)
    cuts = [max(0, len(each.source) - longest) for each in both]
    rows = [_row(each.source[cut:], (begins, each.continuation)) for each, cut in zip(both, cuts, strict=True)]
    unknown = [
        unknown_of(vocab, [*each.source[cut:], *each.continuation]) for each, cut in zip(both, cuts, strict=True)
    ]
    shares = [each.shares_token for each in both]
    found = dict[int, LogP]()
    with evaluation_mode(model):
        for part in by_length(list(enumerate(rows)), lambda each: _size(each[1]), micro_tokens):
            batch = tensors(unpadded([row for _, row in part]), device_of(model))
            log_p_M, right_M = head.log_p(model.trunk(batch), batch, model.trunk.table)  # type: ignore[arg-type]
            counts = [int((row["labels"] != IGNORE).sum()) for _, row in part]
            at = [number for number, _ in part]
            of_each = [cuts[n] for n in at], [unknown[n] for n in at], [shares[n] for n in at]
            each = sum_log_ps(log_p_M, right_M, counts, *of_each)
            found |= dict(zip(at, each, strict=True))
            on_batch(len(found), len(rows))
    return [found[number] for number in range(len(rows))]


def begins_with(spec: ModelSpec, vocab: Vocab) -> list[int]:
    """The tokens that the decoder begins with: as its format of transformers says, and where that is the end of a row,
    also the beginning of one. BadInput where no format says it."""
    try:
        named = model_type(spec, vocab.pad)
    except BadInput:
        raise BadInput("what the decoder of this net begins with is not known; ask BART, T5 or PEGASUS") from None
    format = next(format for format in FORMATS if format.model_type == named)
    start = format.config(spec, vocab)["decoder_start_token_id"]
    return [start, *([vocab.cls] if start == vocab.sep and vocab.cls is not None else [])]


class SourceAndTarget(NamedTuple):
    """The ids of a source with its special tokens, and those of the continuation."""

    source: list[int]
    continuation: list[int]
    shares_token: bool  # in one text with the context, so that it was encoded alone


def sides(template: Template, encoder: TextEncoder, request: Request) -> SourceAndTarget:
    """Both sides of a request. A continuation has the tokens that it has alone, where it shares one with its context,
    or another does that it is compared with: the source is read whole."""
    context, continuation = split_at_word(request)
    found = join_request(encoder, request)
    ids = [id for id, _, _ in encoder.encode(continuation)] if found.any_shares else found.ids[found.begin :]
    if not ids:
        raise no_token(request)
    return SourceAndTarget(template.row(context).ids.tolist(), ids, found.any_shares)


def _row(source: Sequence[int], pair: Pair) -> Row:
    """Both sides of a row; the last token is predicted and never read."""
    begins, continuation = pair
    ids = [*begins, *continuation[:-1]]
    labels = [*[IGNORE] * (len(begins) - 1), *continuation]
    return {
        "input_ids": np.array(ids, np.int32),
        "token_type_ids": np.zeros(len(ids), np.int8),
        "labels": np.array(labels, np.int32),
        "source_input_ids": np.array(source, np.int32),
    }


def _size(row: Row) -> int:
    return max(len(row["input_ids"]), len(row["source_input_ids"]))
