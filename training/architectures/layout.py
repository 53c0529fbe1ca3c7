"""The memory layout and the attention mask of a batch.

Axes: B sequences, S tokens of a sequence, T tokens of an unpadded batch, D width, H heads of queries, G heads of keys
and of values (G is H, or fewer), K width of a head. Hidden states are [B, S, D] in a padded batch and [T, D] in an
unpadded one; `x` stands for both. Except for attention, all functions treat each token separately.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from training.architectures import flex
from training.architectures.cache import KVCacheView
from training.architectures.host_columns import host_of
from training.architectures.rotary import Rotation
from training.specs import Visibility


@dataclass(frozen=True)
class BatchLayout:
    """Memory layout and attention mask of a batch. It is computed once per forward pass and read by every block."""

    shape: tuple[int, int]  # B, S: number of sequences, and length of the longest sequence
    causal: bool  # True: each token attends to itself and to earlier tokens, without a mask in memory
    # int32 [B + 1]: end of each sequence in an unpadded batch, after a 0; None if these do not determine the mask
    ends_B1: Tensor | None
    place_T: Tensor | None  # index in [B * S] of each unpadded token; None if the tokens have that layout already
    token_at: Tensor | None  # index of the token at each position [B * S] of the padded layout; arbitrary at padding
    # bool [B, 1, 1 or S, S], True if the query (third axis) attends to the key; or numbers [B or 1, H, S, S] that are
    # added to the scores; None: no mask
    seen: Tensor | None
    block_mask: BlockMask | None = None  # the attention mask as a rule, for FlexAttention
    held: KVCacheView | None = None  # during generation: cached keys and values, and the mask
    token_shape: tuple[int, ...] = ()  # shape of the tokens in memory: [B, S] or [T]
    is_fixed: bool = False  # whether all batches of the training have this shape, so that compiled blocks pay
    # rotations of queries and keys in a layer with full attention, and in one with a window; None: no rotary positions
    rotations: tuple[Rotation, Rotation] | None = None
    # disentangled attention: states [P, D] of all rows of the table of distances, and the rows [2, R] of the distances,
    # decreasing and increasing; None: no such attention
    relative: tuple[Tensor, Tensor] | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens in memory, including padding."""
        return math.prod(self.token_shape)


def incremental_layout(held: KVCacheView) -> BatchLayout:
    """Layout of the new tokens [B, S] of sequences with cached keys and values."""
    assert held.slot_BS is not None
    rows, new = held.slot_BS.shape
    return BatchLayout((rows, new), causal=False, ends_B1=None, place_T=None, token_at=None, seen=None, held=held)


def layout(
    batch: Mapping[str, Tensor], visibility: Visibility, dropout: float = 0.0, *, dense: bool = False
) -> BatchLayout:
    """Layout of a batch with the columns `input_ids` ([B, S] or [T]) and `lengths`.

    With the visibility "per_sequence", `rank` and `reach` determine the mask. `dropout` is the rate for attention
    weights: the kernels that need no mask in memory do not support dropout. `dense`: the mask must be in memory,
    because numbers will be added to it.
    """
    ids, lengths_B, causal = batch["input_ids"], batch["lengths"], visibility == "causal"
    padded = ids.ndim == 2
    rows, longest = ids.shape if padded else (len(lengths_B), longest_of(batch))
    full = not padded and len(ids) == rows * longest
    lengths_B = lengths_B.to(ids.device, non_blocking=True)
    inside_BS = torch.arange(longest, device=ids.device) < lengths_B[:, None]
    moved = not (padded or full)
    token_at = (inside_BS.flatten().cumsum(0) - 1) if moved else None
    # Padding is at the end of a sequence, so causal attention of a token never reaches it.
    seen = None if causal or full else inside_BS[:, None, None, :]
    ends_B1, block_mask = F.pad(lengths_B.cumsum(0), (1, 0)).int(), None
    if visibility == "per_sequence" and "rank" in batch and not (padded or dense) and flex.fits(ids, dropout):
        block_mask = flex.rank_mask(flex.row_of(ends_B1, len(ids)), batch["rank"], batch["reach"])
    elif visibility == "per_sequence" and "rank" in batch:  # downstream batches have no `rank`: attention is full
        rank_BS, reach_BS = (spread(batch[name], token_at).view(rows, longest) for name in ("rank", "reach"))
        seen = (rank_BS[:, None, :] <= reach_BS[:, :, None])[:, None] & inside_BS[:, None, None, :]
        # each position, including padding, attends to itself
        seen = seen | torch.eye(longest, dtype=torch.bool, device=ids.device)
    return BatchLayout(
        shape=(rows, longest),
        causal=causal,
        ends_B1=ends_B1 if visibility != "per_sequence" else None,
        place_T=inside_BS.flatten().nonzero_static(size=len(ids)).squeeze(1) if moved else None,
        token_at=token_at,
        seen=seen,
        block_mask=block_mask,
        token_shape=tuple(ids.shape),
        is_fixed=padded or "longest" in batch,
    )


def longest_of(batch: Mapping[str, Tensor]) -> int:
    """The length of the longest sequence of a batch, or, in a batch of a fixed shape, of any such batch."""
    return int(host_of(batch, "longest" if "longest" in batch else "lengths").max())


def spread(x: Tensor, token_at: Tensor | None) -> Tensor:
    """Move unpadded tokens to the padded layout [B * S]; return `x` unchanged if it has that layout already."""
    return x if token_at is None else x.index_select(0, token_at)
