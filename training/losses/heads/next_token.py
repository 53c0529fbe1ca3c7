"""The head for causal language modeling."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.architectures import Table, whole
from training.losses.heads.cross_entropy import token_log_p, token_score, tokens_at
from training.score import Score


class NextTokenHead(nn.Module):
    """The tied token table (GPT-2 2), optionally with a bias per token (XLM)."""

    def __init__(self, vocab_size: int, bias: bool) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        return token_score(tokens_at(hidden, batch["targets_at"]), table_VD, self.bias, batch["targets"])

    def log_p(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> tuple[Tensor, Tensor]:
        """Log-probability float32 [M] of each target, and bool [M]: whether it has the highest score."""
        at_U, of_M = batch["targets_at"].unique(return_inverse=True)
        return token_log_p(tokens_at(hidden, at_U), whole(table_VD), self.bias, batch["targets"], of_M)
