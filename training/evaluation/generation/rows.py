"""The sequences so far, and one decoding step: the score of each possible next token.

Axes: B sequences, C tokens of the longest, A selected sequences, V rows of the embedding table.
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
from training.architectures import KVCache
from training.model import Model


@dataclass(frozen=True)
class Prompt:
    """The start of a sequence: at least one token.

    With an encoder there is also a source. The decoder then starts with its start token: [PAD] for T5, the token
    that ends a sequence for BART.
    """

    ids: Ints
    source_ids: Ints | None = None


@dataclass(frozen=True)
class MaskSlot:
    """How an encoder generates from left to right (UniLM, arXiv:1905.03197, 2.4): it fills in a mask after each
    sequence.

    The mask attends to the prompt and the new tokens; the prompt attends only to itself.
    """

    mask: int
    segments: tuple[int, int] = (0, 0)  # of the prompt and of the new tokens


@dataclass(frozen=True)
class GenerationBatch:
    """The sequences of a batch so far. It is immutable: each step returns a new batch."""

    ids_BC: Tensor  # int64, padded on the right
    lengths_B: Tensor  # int64, on the CPU
    source: Mapping[str, Tensor] = field(default_factory=dict)  # encoder columns, one row per sequence
    cache: KVCache | None = None  # None: each step reads whole sequences
    blank: MaskSlot | None = None  # for masked language models
    begun_B: Tensor | None = None  # prompt lengths, int64 on the CPU; None without a blank

    def select(self, rows_A: Tensor) -> "GenerationBatch":
        """Return the given rows; an index may repeat."""
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
        """Return the sequences with one more token each."""
        lengths_B1 = self.lengths_B.to(token_B.device)[:, None]
        wider_BC = F.pad(self.ids_BC, (0, 1)) if int(self.lengths_B.max()) == self.ids_BC.shape[1] else self.ids_BC
        return replace(self, ids_BC=wider_BC.scatter(1, lengths_B1, token_B[:, None]), lengths_B=self.lengths_B + 1)


def begin(model: Model, prompts: Sequence[Prompt], *, cached: bool, blank: MaskSlot | None = None) -> GenerationBatch:
    """Return the prompts as a batch on the device of the model. With a cache, the encoder reads the source here.

    With a `blank`, the cached tokens of a prompt attend to each other; if the model does not support this, there is no
    cache.
    """
    rows = [_row(prompt) for prompt in prompts]
    device = next(model.parameters()).device
    batch = {name: torch.from_numpy(x) for name, x in collate.collate_padded(rows, max(map(_longest, rows)), 0).items()}
    on_device = {name: x if name in ("lengths", "source_lengths") else x.to(device) for name, x in batch.items()}
    source = {name: x for name, x in on_device.items() if name.startswith("source_")}
    begun_B, cache = batch["lengths"].long(), None
    if cached:
        cache = model.trunk.begin(on_device) if blank is None else model.trunk.begin_seeing(on_device)
    return GenerationBatch(on_device["input_ids"], begun_B, source, cache, blank, None if blank is None else begun_B)


def _row(prompt: Prompt) -> Row:
    """The prompt as a `Row` of schema.py."""
    row: Row = {"input_ids": np.asarray(prompt.ids, np.int64), "token_type_ids": np.zeros(len(prompt.ids), np.int64)}
    row["labels"] = np.full(len(prompt.ids), IGNORE)
    return row if prompt.source_ids is None else row | {"source_input_ids": np.asarray(prompt.source_ids, np.int64)}


def _longest(row: Row) -> int:
    return max(len(row[side]) for side in ("input_ids", "source_input_ids") if side in row)


def step(model: Model, rows: GenerationBatch) -> tuple[Tensor, GenerationBatch]:
    """Return float32 scores [B, V] of the next token of each sequence, and the batch with an updated cache.

    Scores are logits. With an adaptive softmax they are log-probabilities, which differ from logits by one constant
    per sequence.
    """
    if rows.blank is not None:
        hidden_BD, rows = _at_blank(model, rows, rows.blank)
        return scores(model, hidden_BD), rows
    if rows.cache is None:
        return scores(model, model.trunk.next_states(_batch(rows, 0, rows.lengths_B) | dict(rows.source))), rows
    cached_B = rows.cache.lengths_B
    new_B = rows.lengths_B - cached_B.cpu()
    hidden, cache = model.trunk.forward_cached(_batch(rows, cached_B, new_B), rows.cache)
    rows, last_B = replace(rows, cache=cache), (new_B - 1).to(hidden.device)
    feature_BD = hidden[torch.arange(len(hidden), device=hidden.device), last_B]
    return scores(model, feature_BD), rows


def _batch(rows: GenerationBatch, cached_B: Tensor | int, new_B: Tensor) -> dict[str, Tensor]:
    """The tokens after the first `held_B` of each sequence, as a padded batch."""
    device, width = rows.ids_BC.device, int(new_B.max())
    cached_B = torch.as_tensor(cached_B, device=device).expand(len(new_B))
    at_BS = cached_B[:, None] + torch.arange(width, device=device)
    ids_BS = rows.ids_BC.gather(1, at_BS.clamp(max=rows.ids_BC.shape[1] - 1))
    last_B1 = cached_B[:, None] + new_B.to(device)[:, None] - 1
    return {
        "input_ids": ids_BS,
        "positions": at_BS.minimum(last_B1),  # padding repeats the last position, which always exists
        "token_type_ids": torch.zeros_like(ids_BS),
        "lengths": new_B,
        "first_at": torch.arange(len(new_B), device=device) * width,
    }


def _at_blank(model: Model, rows: GenerationBatch, blank: MaskSlot) -> tuple[Tensor, GenerationBatch]:
    """Return hidden states [B, D] of a mask after each sequence, and the batch with an updated cache.

    Tokens of a prompt attend to the prompt; later tokens attend to all tokens before them and to themselves. The
    mask is not kept in the cache: the next token takes its slot.
    """
    assert rows.begun_B is not None, "a batch with a blank needs prompt lengths"
    device, cache = rows.ids_BC.device, rows.cache
    cached_B = torch.zeros_like(rows.lengths_B) if cache is None else cache.lengths_B.cpu()
    new_B, begun_B1 = rows.lengths_B - cached_B, rows.begun_B.to(device)[:, None]
    at_BS = cached_B.to(device)[:, None] + torch.arange(int(new_B.max()) + 1, device=device)
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
    """Apply the model's token head to states: logits [B, V], or log-probabilities, in float32."""
    head = model.head_for("causal") or model.head_for("masked")
    if head is None:
        kinds = ", ".join(loss.kind for loss in model.spec.losses)
        raise BadInput(
            f"generate: a model with the losses {kinds} cannot predict the next token; give one with next_token"
        )
    return head.next_scores(feature_BD, model.trunk.table)  # type: ignore[arg-type]  # the table fits its head
