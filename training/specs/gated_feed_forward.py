"""The gated feed-forward layer (GLU variants, arXiv:2002.05202): its key and its tensors."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, spec
from training.specs.feed_forward import FeedForwardSpec
from training.specs.tensors import LinearSpec


@dataclass(frozen=True)
class GatedFeedForwardSpec(FeedForwardSpec):
    """A feed-forward layer whose inner elements are multiplied with an activated gate (GLU variants, arXiv:2002.05202).

    SwiGLU has the activation silu, GeGLU gelu or gelu_tanh.
    """

    kind: ClassVar[str] = "gated"
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
