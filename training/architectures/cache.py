"""A cache: the keys and values of the tokens that rows have so far, which a net goes on from.

It is a value beside the batch: a net takes one and gives the next one (`Net.go_on`), and keeps none. Token t of a row
lies in slot t of that row, until the first are forgotten: so rows of different lengths need no padding on the left and
have the positions of training. Axes as in layers.py; S new tokens of a row, C slots in use, R slots in memory, U tokens
of a source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

SLOTS_AT_ONCE: Final = 64  # that a cache grows by: whole copies are rare then


@dataclass(frozen=True)
class KVCacheView:
    """What one attention reads in a step: keys and values, the place of the new ones, the attention mask."""

    key_value: Tensor  # [B, R, 2, H, K]
    slot_BS: Tensor | None  # where the new tokens go; None: there are none, as for a source
    seen: Tensor  # bool [B, 1, 1 or S, C], or scores to add [B, H, S, C]

    def put(self, new_BS2HK: Tensor) -> Tensor:
        """Write the keys and values of the new tokens, then give all that are in use, [B, C, 2, H, K]."""
        assert self.slot_BS is not None
        row_B1 = torch.arange(len(new_BS2HK), device=new_BS2HK.device)[:, None]
        self.key_value[row_B1, self.slot_BS] = new_BS2HK
        return self.used

    @property
    def used(self) -> Tensor:
        """All keys and values in use, [B, C, 2, H, K]."""
        return self.key_value[:, : self.seen.shape[-1]]

    def within(self, before: int) -> "KVCacheView":
        """The same for tokens that see themselves and `before` tokens before them."""
        assert self.slot_BS is not None
        slot_C = torch.arange(self.seen.shape[-1], device=self.seen.device)
        near_BSC = slot_C >= self.slot_BS[..., None] - before
        return replace(self, seen=self.seen & near_BSC[:, None])

    def attend(self, qkv_BS3HK: Tensor) -> Tensor:
        """Scaled dot-product attention of the new tokens to all of their row, [B, S, H, K]."""
        key, value = self.put(qkv_BS3HK[:, :, 1:]).permute(2, 0, 3, 1, 4)
        query_BHSK = qkv_BS3HK[:, :, 0].transpose(1, 2)
        return F.scaled_dot_product_attention(query_BHSK, key, value, attn_mask=self.seen).transpose(1, 2)


@dataclass(frozen=True)
class KVCache:
    """Keys and values of each layer. A step writes into them: go on from the newest cache only, or from a `select`."""

    layers: tuple[Tensor, ...]  # [B, R, 2, H, K] each
    lengths_B: Tensor  # int64: how many tokens each row has
    longest: int = 0  # the most that a row has; known without asking the device
    dropped: int = 0  # first tokens of each row that no further token sees: token t lies in slot t - dropped
    distances: tuple[Tensor, ...] = ()  # of nets that score them, [R, H, K] each: from R - 1 down to 0
    source: tuple[Tensor, ...] = ()  # of the source, which is read once: [B, U, 2, H, K] each
    source_seen: Tensor | None = None  # bool [B, 1, 1, U], False at padding

    def select(self, rows_A: Tensor) -> "KVCache":
        """The cache of these rows, a row once for each time that it is named."""
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
        """Slots of the longest row."""
        return self.longest - self.dropped

    def with_room(self, new: int) -> "KVCache":
        """The cache with slots for `new` more tokens; they are zero, since what is not seen must be a number."""
        missing = self.in_use + new - self.layers[0].shape[1]
        if missing <= 0:
            return self
        more = -(-missing // SLOTS_AT_ONCE) * SLOTS_AT_ONCE
        return replace(self, layers=tuple(F.pad(held, (0, 0) * 3 + (0, more)) for held in self.layers))

    def holding(self, new: int) -> list[KVCacheView]:
        """What each layer reads and where it puts `new` tokens: they see their row up to themselves."""
        slot_BS = self.positions(new) - self.dropped
        slot_C = torch.arange(self.in_use + new, device=slot_BS.device)
        seen = (slot_C <= slot_BS[..., None])[:, None]
        return [KVCacheView(held, slot_BS, seen) for held in self.layers]

    def first_distances(self, new: int) -> Tensor:
        """Index [B, S] in `distances` of that of each of `new` tokens to the first slot."""
        return len(self.distances[0]) - 1 - (self.positions(new) - self.dropped)

    def holding_source(self) -> list[KVCacheView]:
        """What each layer reads of the source."""
        assert self.source_seen is not None
        return [KVCacheView(held, None, self.source_seen) for held in self.source]

    def forget(self, before: int) -> "KVCache":
        """The cache without the slots that no further token sees, where each sees `before` tokens before it."""
        if self.in_use < before + 2 * SLOTS_AT_ONCE:
            return self
        spare = max(int(self.lengths_B.min()) - before - self.dropped, 0)
        return replace(self, layers=tuple(held[:, spare:] for held in self.layers), dropped=self.dropped + spare)

    def after(self, batch: Mapping[str, Tensor]) -> "KVCache":
        """The cache once it has the `lengths` new tokens of each row of a padded batch."""
        lengths_B = batch["lengths"]  # of the host, like those of all batches
        now_B = self.lengths_B + lengths_B.to(self.lengths_B.device)
        return replace(self, lengths_B=now_B, longest=self.longest + batch["input_ids"].shape[1])


def empty_cache(rows: int, layers: int, heads: tuple[int, int], like: Tensor) -> KVCache:
    """A cache of rows without a token, for heads (H, K), on the device and in the precision of a tensor."""
    held = like.new_zeros(rows, 0, 2, *heads)
    return KVCache((held,) * layers, torch.zeros(rows, dtype=torch.int64, device=like.device))
