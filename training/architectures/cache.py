"""The key-value cache: keys and values of the previous tokens of each sequence, for generation.

The model stores no cache: `Backbone.forward_cached` takes a cache and returns the next one. Token t of a sequence is in
slot t, until the first tokens are dropped. Sequences of different lengths therefore need no padding on the left, and
positions are the same as in training. Axes as in layout.py; S new tokens of a sequence, C slots in use, R slots in
memory, U tokens of a source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

SLOTS_AT_ONCE: Final = 64  # slots added when a cache is full; large steps make copies of the cache rare


@dataclass(frozen=True)
class KVCacheView:
    """Inputs of one attention layer in a step: keys and values, slots of the new tokens, and attention mask."""

    key_value: Tensor  # [B, R, 2 G, K]: the keys of all heads, then the values
    slot_BS: Tensor | None  # slots of the new tokens; None for a source, which has no new tokens
    seen: Tensor  # attention mask: bool [B, 1, 1 or S, C], or scores to add [B, H, S, C]

    def put(self, new_BSGK: Tensor) -> Tensor:
        """Write the keys and values of the new tokens; return all that are in use, [B, C, 2 G, K]."""
        assert self.slot_BS is not None
        row_B1 = torch.arange(len(new_BSGK), device=new_BSGK.device)[:, None]
        self.key_value[row_B1, self.slot_BS] = new_BSGK
        return self.used

    @property
    def used(self) -> Tensor:
        """All keys and values in use, [B, C, 2 G, K]."""
        return self.key_value[:, : self.seen.shape[-1]]

    def within(self, before: int) -> "KVCacheView":
        """Return a view with a mask that limits attention to a token itself and the `before` previous tokens."""
        assert self.slot_BS is not None
        slot_C = torch.arange(self.seen.shape[-1], device=self.seen.device)
        near_BSC = slot_C >= self.slot_BS[..., None] - before
        return replace(self, seen=self.seen & near_BSC[:, None])


@dataclass(frozen=True)
class KVCache:
    """Keys and values of each layer. A step overwrites them in place: use only the newest cache or a `select` of it."""

    layers: tuple[Tensor, ...]  # keys and values of each layer, [B, R, 2 G, K]
    lengths_B: Tensor  # int64: number of tokens of each sequence
    longest: int = 0  # largest number of tokens of a sequence, on the host
    dropped: int = 0  # number of dropped first tokens of each sequence: token t is in slot t - dropped
    # relative attention: projected distances from R - 1 down to 0 in each layer, [R, H, K]
    distances: tuple[Tensor, ...] = ()
    source: tuple[Tensor, ...] = ()  # keys and values of an encoder's states in each layer, [B, U, 2 G, K]
    source_seen: Tensor | None = None  # bool [B, 1, 1, U], False at padding

    def select(self, rows_A: Tensor) -> "KVCache":
        """The cache of these sequences, in this order; an index may occur several times."""
        return replace(
            self,
            layers=tuple(held[rows_A] for held in self.layers),
            lengths_B=self.lengths_B[rows_A],
            source=tuple(held[rows_A] for held in self.source),
            source_seen=None if self.source_seen is None else self.source_seen[rows_A],
        )

    def positions(self, new: int) -> Tensor:
        """Positions [B, S] of the next `new` tokens."""
        return self.lengths_B[:, None] + torch.arange(new, device=self.lengths_B.device)

    @property
    def in_use(self) -> int:
        """Number of slots that the longest sequence uses."""
        return self.longest - self.dropped

    def with_room(self, new: int) -> "KVCache":
        """The cache with slots for `new` more tokens. Empty slots are 0, because masked values must not be NaN."""
        missing = self.in_use + new - self.layers[0].shape[1]
        if missing <= 0:
            return self
        more = -(-missing // SLOTS_AT_ONCE) * SLOTS_AT_ONCE
        return replace(self, layers=tuple(F.pad(held, (0, 0) * 2 + (0, more)) for held in self.layers))

    def view_layers(self, new: int) -> list[KVCacheView]:
        """The view of each layer for `new` tokens, with a causal attention mask."""
        slot_BS = self.positions(new) - self.dropped
        slot_C = torch.arange(self.in_use + new, device=slot_BS.device)
        seen = (slot_C <= slot_BS[..., None])[:, None]
        return [KVCacheView(held, slot_BS, seen) for held in self.layers]

    def first_distances(self, new: int) -> Tensor:
        """Index [B, S] in `distances` of the distance from each of the `new` tokens to the first slot."""
        return len(self.distances[0]) - 1 - (self.positions(new) - self.dropped)

    def view_source(self) -> list[KVCacheView]:
        """The view of the source for each layer."""
        assert self.source_seen is not None
        return [KVCacheView(held, None, self.source_seen) for held in self.source]

    def forget(self, before: int) -> "KVCache":
        """Drop slots that no later token attends to; a token attends to itself and the `before` previous tokens."""
        if self.in_use < before + 2 * SLOTS_AT_ONCE:
            return self
        spare = max(int(self.lengths_B.min()) - before - self.dropped, 0)
        return replace(self, layers=tuple(held[:, spare:] for held in self.layers), dropped=self.dropped + spare)

    def after(self, batch: Mapping[str, Tensor]) -> "KVCache":
        """The cache after a padded batch of new tokens, `lengths` of them for each sequence."""
        lengths_B = batch["lengths"]  # on the host, as in all batches
        now_B = self.lengths_B + lengths_B.to(self.lengths_B.device)
        return replace(self, lengths_B=now_B, longest=self.longest + batch["input_ids"].shape[1])


def empty_cache(rows: int, layers: int, heads: tuple[int, int], like: Tensor) -> KVCache:
    """A cache of sequences without tokens, for G heads of size K, with the device and the data type of `like`."""
    held = like.new_zeros(rows, 0, 2 * heads[0], heads[1])
    return KVCache((held,) * layers, torch.zeros(rows, dtype=torch.int64, device=like.device))
