"""The head for masked language modeling, in BERT-like models and in the generator of ELECTRA."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.architectures import Table, apply_activation, whole
from training.losses.heads.cross_entropy import token_log_p, token_sample, token_score, tokens_at
from training.score import Score
from training.specs import Architecture


class MaskedTokensHead(nn.Module):
    """Tied token table with a bias per token, after a linear layer, an activation and a norm (BERT 3.1, task 1).

    With `transform` False, the table follows the hidden states directly.
    """

    def __init__(self, trunk: Architecture, vocab_size: int, transform: bool = True) -> None:
        super().__init__()
        self.activation = trunk.activation
        self.transform = nn.Linear(trunk.hidden_size, trunk.table_width) if transform else None
        self.norm = nn.LayerNorm(trunk.table_width, eps=trunk.norm_eps) if transform else None
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def features(self, hidden_MD: Tensor) -> Tensor:
        """Inputs of the token table."""
        if self.transform is None or self.norm is None:
            return hidden_MD
        return self.norm(apply_activation(self.transform(hidden_MD), self.activation))

    @torch.no_grad()
    def sample(
        self,
        hidden: Tensor,
        batch: Mapping[str, Tensor],
        table_VD: Table,
        barred_M: Tensor | None,
        uniform_M: Tensor | None = None,
    ) -> Tensor:
        """Tokens [M] sampled from the softmax at `targets_at`, except `barred_M`.

        The random numbers are `uniform_M` in [0, 1), or come from torch's global generator.
        """
        feature_MD = self.features(tokens_at(hidden, batch["targets_at"]))
        if uniform_M is None:
            uniform_M = torch.rand(len(feature_MD), device=feature_MD.device)
        return token_sample(feature_MD, table_VD, self.bias, uniform_M, barred_M)

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        return token_score(self.features(tokens_at(hidden, batch["targets_at"])), table_VD, self.bias, batch["targets"])

    def log_p(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> tuple[Tensor, Tensor]:
        """Log-probability float32 [M] of each target, and bool [M]: whether it has the highest score."""
        at_U, of_M = batch["targets_at"].unique(return_inverse=True)
        return token_log_p(self.features(tokens_at(hidden, at_U)), whole(table_VD), self.bias, batch["targets"], of_M)
