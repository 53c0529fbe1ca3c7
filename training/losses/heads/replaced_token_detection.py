"""Heads of ELECTRA's discriminator (arXiv:2003.10555). They detect replaced tokens, or predict the originals (3.5).

The batch is the input of the discriminator: `input_ids` has the replacements, `targets_at` and `targets` the original
tokens. A replacement that equals the original counts as not replaced. The metric `replaced_share` of each head is the
number of replaced tokens, which the loop divides by the number of targets of the loss.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.schema import IGNORE
from training.architectures import Table, apply_activation, host_of, whole
from training.losses.heads.cross_entropy import count_real, real_targets, sum_real, tokens_at
from training.losses.heads.masked_tokens import MaskedTokensHead
from training.score import Score
from training.specs import Activation


class ReplacedTokenDetectionHead(nn.Module):
    """Linear layer, activation, and a linear layer to one logit, which is positive for replaced tokens.

    The layers are those of google-research/electra (modeling). With `add_first_state`, they read the norm of the sum of
    a token's state and that of the first token of its sequence (microsoft/DeBERTa, LMMaskPredictionHead).
    """

    norm: nn.Module | None
    transform: nn.Module
    classify: nn.Module

    def __init__(self, activation: Activation, at: Literal["all", "masked"]) -> None:
        super().__init__()
        self.at, self.activation, self.norm = at, activation, None

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [...] of hidden states [..., D]."""
        return self.classify(apply_activation(self.transform(hidden), self.activation)).squeeze(-1)

    def states_at(self, hidden: Tensor, at_M: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The states [M, D] that the layers read, at flat positions."""
        hidden_MD = tokens_at(hidden, at_M)
        if self.norm is None:
            return hidden_MD
        # the gradient of an embedding has a fixed order of summation, unlike that of an index
        first_MD = F.embedding(find_sequences(at_M, batch), tokens_at(hidden, batch["first_at"]))
        states: Tensor = self.norm(hidden_MD + first_MD)
        return states

    @torch.no_grad()
    def surprise(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The loss [M], in nats, at each of `targets_at`."""
        logit_M = self.logits(self.states_at(hidden, batch["targets_at"], batch)).float()
        return F.binary_cross_entropy_with_logits(logit_M, is_replaced(batch).float(), reduction="none")

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        at_M = select_positions(batch, self.at)
        logit_M = self.logits(self.states_at(hidden, at_M, batch)).float()
        replaced_M = (batch["input_ids"].flatten() != original_ids(batch))[at_M]
        real_M, right_M = real_positions(batch, self.at), (logit_M > 0) == replaced_M
        if real_M is None:
            loss = F.binary_cross_entropy_with_logits(logit_M, replaced_M.float(), reduction="sum")
        else:
            loss_M = F.binary_cross_entropy_with_logits(logit_M, replaced_M.float(), reduction="none")
            loss, right_M = sum_real(loss_M, real_M), right_M & real_M
        return Score(loss, count_real(at_M, real_M), right_M.sum(), count_replaced(batch))


class OriginalHead(nn.Module):
    """Prediction of all original tokens, by a softmax over the vocabulary or a copy of the input (3.5, all-tokens MLM).

    P(token) = copy * [token is the input] + (1 - copy) * softmax(token), where `copy` is a sigmoid. This head is for an
    ablation: the logits of all tokens are in memory at once.
    """

    copy: nn.Module

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.tokens = MaskedTokensHead(activation)

    def log_p(self, hidden_MD: Tensor, input_M: Tensor, table_VD: Table) -> Tensor:
        """Log-probabilities [M, V] of the original tokens; `input_M` are the input tokens."""
        logits_MV = F.linear(self.tokens.features(hidden_MD), whole(table_VD), self.tokens.bias).float()
        copy_M1 = self.copy(hidden_MD).float()
        log_p_MV = F.logsigmoid(-copy_M1) + logits_MV.log_softmax(-1)
        input_M1 = input_M[:, None]
        return log_p_MV.scatter(1, input_M1, torch.logaddexp(F.logsigmoid(copy_M1), log_p_MV.gather(1, input_M1)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        at_M = select_positions(batch, "all")
        target_M = original_ids(batch)[at_M]
        log_p_MV = self.log_p(tokens_at(hidden, at_M), batch["input_ids"].flatten()[at_M], table_VD)
        real_M, right_M = real_positions(batch, "all"), log_p_MV.argmax(-1) == target_M
        if real_M is not None:
            target_M, right_M = target_M.where(real_M, IGNORE), right_M & real_M
        loss = F.nll_loss(log_p_MV, target_M, reduction="sum", ignore_index=IGNORE)
        return Score(loss, count_real(at_M, real_M), right_M.sum(), count_replaced(batch))


class ChosenOriginalHead(MaskedTokensHead):
    """Prediction of the original tokens at selected positions (3.5, Replace MLM)."""

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        return super().forward(hidden, batch, table_VD)._replace(metrics=count_replaced(batch))


def original_ids(batch: Mapping[str, Tensor]) -> Tensor:
    """The token IDs [B * S] or [T] of a batch, with the original tokens at `targets_at`."""
    return batch["input_ids"].flatten().scatter(0, batch["targets_at"], batch["targets"].clamp(min=0))


def find_sequences(at_M: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The index [M] of the sequence at each flat position.

    >>> batch = {"input_ids": torch.zeros(5), "lengths": torch.tensor([2, 3])}
    >>> find_sequences(torch.tensor([1, 2, 4]), batch)
    tensor([0, 1, 1])
    """
    if batch["input_ids"].ndim == 2:
        return at_M // batch["input_ids"].shape[1]
    return torch.searchsorted(batch["lengths"].to(at_M.device).cumsum(0), at_M, right=True)


def is_replaced(batch: Mapping[str, Tensor]) -> Tensor:
    """Bool [M]: whether the token at each of `targets_at` differs from the original token."""
    differs_M = batch["input_ids"].flatten()[batch["targets_at"]] != batch["targets"]
    real_M = real_targets(batch)
    return differs_M if real_M is None else differs_M & real_M


def count_replaced(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The metric `replaced_share`: the number of replaced tokens, an int64 scalar."""
    return {"replaced_share": is_replaced(batch).sum()}


def real_positions(batch: Mapping[str, Tensor], at: Literal["all", "masked"]) -> Tensor | None:
    """Bool [M]: whether each of `select_positions` is real, in a batch of a fixed shape; None: all are."""
    if at == "masked" or "real_tokens" not in batch:
        return real_targets(batch)
    return torch.arange(batch["input_ids"].numel(), device=batch["input_ids"].device) < batch["real_tokens"]


def select_positions(batch: Mapping[str, Tensor], at: Literal["all", "masked"]) -> Tensor:
    """Flat positions of all tokens of a batch without padding, or of the selected tokens."""
    ids, lengths_B = batch["input_ids"], batch["lengths"]
    if at == "masked":
        return batch["targets_at"]
    if ids.ndim == 1:
        return torch.arange(len(ids), device=ids.device)
    count = int(host_of(batch, "lengths").sum())
    inside_BS = torch.arange(ids.shape[1], device=ids.device) < lengths_B.to(ids.device)[:, None]
    return inside_BS.flatten().nonzero_static(size=count).squeeze(1)
