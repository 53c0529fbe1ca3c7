"""Log-probabilities by an encoder-decoder (BART, T5, PEGASUS): the context is the source.

The decoder starts as in pretraining: with padding (T5, PEGASUS), or with the end token and the start token (BART).
The end token is not scored, since a choice may be the start of a longer text.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Row
from preprocessing.tokenization import Template, Vocab
from training.evaluation.likelihood import (
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
from training.formats import FORMATS, model_type
from training.model import Model
from training.model_spec import ModelSpec


def score_seq2seq(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    micro_tokens: int = MICRO_TOKENS,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """Return the log-probability of each continuation with its context as source, in the order of the requests.

    If a source is too long, its first tokens are dropped. Raises UnscoredRequests if a continuation is too long.
    """
    head, template, longest = head_of(model, "causal", reads_source=True), Template(vocab), model.spec.model.longest
    begins, encode = begins_with(model.spec, vocab), encoder(vocab)

    def encode_request(request: Request) -> SourceAndTarget:
        read = sides(template, encode, request)
        if len(begins) + len(read.continuation) - 1 > longest:
            most = longest + 1 - len(begins)
            raise BadInput(
                f"continuation too long: got {len(read.continuation)} tokens, expected at most {most}; shorten it"
            )
        return read

    both = each_of(requests, encode_request)
    cuts = [max(0, len(each.source) - longest) for each in both]
    rows = [_row(each.source[cut:], (begins, each.continuation)) for each, cut in zip(both, cuts, strict=True)]
    unknown = [
        unknown_of(vocab, [*each.source[cut:], *each.continuation]) for each, cut in zip(both, cuts, strict=True)
    ]
    shares = [each.shares_token for each in both]
    results = dict[int, LogP]()
    with evaluation_mode(model):
        for part in by_length(list(enumerate(rows)), lambda each: _size(each[1]), micro_tokens):
            batch = tensors(collate_unpadded([row for _, row in part]), device_of(model))
            log_p_M, right_M = head.log_p(model.trunk(batch), batch, model.trunk.table)  # type: ignore[arg-type]
            counts = [int((row["labels"] != IGNORE).sum()) for _, row in part]
            at = [number for number, _ in part]
            of_each = [cuts[n] for n in at], [unknown[n] for n in at], [shares[n] for n in at]
            each = sum_log_ps(log_p_M, right_M, counts, *of_each)
            results |= dict(zip(at, each, strict=True))
            on_batch(len(results), len(rows))
    return [results[number] for number in range(len(rows))]


def begins_with(spec: ModelSpec, vocab: Vocab) -> list[int]:
    """Return the tokens that the decoder starts with, according to its format of transformers.

    If the start token is the end-of-sequence token, [CLS] follows. Raises BadInput if no format defines it.
    """
    try:
        name = model_type(spec, vocab.pad)
    except BadInput:
        raise BadInput("the start token of this decoder is unknown; use BART, T5 or PEGASUS") from None
    format = next(format for format in FORMATS if format.model_type == name)
    start = format.config(spec, vocab)["decoder_start_token_id"]
    return [start, *([vocab.cls] if start == vocab.sep and vocab.cls is not None else [])]


class SourceAndTarget(NamedTuple):
    """Token IDs of a source with its special tokens, and of the continuation."""

    source: list[int]
    continuation: list[int]
    shares_token: bool  # whether both share a token; the continuation is then encoded alone


def sides(template: Template, encoder: TextEncoder, request: Request) -> SourceAndTarget:
    """Return the source and the target of a request.

    The encoder reads the whole context. So the continuation is encoded alone if it shares a token with the context, or
    if a continuation compared with it does.
    """
    context, continuation = split_at_word(request)
    joined = join_request(encoder, request)
    ids = [id for id, _, _ in encoder.encode(continuation)] if joined.any_shares else joined.ids[joined.begin :]
    if not ids:
        raise no_token(request)
    return SourceAndTarget(template.row(context).ids.tolist(), ids, joined.any_shares)


def _row(source: Sequence[int], pair: Pair) -> Row:
    """A sequence with source and target; the last token is predicted, but never read."""
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
