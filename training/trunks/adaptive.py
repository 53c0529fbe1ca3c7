"""Tables that spend less on rare tokens: adaptive embeddings (arXiv:1809.10853) and softmax (arXiv:1609.04309).

Tokens are numbered by falling frequency. `cutoffs` cut the vocabulary into clusters, and cluster i has a table that is
shrink ** i times narrower than the net, with a projection. Embeddings and softmax share tables and projections, but for
the projection of the first cluster, which each has of its own (authors' code of Transformer-XL).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.knob import require
from training.cross_entropy import linear_cross_entropy, tokens_at
from training.score import Score
from training.trunks.spec import Decoder


def bounds(cutoffs: tuple[int, ...], vocab_size: int) -> list[tuple[int, int]]:
    """First id of each cluster, and the one after its last.

    >>> bounds((3, 5), 9)
    [(0, 3), (3, 5), (5, 9)]
    """
    require(cutoffs[-1] < vocab_size, "trunk.cutoffs", list(cutoffs), f"numbers below the {vocab_size} tokens")
    return list(zip((0, *cutoffs), (*cutoffs, vocab_size), strict=True))


class AdaptiveTable(nn.Module):
    """Embedding of tokens by tables of different widths, each widened to that of the net."""

    def __init__(self, trunk: Decoder, vocab_size: int) -> None:
        super().__init__()
        self.width, self.bounds = trunk.width, bounds(trunk.cutoffs, vocab_size)
        widths = [trunk.width // trunk.shrink**cluster for cluster in range(len(self.bounds))]
        self.clusters = nn.ModuleList(
            nn.Embedding(stop - start, width) for (start, stop), width in zip(self.bounds, widths, strict=True)
        )
        self.widen = nn.ModuleList(nn.Linear(width, trunk.width, bias=False) for width in widths)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The table of each cluster, then the projection [D, width] of each."""
        return tuple(part.get_parameter("weight") for part in (*self.clusters, *self.widen))

    def forward(self, ids: Tensor) -> Tensor:
        """Ids of any shape -> [..., D]."""
        flat_T = ids.flatten()
        at, x = [], []
        for (start, stop), table, widen in zip(self.bounds, self.clusters, self.widen, strict=True):
            at.append(((flat_T >= start) & (flat_T < stop)).nonzero().squeeze(1))
            x.append(widen(table(flat_T[at[-1]] - start)))
        return torch.cat(x)[torch.cat(at).argsort()].view(*ids.shape, self.width)


class AdaptiveHead(nn.Module):
    """First a softmax over the frequent tokens and the clusters of the others, then one inside of the token's cluster.

    `table` has the table of each cluster, and the projections where the tables shrink. A rare token counts as correct
    where both its cluster and its place in there have the highest score: not one target is compared with all tokens.
    """

    def __init__(self, trunk: Decoder, vocab_size: int) -> None:
        super().__init__()
        self.cutoffs, self.bounds = trunk.cutoffs, bounds(trunk.cutoffs, vocab_size)
        self.project = nn.Linear(trunk.width, trunk.width, bias=False) if trunk.shrink > 1 else nn.Identity()
        self.clusters = nn.Parameter(torch.empty(len(self.cutoffs), trunk.width))
        self.cluster_bias = nn.Parameter(torch.empty(len(self.cutoffs)))
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: tuple[Tensor, ...]) -> Score:
        feature_MD, target_M = tokens_at(hidden, batch["targets_at"]), batch["targets"]
        tables, projections = table[: len(self.bounds)], table[len(self.bounds) :]
        frequent = self.cutoffs[0]
        cluster_M = torch.bucketize(target_M, torch.tensor(self.cutoffs, device=target_M.device), right=True)
        loss, right_M = linear_cross_entropy(
            self.project(feature_MD),
            torch.cat([tables[0], self.clusters]),
            torch.cat([self.bias[:frequent], self.cluster_bias]),
            torch.where(cluster_M == 0, target_M, frequent - 1 + cluster_M),
        )
        correct = (right_M & (cluster_M == 0)).sum()
        for cluster, (start, stop) in enumerate(self.bounds[1:], start=1):
            at_R = (cluster_M == cluster).nonzero().squeeze(1)
            feature = feature_MD[at_R]
            if projections:
                feature = F.linear(feature, projections[cluster].T)
            part, right_R = linear_cross_entropy(
                feature, tables[cluster], self.bias[start:stop], target_M[at_R] - start
            )
            loss, correct = loss + part, correct + (right_M[at_R] & right_R).sum()
        return Score(loss, len(target_M), correct)
