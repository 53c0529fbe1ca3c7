"""The feed-forward layer, which treats each token separately."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures.dropout import Dropout
from training.architectures.linears import ColumnLinear, RowLinear
from training.architectures.made import add_modules
from training.architectures.tensor_parallel import WHOLE, Share
from training.specs import Activation, FeedForwardSpec


class FeedForward(nn.Module):
    """Two linear layers with an activation and optional dropout between them (arXiv:1706.03762, 3.3)."""

    kind: ClassVar[str] = "plain"  # of its spec
    up: ColumnLinear
    down: RowLinear
    share: Share = WHOLE

    def __init__(self, spec: FeedForwardSpec) -> None:
        super().__init__()
        self.activation, self.dropout = spec.activation, Dropout(spec.dropout)
        add_modules(self, spec.tensors())

    def split_axes(self) -> dict[str, int]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        x = self.rise(x)
        with self.share.noise(self.dropout.p if self.training else 0.0):
            x = self.dropout(x)
        return self.down(x)

    def rise(self, x: Tensor) -> Tensor:
        """The inner elements [..., inner] of states [..., D]."""
        return apply_activation(self.up(x), self.activation)


def apply_activation(x: Tensor, activation: Activation) -> Tensor:
    """Apply an activation function.

    `gelu` is x * Phi(x), computed with the error function. `gelu_tanh` is its tanh approximation (arXiv:1606.08415), as
    in GPT-2.
    """
    match activation:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "silu":
            return F.silu(x)
