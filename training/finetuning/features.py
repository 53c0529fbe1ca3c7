"""Inputs of a head: the last hidden states of the trunk, or states of several layers of a frozen trunk."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.architectures import Backbone
from training.finetuning.tuning import FOUR, Features


class FeatureReader(nn.Module):
    """Hidden states of a trunk for a head, [T, width]. A frozen trunk has no dropout and no gradient.

    last: the last states. last_four: the last four layers, concatenated (BERT 5.3). scalar_mix: a learned weighted
    mean of all layers and the embeddings, times a learned factor (ELMo, arXiv:1802.05365, 3.2).
    """

    def __init__(self, features: Features, layers: int, width: int) -> None:
        super().__init__()
        self.features = features
        self.side_by_side = min(FOUR, layers) if features == "last_four" else 1
        self.width = self.side_by_side * width
        self.weights = nn.Parameter(torch.empty(layers + 1)) if features == "scalar_mix" else None
        self.factor = nn.Parameter(torch.empty(1)) if features == "scalar_mix" else None

    @torch.no_grad()
    def begin(self) -> None:
        """Initialize equal layer weights and the factor 1."""
        if self.weights is not None and self.factor is not None:
            self.weights.zero_()
            self.factor.fill_(1.0)

    def forward(self, net: Backbone, batch: Mapping[str, Tensor]) -> Tensor:
        if self.features == "none":
            return net.states(batch)
        with torch.no_grad():
            states = [net.states(batch)] if self.features == "last" else net.layer_states(batch)
        if self.weights is not None and self.factor is not None:
            return self.factor * torch.einsum("l,l...->...", self.weights.softmax(0), torch.stack(states))
        return torch.cat(states[-self.side_by_side :], dim=-1)
