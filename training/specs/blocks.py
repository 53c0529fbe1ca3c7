"""Blocks of a model and their work, which determine activations, recomputation and communication."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSpec:
    """Equal blocks of attention and feed-forward, and the work of a batch in one of them.

    Sizes are in elements; `tokens` and `pairs` are sums over all sequences of the batch.
    """

    number: int
    tokens: float  # tokens in each block
    pairs: float  # pairs of a query and a key in one head, including pairs that a causal mask hides
    width: int
    heads: int
    head_width: int
    inner: int  # width of the feed-forward layer
    dropout: float = 0.0
    attention_dropout: float = 0.0
    source_tokens: float = 0.0  # tokens of the source, for blocks with cross-attention
    source_pairs: float = 0.0
    scores: int = 0  # stored matrices with one element per pair and head, with any attention kernel
    kept_by_norm: int = 2  # stored elements per token and hidden element, before, inside and after a norm
    kept_inside: int = 2  # stored elements per token and inner element, before and after the activation
    inner_dropout: float = 0.0  # dropout after the activation
    copied: float = 0.0  # additional stored elements of attention per token and element of the heads
    backward: bool = True  # False: the model is frozen

    @property
    def heads_width(self) -> int:
        """Size of all heads together."""
        return self.heads * self.head_width

    @property
    def attentions(self) -> int:
        """Number of attentions per block: self-attention, and cross-attention if there is a source."""
        return 2 if self.source_tokens else 1

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each matrix: queries, keys, values and output of each attention, then feed-forward."""
        attention = (*[(self.heads_width, self.width)] * 3, (self.width, self.heads_width))
        return (*attention * self.attentions, (self.inner, self.width), (self.width, self.inner))
