"""What a head reads of a trunk: its last states, or states of several layers of a frozen one."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.architectures import Backbone
from training.finetuning.tuning import FOUR, Features


class FeatureReader(nn.Module):
    """States of a trunk for a head, [T, width]. Where the trunk is frozen it has no dropout and no gradient.

    last: its last states; last_four: those of the last four layers side by side (BERT 5.3); mix: the mean of all layers
    and of what the first one reads, by weights that are learned, times a factor that is (ELMo, arXiv:1802.05365, 3.2).
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
        """All layers alike, and the factor 1."""
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
