"""How many weights a net has, and in which of its parts: what its memory and its communication depend on.

Of tensor-parallel workers (Megatron-LM, arXiv:1909.08053, 3) each has a share of what is `split`, and all of what is
`whole`: linears are split by heads or by columns, then by rows, and of a linear by rows the bias is whole.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerWeights:
    """Parts of one make in a stack, as its attentions: weights of each, its norm included."""

    number: int  # that a forward pass goes through
    copies: int  # that have weights of their own; fewer where layers share
    split: int
    whole: int

    @property
    def each(self) -> int:
        return self.split + self.whole

    @property
    def total(self) -> int:
        """What all of them have, once each."""
        return self.copies * self.each


@dataclass(frozen=True)
class Weights:
    """Of a trunk or a head."""

    tables: int = 0  # of tokens, split by rows (arXiv:1909.08053, 3)
    layers: tuple[LayerWeights, ...] = ()
    others: int = 0  # whole: positions, segments, norms and linears outside of the layers

    @property
    def total(self) -> int:
        return self.tables + sum(part.total for part in self.layers) + self.others

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(self.tables + more.tables, (*self.layers, *more.layers), self.others + more.others)


def linear_weights(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """
    >>> linear_weights(8, 4), linear_weights(8, 4, bias=False)
    (36, 32)
    """
    return inputs * outputs + (outputs if bias else 0)


def norm_weights(width: int, *, bias: bool = True) -> int:
    """A gain and a bias for each element; the root mean square has no bias."""
    return width * (1 + bias)


def attention_weights(width: int, heads: int, *, bias: bool = True) -> tuple[int, int]:
    """What is split and whole of queries, keys, values and output; `heads` is the width of all together."""
    return 3 * linear_weights(width, heads, bias=bias) + heads * width, width * bias


def mask_head_weights(width: int, table_width: int, vocab_size: int) -> int:
    """Weights of a head that fills in masks: linear, norm, and a bias for each token (BERT 3.1, task 1)."""
    return linear_weights(width, table_width) + norm_weights(table_width) + vocab_size


def feed_forward_weights(width: int, inner: int, *, bias: bool = True) -> tuple[int, int]:
    """What is split and whole of both linears."""
    return linear_weights(width, inner, bias=bias) + inner * width, width * bias
