"""Kinds of feed-forward layers: their keys and tensors. The modules are in training/architectures/feed_forward.py."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from preprocessing.spec import ScaleOverrides, key, spec
from training.specs.tensors import LinearSpec, Tensors

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


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

    @property
    def passing(self) -> int:
        """Elements per token and inner element of the gradients in its backward pass."""
        return 2

    def tensors(self) -> tuple[Tensors, ...]:
        return self.up, self.down


@dataclass(frozen=True)
class GatedFeedForwardSpec(FeedForwardSpec):
    """A feed-forward layer whose inner elements are multiplied with an activated gate (GLU variants, arXiv:2002.05202).

    SwiGLU has the activation silu, GeGLU gelu or gelu_tanh.
    """

    up_bias: bool = True

    @property
    def up(self) -> LinearSpec:
        """The linear layers of the gate and of the elements that it multiplies."""
        return LinearSpec("up", self.width, (self.inner, self.inner), self.up_bias, "outputs")

    @property
    def kept(self) -> int:
        """The gate, the elements, the activated gate and the product."""
        return 4

    @property
    def passing(self) -> int:
        return 4


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


@spec
class GatedFeedForward:
    """Inner elements are multiplied with an activated gate (GLU variants, arXiv:2002.05202)."""

    kind: Literal["gated"] = "gated"
    # MosaicBERT has a bias in the second linear layer only.
    up_bias: bool | None = key(default=None, doc="Whether the first linear layer has a bias; null: as mlp_bias.")

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def layer_of(self, **sizes: Any) -> FeedForwardSpec:
        return GatedFeedForwardSpec(**sizes, up_bias=sizes["bias"] if self.up_bias is None else self.up_bias)

    def describe(self) -> str:
        return "a gated layer"


FeedForwardKind = PlainFeedForward | GatedFeedForward
