"""Kinds of attention: their tensors. The modules are in training/architectures/."""

from dataclasses import dataclass

from training.specs.tensors import LinearSpec, Tensors, VectorsSpec


@dataclass(frozen=True)
class SelfAttentionSpec:
    """Multi-head self-attention (arXiv:1706.03762, 3.2.2), whose queries, keys and values are one product."""

    width: int  # of the hidden states
    heads: int
    head_dim: int
    dropout: float = 0.0
    bias: bool = True

    @property
    def inner(self) -> int:
        """Size of all heads together."""
        return self.heads * self.head_dim

    @property
    def key_value(self) -> LinearSpec:
        """The linear layers of keys and values."""
        return LinearSpec("key_value", self.width, (self.inner, self.inner), self.bias, "outputs")

    @property
    def out(self) -> LinearSpec:
        return LinearSpec("out", self.inner, (self.width,), self.bias, "inputs")

    def tensors(self) -> tuple[Tensors, ...]:
        return LinearSpec("qkv", self.width, (self.inner,) * 3, self.bias, "outputs"), self.out


@dataclass(frozen=True)
class WindowAttentionSpec(SelfAttentionSpec):
    """Attention to near tokens. With `global_first`, the first token has linear layers of its own (Longformer 3.1)."""

    before: int = 0
    after: int = 0
    global_first: bool = False

    @property
    def global_query(self) -> LinearSpec:
        return LinearSpec("global_query", self.width, (self.inner,), self.bias, "outputs", per="sequence")

    @property
    def global_key_value(self) -> LinearSpec:
        return LinearSpec("global_key_value", self.width, (self.inner, self.inner), self.bias, "outputs")

    def tensors(self) -> tuple[Tensors, ...]:
        of_first = (self.global_query, self.global_key_value) if self.global_first else ()
        return (*SelfAttentionSpec.tensors(self), *of_first)


@dataclass(frozen=True)
class Seq2SeqAttentionSpec(SelfAttentionSpec):
    """Self-attention or cross-attention. Queries have a linear layer of their own, which T5 initializes differently."""

    is_scaled: bool = True  # scores times 1 / sqrt(head_dim)

    @property
    def query(self) -> LinearSpec:
        return LinearSpec("query", self.width, (self.inner,), self.bias, "outputs")

    def tensors(self) -> tuple[Tensors, ...]:
        return self.query, self.key_value, self.out


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
