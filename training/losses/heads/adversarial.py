"""The adversarial generator of ELECTRA (arXiv:2003.10555, 3.2 and appendix F).

The errors of the discriminator are its reward. Samples are discrete and have no gradient, so the head uses REINFORCE.
The reward of a sample is the loss of the discriminator at its position, minus a baseline. Samples at other positions
are constant, which reduces the variance.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.architectures import Table, whole
from training.losses.heads.cross_entropy import count_real, real_targets, sum_real, tokens_at
from training.losses.heads.masked_tokens import MaskedTokensHead
from training.score import Score
from training.specs import Activation


class AdversarialHead(nn.Module):
    """The head that samples, and a baseline.

    The baseline predicts the confidence of the discriminator from the hidden states of the generator. It is trained by
    cross-entropy; its gradient changes no other weight. Only the gradient of the loss has a meaning: its value need not
    decrease. This head is for an ablation: the logits of all targets are in memory at once.
    """

    baseline: nn.Module

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.tokens = MaskedTokensHead(activation)

    def sample(
        self,
        hidden: Tensor,
        batch: Mapping[str, Tensor],
        table_VD: Table,
        barred_M: Tensor | None,
        uniform_M: Tensor | None = None,
    ) -> Tensor:
        """Tokens [M] sampled at `targets_at`; see MaskedTokensHead.sample."""
        return self.tokens.sample(hidden, batch, table_VD, barred_M, uniform_M)

    def forward(
        self,
        hidden: Tensor,
        batch: Mapping[str, Tensor],
        table_VD: Table,
        sampled_M: Tensor,
        reward_M: Tensor,
    ) -> Score:
        """Score of the samples at `targets_at`. `reward_M` is the loss of the discriminator there, without gradient.

        The reward is in nats. A sample is correct if it is the original token.
        """
        hidden_MD = tokens_at(hidden, batch["targets_at"])
        logits_MV = F.linear(self.tokens.features(hidden_MD), whole(table_VD), self.tokens.bias).float()
        log_p_M = logits_MV.log_softmax(-1).gather(1, sampled_M[:, None]).squeeze(1)
        sure_M = self.baseline(hidden_MD.detach()).float().squeeze(1)
        advantage_M = reward_M + F.logsigmoid(sure_M.detach())
        fitted_M = F.binary_cross_entropy_with_logits(sure_M, torch.exp(-reward_M), reduction="none")
        real_M, right_M = real_targets(batch), sampled_M == batch["targets"]
        loss = sum_real(fitted_M, real_M) - sum_real(advantage_M * log_p_M, real_M)
        return Score(loss, count_real(batch["targets"], real_M), right_M.sum())
