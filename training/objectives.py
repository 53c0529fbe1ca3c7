"""Heads and losses. A loss is a sum and a count: the loop divides once, by the count over workers and micro-batches.

A head sees the trunk's hidden states, the batch and the token table, which it borrows from the trunk (tied weights). It
picks the tokens that are asked before anything is projected to the vocabulary.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from preprocessing.schema import Batch
from training.spec import Loss, MaskedTokens, NextToken, PairLabel, Trunk
from training.trunks.layers import activate

LOGITS_AT_ONCE = 1 << 23  # 32 MB of float32


class Score(NamedTuple):
    """What a head says of a batch; a tuple, since DeepSpeed's ZeRO-3 hooks find tensors in tuples and dicts only."""

    loss: Tensor  # float32 []: cross-entropy in nats, summed over the targets
    count: int  # type: ignore[assignment]  # number of targets; hides tuple.count
    correct: Tensor  # int64 []: targets that got the highest score


def count(loss: Loss, batch: Batch | Mapping[str, Tensor]) -> int:
    """Number of targets of `loss` in a batch of arrays or tensors, known before the forward pass.

    >>> import numpy as np
    >>> count(MaskedTokens(), {"targets": np.array([7, 8, 9])})
    3
    """
    return len(batch["pair_label"] if isinstance(loss, PairLabel) else batch["targets"])


def head(loss: Loss, trunk: Trunk, vocab_size: int) -> nn.Module:
    """The head that computes `loss` on top of `trunk`."""
    match loss:
        case MaskedTokens():
            return MaskedTokensHead(trunk, vocab_size)
        case PairLabel():
            return PairLabelHead(trunk)
        case NextToken():
            return NextTokenHead()


class MaskedTokensHead(nn.Module):
    """Linear, activation, norm, tied table and a bias per token (BERT 3.1, task 1)."""

    def __init__(self, trunk: Trunk, vocab_size: int) -> None:
        super().__init__()
        self.activation = trunk.activation
        self.transform = nn.Linear(trunk.width, trunk.width)
        self.norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps)
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def features(self, hidden_MD: Tensor) -> Tensor:
        """What the token table is compared with."""
        return self.norm(activate(self.transform(hidden_MD), self.activation))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        return token_score(self.features(tokens_at(hidden, batch["targets_at"])), table_VD, self.bias, batch["targets"])


class NextTokenHead(nn.Module):
    """The tied table and nothing else (GPT-2 2)."""

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        return token_score(tokens_at(hidden, batch["targets_at"]), table_VD, None, batch["targets"])


class PairLabelHead(nn.Module):
    """Pooler (linear and tanh) of the first token, then a two-way classifier (BERT 3.1, task 2)."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.pooler = nn.Linear(trunk.width, trunk.width)
        self.classify = nn.Linear(trunk.width, 2)

    def logits(self, hidden_BD: Tensor) -> Tensor:
        """Scores of the labels 0 and 1."""
        return self.classify(torch.tanh(self.pooler(hidden_BD)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        logits_B2, label_B = self.logits(tokens_at(hidden, batch["first_at"])), batch["pair_label"]
        loss = F.cross_entropy(logits_B2.float(), label_B, reduction="sum")
        return Score(loss, len(label_B), (logits_B2.argmax(-1) == label_B).sum())


def tokens_at(hidden: Tensor, at_M: Tensor) -> Tensor:
    """States [M, D] at flat positions of a batch [B, S, D] or [T, D]."""
    return hidden.flatten(0, -2).index_select(0, at_M)


def token_score(feature_MD: Tensor, table_VD: Tensor, bias_V: Tensor | None, target_M: Tensor) -> Score:
    """Score of the logits `feature @ table.T + bias`, which are never all in memory at once."""
    loss, correct = _LinearCrossEntropy.apply(feature_MD, table_VD, bias_V, target_M, torch.is_grad_enabled())
    return Score(loss, len(target_M), correct)


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear layer, summed, a slice of targets at a time; the gradient is made on the way forward.

    torch's own linear_cross_entropy sums in the precision of its input, where a bfloat16 loss is 4 % off, and does not
    say how many were right. Here the logits have the precision of the net, softmax and sums are in float32.
    """

    @staticmethod
    def forward(
        ctx: Any, feature_MD: Tensor, table_VD: Tensor, bias_V: Tensor | None, target_M: Tensor, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        num_rows = max(1, LOGITS_AT_ONCE // len(table_VD))
        loss = torch.zeros((), dtype=torch.float32, device=feature_MD.device)
        correct = torch.zeros((), dtype=torch.int64, device=feature_MD.device)
        d_feature_MD = torch.empty_like(feature_MD) if with_gradient else None
        d_table_VD = torch.zeros_like(table_VD, dtype=torch.float32) if with_gradient else None
        d_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if with_gradient and bias_V is not None else None
        for start in range(0, len(target_M), num_rows):
            rows = slice(start, start + num_rows)
            feature, target = feature_MD[rows], target_M[rows, None]
            log_p = F.linear(feature, table_VD, bias_V).float().log_softmax(-1)
            loss -= log_p.gather(1, target).sum()
            correct += (log_p.argmax(-1, keepdim=True) == target).sum()
            if d_feature_MD is None or d_table_VD is None:
                continue
            d_logits = log_p.exp_().scatter_add_(1, target, log_p.new_full(target.shape, -1.0))
            if d_bias_V is not None:
                d_bias_V += d_logits.sum(0)
            d_logits = d_logits.to(feature.dtype)
            d_feature_MD[rows] = d_logits @ table_VD
            d_table_VD += d_logits.T @ feature
        ctx.save_for_backward(d_feature_MD, d_table_VD, d_bias_V)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # autograd casts each to the precision of its tensor
        scaled = (None if gradient is None else gradient * d_loss for gradient in ctx.saved_tensors)
        return (*scaled, None, None)
