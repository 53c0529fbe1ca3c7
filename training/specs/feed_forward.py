"""The feed-forward layer: its key and its tensors. The modules are in training/architectures/feed_forward.py."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from preprocessing.spec import ScaleOverrides, spec
from training.specs.tensors import LinearSpec, Tensors

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


@dataclass(frozen=True)
class FeedForwardSpec:
    """Two linear layers with an activation, and dropout between them (arXiv:1706.03762, 3.3)."""

    kind: ClassVar[str] = "plain"  # of its module, training/architectures/kinds.py
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

    @property
    def passing(self) -> int:
        """Elements per token and inner element of the gradients in its backward pass."""
        return 2

    def tensors(self) -> tuple[Tensors, ...]:
        return self.up, self.down


class FeedForwardPart(Protocol):
    """A kind of feed-forward layer."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    def layer_of(self, **sizes: Any) -> FeedForwardSpec:
        """The layer, with the sizes of FeedForwardSpec."""

    def describe(self) -> str:
        """Description for reports."""


@spec
class PlainFeedForward:
    """Two linear layers with an activation between them (arXiv:1706.03762, 3.3)."""

    kind: Literal["plain"] = "plain"

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def layer_of(self, **sizes: Any) -> FeedForwardSpec:
        return FeedForwardSpec(**sizes)

    def describe(self) -> str:
        return "two linear layers"
