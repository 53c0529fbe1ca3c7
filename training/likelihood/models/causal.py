"""Log-probabilities of continuations by a decoder: GPT and its line, Transformer-XL; by XLNet in the text's order."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import unpadded
from preprocessing.schema import IGNORE, Bools, Floats, Row
from preprocessing.tokenization import Vocab
from training.likelihood import LogP, Pair, Request, Tree, as_array, pairs_of, separate_trees, trees, unknown_of
from training.likelihood.models.batches import (
    CAUSAL,
    MICRO_TOKENS,
    OnBatch,
    by_length,
    device_of,
    evaluation_mode,
    head_of,
    ignore_activity,
    tensors,
)
from training.likelihood.models.ordered import in_order
from training.model import Model

_LEAST: Final = 0.8  # trees are padded: of the size of the largest in a batch


class TokenLogP(NamedTuple):
    """The log-probability of each token of a continuation, and whether it is the one with the highest score."""

    nats_S: Floats
    greedy_S: Bools


def causal(
    model: Model,
    vocab: Vocab,
    requests: Sequence[Request],
    *,
    micro_tokens: int = MICRO_TOKENS,
    share: bool = True,
    on_batch: OnBatch = ignore_activity,
) -> list[LogP]:
    """The log-probability of each continuation, in the order of the requests.

    Tokens are those of lm-eval (`joined`); rows that are too long lose the beginning of the context. Requests that
    begin alike share what they begin with (`share`), where the attention of the net takes a mask; others stand in rows
    of like length. BadInput where the net is no decoder, Unscored where a continuation does not fit.
    """
    head_of(model, CAUSAL)
    cut = pairs_of(vocab, requests, model.spec.model.longest)
    found = token_log_ps(model, [pair for pair, *_ in cut], micro_tokens=micro_tokens, share=share, on_batch=on_batch)
    return [
        _whole(each, over, unknown_of(vocab, [*context, *continuation]), shares)
        for each, ((context, continuation), over, shares) in zip(found, cut, strict=True)
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
    """What the net gives each token of each continuation behind its context; the last one is predicted, never read."""
    head_of(model, CAUSAL)
    sequences = [[*context, *continuation[:-1]] for context, continuation in pairs]
    shared = trees(sequences) if share and model.trunk.takes_mask else separate_trees(sequences)
    found = dict[int, TokenLogP]()
    with evaluation_mode(model):
        for batch in by_length(shared, lambda tree: len(tree.ids), micro_tokens, _LEAST):
            plain = all(tree.is_row for tree in batch)
            found |= _log_ps(model, batch, pairs, plain=plain)
            on_batch(len(found), len(pairs))
    return [found[number] for number in range(len(pairs))]


def _log_ps(model: Model, trees: Sequence[Tree], pairs: Sequence[Pair], *, plain: bool) -> dict[int, TokenLogP]:
    """Those of the sequences in a batch, by their numbers."""
    if model.spec.model.hides_own_token:
        return _in_order(model, [number for tree in trees for number in tree.paths], pairs)
    if plain:
        batch = unpadded([_row(tree) for tree in trees])
        first_B = batch["first_at"]
        hidden = model.trunk(tensors(batch, device_of(model)))
    else:
        ids_BS, places_BS, seen_BSS = as_array(trees)
        first_B = np.arange(len(trees)) * ids_BS.shape[1]
        columns = tensors({"input_ids": ids_BS, "positions": places_BS}, device_of(model))
        hidden = model.trunk.masked_states(columns, torch.from_numpy(seen_BSS).to(device_of(model)))
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
    """Those of a net whose queries stand at the places of the tokens that they predict."""
    rows = [in_order([*context, *continuation], len(context)) for context, continuation in (pairs[n] for n in numbers)]
    batch = tensors(unpadded(rows), device_of(model))
    at, targets = batch["targets_at"].tolist(), batch["targets"].tolist()
    counts = [len(pairs[number][1]) for number in numbers]
    return dict(zip(numbers, _at(model, model.trunk(batch), at, targets, counts), strict=True))


def _at(
    model: Model, hidden: Tensor, at: Sequence[int], targets: Sequence[int], counts: Sequence[int]
) -> list[TokenLogP]:
    """What the head gives these targets at these states, cut into runs of `counts`."""
    asked = {"targets_at": torch.tensor(at), "targets": torch.tensor(targets)}
    asked = {name: column.to(hidden.device) for name, column in asked.items()}
    log_p_M, right_M = head_of(model, CAUSAL).log_p(hidden, asked, model.trunk.table)  # type: ignore[arg-type]
    stops = np.cumsum(counts)[:-1]
    cut = zip(np.split(log_p_M.double().cpu().numpy(), stops), np.split(right_M.cpu().numpy(), stops), strict=True)
    return [TokenLogP(nats_S, greedy_S) for nats_S, greedy_S in cut]


def _row(tree: Tree) -> Row:
    """A tree without branches; its places count up."""
    ids_S = np.array(tree.ids, np.int32)
    return {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(len(ids_S), np.int8),
        "labels": np.full(len(ids_S), IGNORE, np.int32),
    }
