"""Numbers of weights in the parts of a model, which determine memory and communication.

Each tensor-parallel worker (Megatron-LM, arXiv:1909.08053, 3) has some of the `split` weights and all of the `whole`
weights. Of two successive linear layers, the first is split by columns (or heads), the second by rows. The bias of the
second is not split.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerWeights:
    """Numbers of weights of equal layers in a stack, for example of all attentions with their norms."""

    number: int  # layers in a forward pass
    copies: int  # layers with separate weights; fewer if layers share weights
    split: int
    whole: int

    @property
    def each(self) -> int:
        return self.split + self.whole

    @property
    def total(self) -> int:
        """Number of weights in all layers; shared weights count once."""
        return self.copies * self.each


@dataclass(frozen=True)
class Weights:
    """Numbers of weights of a model or a head."""

    tables: int = 0  # token tables, split by rows (arXiv:1909.08053, 3)
    layers: tuple[LayerWeights, ...] = ()
    others: int = 0  # not split: positions, segments, norms and linear layers outside of the stack

    @property
    def total(self) -> int:
        return self.tables + sum(part.total for part in self.layers) + self.others

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(self.tables + more.tables, (*self.layers, *more.layers), self.others + more.others)
