"""The blocks of a net and what goes through them: what activations, their recomputation and communication depend on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSpec:
    """Blocks of one make, attention and feed-forward each, and what a batch is to one of them.

    Sizes are in elements; `tokens` and `pairs` are of all rows of the batch together.
    """

    number: int
    tokens: float  # that go through each block
    pairs: float  # of a query and a key, of one head; those that a causal mask hides too
    width: int
    heads: int
    head_width: int
    inner: int  # width of the feed-forward layer
    dropout: float = 0.0
    attention_dropout: float = 0.0
    source_tokens: float = 0.0  # of another text that each block attends to as well
    source_pairs: float = 0.0
    scores: int = 0  # matrices of pairs and heads that the score itself is made of, whatever the kernel
    kept_by_norm: int = 2  # elements of a token and an element of its width, before, inside and behind a norm
    kept_inside: int = 2  # elements of a token and an element of the inner width, before and behind the activation
    inner_dropout: float = 0.0  # behind the activation
    copied: float = 0.0  # elements of a token and an element of the heads' width that attention keeps besides
    backward: bool = True  # False: a net that does not learn

    @property
    def heads_width(self) -> int:
        """Of all heads together."""
        return self.heads * self.head_width

    @property
    def attentions(self) -> int:
        """Of each block: to its own text, and to another."""
        return 2 if self.source_tokens else 1

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each matrix: queries, keys, values and output of each attention, and feed-forward."""
        attention = (*[(self.heads_width, self.width)] * 3, (self.width, self.heads_width))
        return (*attention * self.attentions, (self.inner, self.width), (self.width, self.inner))
