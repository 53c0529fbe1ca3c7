"""Adaptive softmax (arXiv:1609.04309) over the clusters of an adaptive table (architectures/adaptive.py)."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import bounds, constant, copy_to_device, host_of
from training.losses.heads.cross_entropy import (
    count_real,
    linear_cross_entropy,
    real_targets,
    token_log_p,
    tokens_at,
)
from training.score import Score
from training.specs import Architecture


class AdaptiveHead(nn.Module):
    """A softmax over frequent tokens and clusters of rare tokens, then a softmax over the tokens of a cluster.

    `table` has the table of each cluster, followed by the projections if the embedding sizes differ. A rare token
    counts as correct if its cluster and its score inside the cluster are the highest. No target is compared with all
    tokens.
    """

    clusters: nn.Parameter
    cluster_bias: nn.Parameter
    bias: nn.Parameter

    def __init__(self, trunk: Architecture, vocab_size: int) -> None:
        super().__init__()
        self.cutoffs, self.bounds = trunk.cutoffs, bounds(trunk.cutoffs, vocab_size)
        self.narrows = trunk.token_embedding.div_val > 1
        self.project: nn.Module = nn.Identity()  # unless the loss declares it

    def list_fused(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the biases of the clusters.

        They are separate if the clusters have separate tables (authors' code).
        """
        return {"bias": tuple(stop - start for start, stop in self.bounds)} if self.narrows else {}

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: tuple[Tensor, ...]) -> Score:
        feature_MD, target_M = tokens_at(hidden, batch["targets_at"]), batch["targets"]
        tables, projections = table[: len(self.bounds)], table[len(self.bounds) :]
        frequent, real_M = self.cutoffs[0], real_targets(batch)
        cluster_M = torch.bucketize(target_M, constant(self.cutoffs, target_M.device), right=True)
        loss, right_M, _ = linear_cross_entropy(
            self.project(feature_MD),
            torch.cat([tables[0], self.clusters]),
            torch.cat([self.bias[:frequent], self.cluster_bias]),
            torch.where(cluster_M == 0, target_M, frequent - 1 + cluster_M),
            real_M=real_M,
        )
        correct = (right_M & (cluster_M == 0)).sum()
        on_host_M = host_of(batch, "targets")
        for cluster, (start, stop) in enumerate(self.bounds[1:], start=1):
            at_R = copy_to_device(np.flatnonzero((on_host_M >= start) & (on_host_M < stop)), target_M.device)
            feature = feature_MD[at_R]
            if projections:
                feature = F.linear(feature, projections[cluster].T)
            part, right_R, _ = linear_cross_entropy(
                feature, tables[cluster], self.bias[start:stop], target_M[at_R] - start
            )
            loss, correct = loss + part, correct + (right_M[at_R] & right_R).sum()
        return Score(loss, count_real(target_M, real_M), correct)

    def next_scores(self, hidden_MD: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        """Log-probabilities float32 [M, V] of all tokens; those of rare tokens include their cluster."""
        tables, projections = table[: len(self.bounds)], table[len(self.bounds) :]
        frequent = self.cutoffs[0]
        weight, bias = torch.cat([tables[0], self.clusters]), torch.cat([self.bias[:frequent], self.cluster_bias])
        first_MC = F.linear(self.project(hidden_MD), weight, bias).float().log_softmax(-1)
        parts = [first_MC[:, :frequent]]
        for cluster, (start, stop) in enumerate(self.bounds[1:], start=1):
            feature = F.linear(hidden_MD, projections[cluster].T) if projections else hidden_MD
            within = F.linear(feature, tables[cluster], self.bias[start:stop]).float().log_softmax(-1)
            parts.append(first_MC[:, frequent + cluster - 1, None] + within)
        return torch.cat(parts, dim=1)

    @torch.no_grad()
    def log_p(self, hidden: Tensor, batch: Mapping[str, Tensor], table: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Log-probability float32 [M] of each target, and bool [M]: whether its cluster and the token in it have the
        highest scores."""
        target_M = batch["targets"]
        feature_MD, one_each = tokens_at(hidden, batch["targets_at"]), torch.arange(len(target_M), device=hidden.device)
        tables, projections = table[: len(self.bounds)], table[len(self.bounds) :]
        frequent = self.cutoffs[0]
        cluster_M = torch.bucketize(target_M, constant(self.cutoffs, target_M.device), right=True)
        log_p_M, right_M = token_log_p(
            self.project(feature_MD),
            torch.cat([tables[0], self.clusters]),
            torch.cat([self.bias[:frequent], self.cluster_bias]),
            torch.where(cluster_M == 0, target_M, frequent - 1 + cluster_M),
            one_each,
        )
        for cluster, (start, stop) in enumerate(self.bounds[1:], start=1):
            at_R = (cluster_M == cluster).nonzero().squeeze(1)
            feature = F.linear(feature_MD[at_R], projections[cluster].T) if projections else feature_MD[at_R]
            bias, one_each = self.bias[start:stop], torch.arange(len(at_R), device=hidden.device)
            inside_R, best_R = token_log_p(feature, tables[cluster], bias, target_M[at_R] - start, one_each)
            log_p_M[at_R] += inside_R
            right_M[at_R] &= best_R
        return log_p_M, right_M
