"""Attention whose result is multiplied with a gate (arXiv:2505.06708, 2.2). Axes as in layout.py."""

from typing import ClassVar

from torch import Tensor

from training.architectures.attention import Attention
from training.architectures.linears import ColumnLinear


class GatedAttentionModule(Attention):
    """Each element of the result is multiplied with a sigmoid of the states, before the last linear layer."""

    kind: ClassVar[str] = "gated"
    gate: ColumnLinear

    def finish(self, mixed: Tensor, x: Tensor) -> Tensor:
        return super().finish(mixed * self.gate(x).sigmoid(), x)
