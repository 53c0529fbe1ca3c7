"""The feed-forward layer: its tensors."""

from dataclasses import dataclass
from typing import Literal

from training.specs.tensors import LinearSpec, Tensors

Activation = Literal["gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True)
class FeedForwardSpec:
    """Two linear layers with an activation, and dropout between them (arXiv:1706.03762, 3.3)."""

    width: int  # of the hidden states
    inner: int
    activation: Activation
    dropout: float = 0.0
    bias: bool = True

    @property
    def up(self) -> LinearSpec:
        return LinearSpec("up", self.width, (self.inner,), self.bias, "outputs")

    @property
    def down(self) -> LinearSpec:
        return LinearSpec("down", self.inner, (self.width,), self.bias, "inputs")

    @property
    def kept(self) -> int:
        """Stored elements per token and inner element: before and after the activation; ReLU needs its result only."""
        return 1 if self.activation == "relu" else 2

    def tensors(self) -> tuple[Tensors, ...]:
        return self.up, self.down
