"""Rows so far, and one step of a net: the score of each token that may come next.

Axes: B rows, C tokens of the longest, A rows of a selection, V rows of the token table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing import collate
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, UNSEEN, Ints, Row
from training.architectures import KVCache, SplitTable
from training.losses.heads import AdaptiveHead, MaskedTokensHead, NextTokenHead
from training.model import Model


@dataclass(frozen=True)
class Prompt:
    """What a row begins with: at least one token. A decoder on top of an encoder has a source, and begins with its
    start token: of T5 [PAD], of BART the token that ends a row."""

    ids: Ints
    source_ids: Ints | None = None


@dataclass(frozen=True)
class MaskSlot:
    """How an encoder writes from left to right (UniLM, arXiv:1905.03197, 2.4): it fills in a mask behind each row.

    The mask sees the prompt and what is written; a prompt sees itself alone.
    """

    mask: int
    segments: tuple[int, int] = (0, 0)  # of the prompt and of what is written


@dataclass(frozen=True)
class GenerationBatch:
    """The rows of a batch so far; a value, of which each step makes the next."""

    ids_BC: Tensor  # int64, padded on the right
    lengths_B: Tensor  # int64, of the host
    source: Mapping[str, Tensor] = field(default_factory=dict)  # the columns of the encoder, a row for each row
    cache: KVCache | None = None  # None: each step reads whole rows
    blank: MaskSlot | None = None  # how a net that fills in masks writes
    begun_B: Tensor | None = None  # int64, of the host: lengths of the prompts, where there is a blank

    def select(self, rows_A: Tensor) -> "GenerationBatch":
        """These rows, each once for each time that it is named."""
        on_host = rows_A.cpu()
        return GenerationBatch(
            self.ids_BC[rows_A],
            self.lengths_B[on_host],
            {name: x[on_host if name == "source_lengths" else rows_A] for name, x in self.source.items()},
            None if self.cache is None else self.cache.select(rows_A),
            self.blank,
            None if self.begun_B is None else self.begun_B[on_host],
        )

    def append(self, token_B: Tensor) -> "GenerationBatch":
        """The rows with one more token each."""
        lengths_B1 = self.lengths_B.to(token_B.device)[:, None]
        wider_BC = F.pad(self.ids_BC, (0, 1)) if int(self.lengths_B.max()) == self.ids_BC.shape[1] else self.ids_BC
        return replace(self, ids_BC=wider_BC.scatter(1, lengths_B1, token_B[:, None]), lengths_B=self.lengths_B + 1)


def begin(model: Model, prompts: Sequence[Prompt], *, cached: bool, blank: MaskSlot | None = None) -> GenerationBatch:
    """The rows of prompts, on the device of the model; a source is read here where there is a cache.

    With a `blank` it is one of the net that lets the tokens of a prompt see each other, where it has such a one.
    """
    rows = [_row(prompt) for prompt in prompts]
    device = next(model.parameters()).device
    batch = {name: torch.from_numpy(x) for name, x in collate.padded(rows, max(map(_longest, rows)), 0).items()}
    moved = {name: x if name in ("lengths", "source_lengths") else x.to(device) for name, x in batch.items()}
    source = {name: x for name, x in moved.items() if name.startswith("source_")}
    begun_B, cache = batch["lengths"].long(), None
    if cached:
        cache = model.trunk.begin(moved) if blank is None else model.trunk.begin_seeing(moved)
    return GenerationBatch(moved["input_ids"], begun_B, source, cache, blank, None if blank is None else begun_B)


def _row(prompt: Prompt) -> Row:
    """The prompt as a row of schema.py."""
    row: Row = {"input_ids": np.asarray(prompt.ids, np.int64), "token_type_ids": np.zeros(len(prompt.ids), np.int64)}
    row["labels"] = np.full(len(prompt.ids), IGNORE)
    return row if prompt.source_ids is None else row | {"source_input_ids": np.asarray(prompt.source_ids, np.int64)}


def _longest(row: Row) -> int:
    return max(len(row[side]) for side in ("input_ids", "source_input_ids") if side in row)


def step(model: Model, rows: GenerationBatch) -> tuple[Tensor, GenerationBatch]:
    """Score [B, V], float32, of each token that may follow each row, and the rows with what the net holds of them now.

    The scores are logits, or log-probabilities where the softmax is adaptive: greater by a number that all have alike.
    """
    if rows.blank is not None:
        hidden_BD, rows = _at_blank(model, rows, rows.blank)
        return scores(model, hidden_BD), rows
    if rows.cache is None:
        return scores(model, model.trunk.next_states(_batch(rows, 0, rows.lengths_B) | dict(rows.source))), rows
    held_B = rows.cache.lengths_B
    new_B = rows.lengths_B - held_B.cpu()
    hidden, cache = model.trunk.go_on(_batch(rows, held_B, new_B), rows.cache)
    rows, last_B = replace(rows, cache=cache), (new_B - 1).to(hidden.device)
    feature_BD = hidden[torch.arange(len(hidden), device=hidden.device), last_B]
    return scores(model, feature_BD), rows


def _batch(rows: GenerationBatch, held_B: Tensor | int, new_B: Tensor) -> dict[str, Tensor]:
    """The tokens behind the first `held` of each row as a padded batch."""
    device, width = rows.ids_BC.device, int(new_B.max())
    held_B = torch.as_tensor(held_B, device=device).expand(len(new_B))
    at_BS = held_B[:, None] + torch.arange(width, device=device)
    ids_BS = rows.ids_BC.gather(1, at_BS.clamp(max=rows.ids_BC.shape[1] - 1))
    last_B1 = held_B[:, None] + new_B.to(device)[:, None] - 1
    return {
        "input_ids": ids_BS,
        "positions": at_BS.minimum(last_B1),  # padding has a position of its row: there may be no further one
        "token_type_ids": torch.zeros_like(ids_BS),
        "lengths": new_B,
        "first_at": torch.arange(len(new_B), device=device) * width,
    }


def _at_blank(model: Model, rows: GenerationBatch, blank: MaskSlot) -> tuple[Tensor, GenerationBatch]:
    """States [B, D] of a mask behind each row, and the rows with what the net holds of them now.

    The tokens of a prompt see the prompt, a token behind it all before it and itself. The mask is held in no cache: the
    next token takes its slot.
    """
    assert rows.begun_B is not None, "rows with a blank know where their prompts end"
    device, cache = rows.ids_BC.device, rows.cache
    held_B = torch.zeros_like(rows.lengths_B) if cache is None else cache.lengths_B.cpu()
    new_B, begun_B1 = rows.lengths_B - held_B, rows.begun_B.to(device)[:, None]
    at_BS = held_B.to(device)[:, None] + torch.arange(int(new_B.max()) + 1, device=device)
    last_B1 = rows.lengths_B.to(device)[:, None]
    ids_BS = rows.ids_BC.gather(1, at_BS.clamp(max=rows.ids_BC.shape[1] - 1)).where(at_BS < last_B1, blank.mask)
    rank_BS, first_at = torch.where(at_BS < begun_B1, 0, at_BS), torch.arange(len(new_B), device=device)
    batch = {
        "input_ids": ids_BS,
        "positions": at_BS.minimum(last_B1),
        "token_type_ids": torch.where(at_BS < begun_B1, *blank.segments),
        "rank": rank_BS.masked_fill(at_BS > last_B1, UNSEEN),
        "reach": rank_BS.masked_fill(at_BS > last_B1, -1),
        "lengths": new_B + 1,
        "first_at": first_at * at_BS.shape[1],
    }
    if cache is None:
        hidden = model.trunk(batch)
    else:
        slot_C = torch.arange(cache.in_use + at_BS.shape[1], device=device)
        seen_BSC = (slot_C < begun_B1[..., None]) | (slot_C <= at_BS[..., None])
        hidden, cache = model.trunk.go_on_seeing(batch, cache, seen_BSC)
        longest = int(rows.lengths_B.max())
        rows = replace(rows, cache=replace(cache, lengths_B=last_B1.squeeze(1), longest=longest))
    return hidden[first_at, new_B.to(device)], rows


def scores(model: Model, feature_BD: Tensor) -> Tensor:
    """What the model's head for the next token makes of states: logits [B, V], or log-probabilities, in float32."""
    heads, table = dict(model.heads.items()), model.trunk.table
    head = heads.get("next_token") or heads.get("masked_tokens")
    if isinstance(head, NextTokenHead) and isinstance(table, Tensor):
        return F.linear(feature_BD, table, head.bias).float()
    if isinstance(head, MaskedTokensHead) and isinstance(table, Tensor):  # of a net that predicts in any order: XLNet
        return F.linear(head.features(feature_BD), table, head.bias).float()
    if isinstance(head, AdaptiveHead) and isinstance(table, tuple) and not isinstance(table, SplitTable):
        return _adaptive(head, feature_BD, table)
    kinds = ", ".join(model.heads)
    raise BadInput(f"generate: a net with the losses {kinds} predicts no next token; give one with next_token")


def _adaptive(head: AdaptiveHead, feature_BD: Tensor, table: tuple[Tensor, ...]) -> Tensor:
    """Log-probabilities of all tokens by an adaptive softmax: of the cluster, then inside of it."""
    tables, projections = table[: len(head.bounds)], table[len(head.bounds) :]
    frequent = head.cutoffs[0]
    weight, bias = torch.cat([tables[0], head.clusters]), torch.cat([head.bias[:frequent], head.cluster_bias])
    first = F.linear(head.project(feature_BD), weight, bias).float().log_softmax(-1)
    parts = [first[:, :frequent]]
    for cluster, (start, stop) in enumerate(head.bounds[1:], start=1):
        feature = F.linear(feature_BD, projections[cluster].T) if projections else feature_BD
        inside = F.linear(feature, tables[cluster], head.bias[start:stop]).float().log_softmax(-1)
        parts.append(first[:, frequent + cluster - 1, None] + inside)
    return torch.cat(parts, dim=1)
