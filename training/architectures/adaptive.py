"""Adaptive embeddings (arXiv:1809.10853) and adaptive softmax (arXiv:1609.04309): narrower vectors for rare tokens.

Token IDs are sorted by decreasing frequency. `cutoffs` divide the vocabulary into clusters. The table of cluster i is
div_val ** i times narrower than the model, and a projection widens its vectors to the width of the model. Embeddings
and softmax share the tables and the projections, except for the projection of the first cluster, which is separate for
each (authors' code of Transformer-XL).
"""

import torch
from torch import Tensor, nn

from preprocessing.spec import require
from training.architectures.made import make
from training.specs import Decoder, LinearSpec, TableSpec


def bounds(cutoffs: tuple[int, ...], vocab_size: int) -> list[tuple[int, int]]:
    """Range of token IDs of each cluster: the first ID, and the ID after the last one.

    >>> bounds((3, 5), 9)
    [(0, 3), (3, 5), (5, 9)]
    """
    require(
        cutoffs[-1] < vocab_size,
        "model.token_embedding.cutoffs",
        list(cutoffs),
        f"numbers below the vocabulary size {vocab_size}",
    )
    return list(zip((0, *cutoffs), (*cutoffs, vocab_size), strict=True))


class AdaptiveTable(nn.Module):
    """Token embeddings with a table of a different width for each cluster, projected to the width of the model."""

    def __init__(self, trunk: Decoder, vocab_size: int) -> None:
        super().__init__()
        self.width, self.bounds = trunk.hidden_size, bounds(trunk.cutoffs, vocab_size)
        tensors = trunk.tables(vocab_size)
        self.clusters = nn.ModuleList(make(tensor) for tensor in tensors if isinstance(tensor, TableSpec))
        self.widen = nn.ModuleList(make(tensor) for tensor in tensors if isinstance(tensor, LinearSpec))

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The table of each cluster, then the projection [D, width] of each cluster."""
        return tuple(part.get_parameter("weight") for part in (*self.clusters, *self.widen))

    def forward(self, ids: Tensor) -> Tensor:
        """Embed token IDs of any shape: [...] -> [..., D]."""
        # each cluster embeds all tokens: a selection of its own tokens would have a size that only the device knows
        x = torch.zeros((), device=ids.device)
        for (start, stop), table, widen in zip(self.bounds, self.clusters, self.widen, strict=True):
            inside = (ids >= start) & (ids < stop)
            x = x + widen(table((ids - start).where(inside, 0))) * inside[..., None]
        return x
