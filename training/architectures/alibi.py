"""ALiBi (arXiv:2108.12409): each head subtracts its slope times the distance of two tokens from their score."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from training.architectures.constants import constant
from training.architectures.layout import BatchLayout
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import alibi_slopes


class AlibiBias(nn.Module):
    """The biases of this worker's heads. It has no parameters."""

    share: Share = WHOLE
    chunk: Share = WHOLE  # with sequence parallelism, a worker has some of the heads of all tokens

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, rows: BatchLayout, dtype: torch.dtype, device: torch.device) -> BatchLayout:
        """The layout with the biases as its mask, [B or 1, H, S, S]; minus infinity where a key is masked."""
        token_S = torch.arange(rows.shape[1], device=device)
        bias_1HSS = self._bias((token_S - token_S[:, None])[None], dtype)
        if rows.causal:
            bias_1HSS = bias_1HSS.masked_fill(token_S > token_S[:, None], -torch.inf)
        if rows.seen is not None:
            bias_1HSS = bias_1HSS.masked_fill(~rows.seen, -torch.inf)
        return replace(rows, ends_B1=None, block_mask=None, causal=False, seen=bias_1HSS)

    def of_new_tokens(self, slot_BS: Tensor, seen: Tensor, dtype: torch.dtype) -> Tensor:
        """The biases of new tokens and all cached tokens, [B, H, S, C]; `seen` is the mask, bool [B, 1, S, C]."""
        slot_C = torch.arange(seen.shape[-1], device=seen.device)
        return self._bias(slot_C - slot_BS[..., None], dtype).masked_fill(~seen, -torch.inf)

    def _bias(self, offset_BQC: Tensor, dtype: torch.dtype) -> Tensor:
        slope_H = constant(alibi_slopes(self.heads), offset_BQC.device)
        slope_H = slope_H[self.share.within(self.heads)]
        slope_H = slope_H[self.chunk.within(len(slope_H))]
        return (-slope_H[:, None, None] * offset_BQC[:, None].abs()).to(dtype)
