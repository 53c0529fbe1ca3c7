"""Log-probabilities of continuations by a decoder (GPT models, Transformer-XL), or by XLNet in the order of the
text."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import collate_unpadded
from preprocessing.schema import IGNORE, Bools, Floats, Row
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood import (
    LogP,
    Pair,
    Request,
    Tree,
    as_array,
    pairs_of,
    separate_trees,
    trees,
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
    tensors,
)
from training.evaluation.likelihood.models.ordered import in_order
from training.model import Model

_LEAST: Final = 0.8  # minimum size of a tree, relative to the largest of its batch, since trees are padded


class TokenLogP(NamedTuple):
    """The log-probability of each token of a continuation, and whether the token has the highest score."""

    nats_S: Floats
    greedy_S: Bools


def score_causal(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    micro_tokens: int = MICRO_TOKENS,
    share: bool = True,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """Return the log-probability of each continuation, in the order of the requests.

    Texts are tokenized as in lm-eval (`join_request`). If a sequence is too long, the start of its context is
    dropped. With `share`, requests share common prefixes, if the attention of the model accepts a mask; otherwise
    sequences of similar length form batches. Raises BadInput if the model is not a decoder, and UnscoredRequests if
    a continuation is too long.
    """
    head_of(model, "causal")
    truncated = pairs_of(vocab, requests, model.spec.model.longest)
    results = token_log_ps(
        model, [pair for pair, *_ in truncated], micro_tokens=micro_tokens, share=share, on_batch=on_batch
    )
    return [
        _whole(each, over, unknown_of(vocab, [*context, *continuation]), shares)
        for each, ((context, continuation), over, shares) in zip(results, truncated, strict=True)
    ]


def _whole(each: TokenLogP, cut: int, unknown: int, shares_token: bool) -> LogP:
    nats_S, greedy_S = each
    sums = float(nats_S.sum()), len(nats_S), bool(greedy_S.all())
    return LogP(*sums, cut, float(nats_S[-1]), bool(greedy_S[-1]), unknown, shares_token)


def token_log_ps(
    model: Model,
    pairs: Sequence[Pair],
    *,
    micro_tokens: int = MICRO_TOKENS,
    share: bool = True,
    on_batch: OnBatch = ignore_activity,
) -> list[TokenLogP]:
    """Return the log-probability of each token of each continuation. The last token is predicted, but never read."""
    head_of(model, "causal")
    sequences = [[*context, *continuation[:-1]] for context, continuation in pairs]
    shared = trees(sequences) if share and model.trunk.takes_mask else separate_trees(sequences)
    results = dict[int, TokenLogP]()
    with evaluation_mode(model):
        for batch in by_length(shared, lambda tree: len(tree.ids), micro_tokens, _LEAST):
            plain = all(tree.is_row for tree in batch)
            results |= _log_ps(model, batch, pairs, plain=plain)
            on_batch(len(results), len(pairs))
    return [results[number] for number in range(len(pairs))]


def _log_ps(model: Model, trees: Sequence[Tree], pairs: Sequence[Pair], *, plain: bool) -> dict[int, TokenLogP]:
    """The log-probabilities of the sequences in a batch, by sequence index."""
    if model.spec.model.hides_own_token:
        return _in_order(model, [number for tree in trees for number in tree.paths], pairs)
    if plain:
        batch = collate_unpadded([_row(tree) for tree in trees])
        first_B = batch["first_at"]
        hidden = model.trunk(tensors(batch, device_of(model)))
    else:
        ids_BS, places_BS, seen_BSS = as_array(trees)
        first_B = np.arange(len(trees)) * ids_BS.shape[1]
        columns = tensors({"input_ids": ids_BS, "positions": places_BS}, device_of(model))
        hidden = model.trunk.compute_masked_states(columns, torch.from_numpy(seen_BSS).to(device_of(model)))
    numbers, at, targets, counts = list[int](), list[int](), list[int](), list[int]()
    for tree, first in zip(trees, first_B.tolist(), strict=True):
        for number, path in tree.paths.items():
            context, continuation = pairs[number]
            numbers.append(number)
            at += [first + node for node in path[len(context) - 1 :]]
            targets += continuation
            counts.append(len(continuation))
    return dict(zip(numbers, _at(model, hidden, at, targets, counts), strict=True))


def _in_order(model: Model, numbers: Sequence[int], pairs: Sequence[Pair]) -> dict[int, TokenLogP]:
    """The log-probabilities by a model whose queries are at the positions of the predicted tokens (XLNet)."""
    rows = [in_order([*context, *continuation], len(context)) for context, continuation in (pairs[n] for n in numbers)]
    batch = tensors(collate_unpadded(rows), device_of(model))
    at, targets = batch["targets_at"].tolist(), batch["targets"].tolist()
    counts = [len(pairs[number][1]) for number in numbers]
    return dict(zip(numbers, _at(model, model.trunk(batch), at, targets, counts), strict=True))


def _at(
    model: Model, hidden: Tensor, at: Sequence[int], targets: Sequence[int], counts: Sequence[int]
) -> list[TokenLogP]:
    """Apply the head to the targets at these states; return one result per continuation, of `counts` tokens each."""
    columns = {"targets_at": torch.tensor(at), "targets": torch.tensor(targets)}
    columns = {name: column.to(hidden.device) for name, column in columns.items()}
    log_p_M, right_M = head_of(model, "causal").log_p(hidden, columns, model.trunk.table)  # type: ignore[arg-type]
    stops = np.cumsum(counts)[:-1]
    cut = zip(np.split(log_p_M.double().cpu().numpy(), stops), np.split(right_M.cpu().numpy(), stops), strict=True)
    return [TokenLogP(nats_S, greedy_S) for nats_S, greedy_S in cut]


def _row(tree: Tree) -> Row:
    """A tree without branches, as a sequence."""
    ids_S = np.array(tree.ids, np.int32)
    return {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), np.int8),
        "labels": np.full(len(ids_S), IGNORE, np.int32),
    }
