"""The base class of heads that predict tokens with one token table."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import Table, whole
from training.losses.heads.cross_entropy import (
    FunctionCompiler,
    Rule,
    count_real,
    linear_cross_entropy,
    real_targets,
    token_log_p,
    token_sample,
    tokens_at,
)
from training.losses.heads.rules import add_z_loss, cross_entropy
from training.score import Score


class TokenHead(nn.Module):
    """Logits are `features(hidden) @ table.T + bias`. The loss of a target is its cross-entropy, or that of a `rule`.

    With `z_loss`, the loss has that weight times log^2 Z per target, which the score reports separately (rules.py).
    There is no bias if the loss declares none. A subclass may define `features`.
    """

    bias: nn.Parameter | None
    compiler: FunctionCompiler | None = None  # compiles the losses from the logits

    def __init__(self, rule: Rule | None = None, z_loss: float = 0.0) -> None:
        super().__init__()
        self.bias, self.z_loss = None, z_loss
        self.rule = add_z_loss(z_loss, rule or cross_entropy) if z_loss else rule

    def features(self, hidden_MD: Tensor) -> Tensor:
        """Inputs [M, E] of the token table, from hidden states [M, D]."""
        return hidden_MD

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        feature_MD = self.features(tokens_at(hidden, batch["targets_at"]))
        target_M = batch["targets"]
        real_M = real_targets(batch)
        compiler = None if real_M is None else self.compiler  # only batches of a fixed shape
        loss, right_M, square = linear_cross_entropy(
            feature_MD, table_VD, self.bias, target_M, self.rule, real_M, compiler
        )
        score = Score(loss, count_real(batch["targets"], real_M), right_M.sum())
        return score._replace(z_loss=self.z_loss * square) if self.z_loss else score

    def next_scores(self, hidden_MD: Tensor, table_VD: Table) -> Tensor:
        """Logits float32 [M, V]. All of them are in memory, for the few states of a decoding step."""
        return F.linear(self.features(hidden_MD), whole(table_VD), self.bias).float()

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

    def log_p(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> tuple[Tensor, Tensor]:
        """Log-probability float32 [M] of each target, and bool [M]: whether it has the highest score."""
        at_U, of_M = batch["targets_at"].unique(return_inverse=True)
        return token_log_p(self.features(tokens_at(hidden, at_U)), whole(table_VD), self.bias, batch["targets"], of_M)
