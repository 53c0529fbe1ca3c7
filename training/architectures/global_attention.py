"""Attention with a window and a global first token (Longformer, arXiv:2004.05150, 3.1). Axes as in layout.py."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from training.architectures.attention import Attention, attend_to_window, to_padded
from training.architectures.fused import FusedLinear
from training.architectures.layout import BatchLayout
from training.architectures.linears import ColumnLinear


class GlobalAttention(Attention):
    """Each token attends to near tokens and to the first token of its sequence.

    The first token attends to all tokens, with separate linear layers.
    """

    kind: ClassVar[str] = "global"
    global_query: ColumnLinear
    global_key_value: FusedLinear

    def _mix(
        self, x: Tensor, query: Tensor, rows: BatchLayout, key_value: Tensor, source: BatchLayout, dropout: float
    ) -> Tensor:
        assert self.window is not None
        assert rows.ends_B1 is not None
        recompute = self.recompute_core
        mixed = attend_to_window(query, key_value, rows, self.window, dropout, first=True, recompute=recompute)
        key_value_BSGK = to_padded(self.global_key_value(x).unflatten(-1, (-1, self.head_dim)), rows)
        first_at_B = rows.ends_B1[:-1] if x.ndim == 2 else torch.arange(len(x), device=x.device) * x.shape[1]
        first_B1HK = self.global_query(x.flatten(0, -2)[first_at_B.long()][:, None]).unflatten(-1, (-1, self.head_dim))
        lengths_B = rows.ends_B1.diff()
        seen_B11S = (torch.arange(rows.shape[1], device=x.device) < lengths_B[:, None])[:, None, None]
        key_BGSK, value_BGSK = key_value_BSGK.transpose(1, 2).chunk(2, 1)
        mixed_BH1K = F.scaled_dot_product_attention(
            first_B1HK.transpose(1, 2), key_BGSK, value_BGSK, attn_mask=seen_B11S, dropout_p=dropout
        )
        flat = mixed.flatten(0, -3)
        return flat.index_copy(0, first_at_B.long(), mixed_BH1K[:, :, 0]).view(mixed.shape)
