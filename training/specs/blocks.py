"""Blocks of a model and their work, which determine activations, recomputation and communication."""

from dataclasses import dataclass
from typing import Literal

from training.specs.attention import SelfAttentionSpec
from training.specs.feed_forward import FeedForwardSpec
from training.specs.tensors import LinearSpec, shapes_of

ParallelResidual = Literal["none", "two_norms", "one_norm"]
"""Whether attention and feed-forward layer read the same states, with one or two norms."""


@dataclass(frozen=True)
class BlockSpec:
    """Equal blocks of attention and feed-forward, and the work of a batch in one of them.

    Sizes are in elements; `tokens` and `pairs` are sums over all sequences of the batch.
    """

    number: int
    tokens: float  # tokens in each block
    pairs: float  # pairs of a query and a key in one head, including pairs that a causal mask hides
    attention: SelfAttentionSpec
    feed_forward: FeedForwardSpec
    dropout: float = 0.0
    source_tokens: float = 0.0  # tokens of the source, for blocks with cross-attention
    source_pairs: float = 0.0
    scores: int = 0  # stored matrices with one element per pair and head, with any attention kernel
    kept_by_norm: int = 2  # stored elements per token and hidden element, before, inside and after a norm
    parallel_residual: ParallelResidual = "none"
    copied: float = 0.0  # additional stored elements of attention per token and element of the heads
    chunked: float = 0.0  # the same for a window that is computed in chunks: FlexAttention on CUDA copies nothing
    backward: bool = True  # False: the model is frozen

    @property
    def kept_by_norms(self) -> int:
        """Stored elements per token and hidden element of all norms. Parallel sublayers store their input once."""
        of_sublayers = self.kept_by_norm * (self.attentions + 1)
        return {"none": of_sublayers, "two_norms": of_sublayers - 1, "one_norm": self.kept_by_norm}[
            self.parallel_residual
        ]

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.attention.width

    @property
    def heads(self) -> int:
        return self.attention.heads

    @property
    def heads_width(self) -> int:
        """Size of all heads together."""
        return self.attention.inner

    @property
    def inner(self) -> int:
        """Size of the feed-forward layer."""
        return self.feed_forward.inner

    @property
    def attention_dropout(self) -> float:
        return self.attention.dropout

    @property
    def attentions(self) -> int:
        """Number of attentions per block: self-attention, and cross-attention if there is a source."""
        return 2 if self.source_tokens else 1

    @property
    def heads_kept(self) -> float:
        """Stored elements of all queries, keys and values."""
        width, key_value = self.attention.inner, 2 * self.attention.key_value_width
        own = self.tokens * (width + key_value + self.attention.kept_more)
        return own + (self.tokens * width + self.source_tokens * key_value if self.source_tokens else 0.0)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Number of weights in each matrix; fused matrices count as one."""
        attention, feed_forward = self.attention.tensors(), self.feed_forward.tensors()
        tensors = (*attention * self.attentions, *feed_forward)
        return tuple(tensor.products for tensor in tensors if isinstance(tensor, LinearSpec))

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each matrix: those of each attention, then those of the feed-forward layer."""
        attention, feed_forward = map(shapes_of, (self.attention.tensors(), self.feed_forward.tensors()))
        return (*attention * self.attentions, *feed_forward)
