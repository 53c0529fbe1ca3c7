"""Kinds of attention: their keys and tensors. The modules are in training/architectures/."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

from preprocessing.spec import ScaleOverrides, spec
from training.specs.tensors import LinearSpec, NormSpec, Tensors, VectorsSpec


@dataclass(frozen=True)
class SelfAttentionSpec:
    """Multi-head self-attention (arXiv:1706.03762, 3.2.2), whose queries, keys and values are one product.

    With fewer heads of keys and values than of queries, each is shared by a group of queries (grouped-query attention,
    arXiv:2305.13245). With a window, a token attends to near tokens only.
    """

    kind: ClassVar[str] = "plain"  # of its module, training/architectures/kinds.py
    width: int  # of the hidden states
    heads: int
    head_dim: int
    dropout: float = 0.0
    bias: bool = True
    key_value_heads: int = 0  # 0: as many as heads
    head_norm: NormSpec | None = None  # of each query and each key, before their product
    window: tuple[int, int] | None = None  # tokens before and after a token that it attends to; None: all
    is_scaled: bool = True  # scores times 1 / sqrt(head_dim)
    is_rotated: bool = False  # queries and keys are rotated by their positions
    is_per_sequence: bool = False  # each sequence has a mask of its own

    @property
    def inner(self) -> int:
        """Size of all heads together."""
        return self.heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Size of the keys of all heads together, and of the values."""
        return (self.key_value_heads or self.heads) * self.head_dim

    @property
    def qkv(self) -> LinearSpec:
        """The linear layers of queries, keys and values."""
        outputs = (self.inner, self.key_value_width, self.key_value_width)
        return LinearSpec("qkv", self.width, outputs, self.bias, "outputs")

    @property
    def key_value(self) -> LinearSpec:
        """The linear layers of keys and values."""
        return LinearSpec("key_value", self.width, (self.key_value_width,) * 2, self.bias, "outputs")

    @property
    def out(self) -> LinearSpec:
        return LinearSpec("out", self.inner, (self.width,), self.bias, "inputs")

    @property
    def head_norms(self) -> tuple[NormSpec, ...]:
        """The norms of queries and keys, which all heads share."""
        norm = self.head_norm
        return () if norm is None else tuple(replace(norm, name=name) for name in ("query_norm", "key_norm"))

    @property
    def kept_scores(self) -> int:
        """Score matrices that attention with dropout stores in float32 on a CPU.

        Without a window, shared heads or masks of sequences, it stores the weights only
        (training/architectures/dropout_attention.py).
        """
        is_plain = self.window is None and self.key_value_width == self.inner and not self.is_per_sequence
        return 1 if is_plain else 3

    @property
    def kept_more(self) -> int:
        """Stored elements per token, besides queries, keys, values and their mixture: the inputs of head norms."""
        return self.inner + 2 * self.key_value_width if self.head_norm else 0

    def tensors(self) -> tuple[Tensors, ...]:
        return self.qkv, self.out, *self.head_norms


@dataclass(frozen=True)
class GlobalAttentionSpec(SelfAttentionSpec):
    """Attention with a window, and of the first token to and from all tokens (Longformer, arXiv:2004.05150, 3.1).

    The first token has linear layers of its own.
    """

    kind: ClassVar[str] = "global"

    @property
    def kept_scores(self) -> int:
        return 3

    @property
    def global_query(self) -> LinearSpec:
        return LinearSpec("global_query", self.width, (self.inner,), self.bias, "outputs", per="sequence")

    @property
    def global_key_value(self) -> LinearSpec:
        return LinearSpec("global_key_value", self.width, (self.inner, self.inner), self.bias, "outputs")

    def tensors(self) -> tuple[Tensors, ...]:
        return (*SelfAttentionSpec.tensors(self), self.global_query, self.global_key_value)


@dataclass(frozen=True)
class Seq2SeqAttentionSpec(SelfAttentionSpec):
    """Self-attention or cross-attention. Queries have a linear layer of their own, which T5 initializes differently."""

    @property
    def query(self) -> LinearSpec:
        return LinearSpec("query", self.width, (self.inner,), self.bias, "outputs")

    def tensors(self) -> tuple[Tensors, ...]:
        return self.query, self.key_value, self.out, *self.head_norms


@dataclass(frozen=True)
class RelativeAttentionSpec(SelfAttentionSpec):
    """Attention by content and distance (Transformer-XL, arXiv:1901.02860, 3.3), and by segment (XLNet).

    Its linear layers have no biases. The biases of the queries belong to the attention, or all layers share them.
    """

    bias: bool = False
    has_segments: bool = False
    shares_biases: bool = False

    @property
    def query(self) -> LinearSpec:
        return LinearSpec("query", self.width, (self.inner,), False, "outputs")

    @property
    def distance(self) -> LinearSpec:
        """The projection of the sinusoids of distances, which all sequences share."""
        return LinearSpec("distance", self.width, (self.inner,), False, "outputs", per="batch")

    @property
    def biases(self) -> tuple[VectorsSpec, ...]:
        """Biases of the queries for each term of the score."""
        terms = ("content", "distance", *(("segment",) if self.has_segments else ()))
        return tuple(VectorsSpec(f"biases.{term}", (self.heads, self.head_dim), 0) for term in terms)

    @property
    def segments(self) -> tuple[VectorsSpec, ...]:
        """Embeddings of the same and of another segment."""
        return (VectorsSpec("segments", (2, self.heads, self.head_dim), 1),) if self.has_segments else ()

    @property
    def linears(self) -> tuple[LinearSpec, ...]:
        return self.query, self.key_value, self.distance, self.out

    def tensors(self) -> tuple[Tensors, ...]:
        own = () if self.shares_biases else self.biases
        return *self.linears, *own, *self.segments


class AttentionPart(Protocol):
    """A kind of self-attention that a recipe can choose."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    def layer_of(self, **sizes: Any) -> SelfAttentionSpec:
        """The layer, with the sizes of SelfAttentionSpec."""

    def describe(self) -> str:
        """Description for reports."""


@spec
class PlainAttention:
    """Softmax of scaled products of queries and keys (arXiv:1706.03762, 3.2)."""

    kind: Literal["plain"] = "plain"

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def layer_of(self, **sizes: Any) -> SelfAttentionSpec:
        return SelfAttentionSpec(**sizes)

    def describe(self) -> str:
        return "softmax attention"
