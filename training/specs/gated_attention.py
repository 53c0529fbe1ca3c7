"""Gated attention (arXiv:2505.06708): its key and its tensors."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, spec
from training.specs.attention import SelfAttentionSpec
from training.specs.tensors import LinearSpec, Tensors


@dataclass(frozen=True)
class GatedAttentionSpec(SelfAttentionSpec):
    """Self-attention whose result is multiplied with a gate (arXiv:2505.06708, 2.2)."""

    kind: ClassVar[str] = "gated"

    @property
    def gate(self) -> LinearSpec:
        return LinearSpec("gate", self.width, (self.inner,), self.bias, "outputs")

    @property
    def kept_more(self) -> int:
        """The gate and the product, too."""
        return SelfAttentionSpec.kept_more.__get__(self) + 2 * self.inner

    def tensors(self) -> tuple[Tensors, ...]:
        return (*SelfAttentionSpec.tensors(self), self.gate)


@spec
class GatedAttention:
    """Attention whose result is multiplied with a sigmoid gate (arXiv:2505.06708)."""

    kind: Literal["gated"] = "gated"

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def layer_of(self, **sizes: Any) -> SelfAttentionSpec:
        return GatedAttentionSpec(**sizes)

    def describe(self) -> str:
        return "softmax attention with a gate"
