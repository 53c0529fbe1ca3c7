"""The gated feed-forward layer (GLU variants, arXiv:2002.05202)."""

from typing import ClassVar

from torch import Tensor

from training.architectures.feed_forward import FeedForward, apply_activation
from training.architectures.fused import FusedLinear


class GatedFeedForwardModule(FeedForward):
    """The inner elements are multiplied with an activated gate (GLU variants, arXiv:2002.05202)."""

    kind: ClassVar[str] = "gated"
    up: FusedLinear  # the gate, then the elements

    def rise(self, x: Tensor) -> Tensor:
        gate, inner = self.up(x).split(self.up.lengths, -1)
        return apply_activation(gate, self.activation) * inner
