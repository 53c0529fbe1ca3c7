"""Heads and losses. A loss is a sum and a count: the loop divides once, by the count over workers and micro-batches.

A head sees the trunk's hidden states, the batch and the token table, which it borrows from the trunk (tied weights). It
picks the tokens that are asked before anything is projected to the vocabulary.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.schema import IGNORE, Batch
from training import span_boundary
from training.adversarial import AdversarialHead
from training.cross_entropy import token_score, tokens_at
from training.masked_tokens import MaskedTokensHead
from training.replaced import OriginalHead, ReplacedHead
from training.score import Score
from training.span_boundary import SpanBoundaryHead
from training.spec import (
    Adversarial,
    Decoder,
    Loss,
    MaskedTokens,
    NextToken,
    PairLabel,
    Replaced,
    SpanBoundary,
    Trunk,
    Twin,
)
from training.trunks.adaptive import AdaptiveHead

__all__ = ["count", "head", "names_tokens"]


def count(loss: Loss, batch: Batch | Mapping[str, Tensor]) -> int:
    """Number of targets of `loss` in a batch of arrays or tensors, known before the forward pass.

    >>> import numpy as np
    >>> count(MaskedTokens(), {"targets": np.array([7, 8, 9])})
    3
    """
    match loss:
        case PairLabel():
            return int((batch["pair_label"] != IGNORE).sum())
        case SpanBoundary():
            return span_boundary.count(loss, batch)
        case Replaced(at="all"):
            return int(batch["lengths"].sum())
        case _:
            return len(batch["targets"])


def names_tokens(loss: Loss) -> bool:
    """Whether the answers of a loss are tokens, so that its targets are projected to the vocabulary."""
    return not isinstance(loss, PairLabel) and not (isinstance(loss, Replaced) and loss.asks == "replaced")


def head(loss: Loss, trunk: Trunk, vocab_size: int) -> nn.Module:
    """The head that computes `loss` on top of `trunk`."""
    match loss:
        case MaskedTokens():
            return MaskedTokensHead(loss, trunk.generator_net if isinstance(trunk, Twin) else trunk, vocab_size)
        case Adversarial():
            assert isinstance(trunk, Twin)
            return AdversarialHead(trunk.generator_net, vocab_size)
        case PairLabel():
            return PairLabelHead(trunk)
        case NextToken() if isinstance(trunk, Decoder) and trunk.cutoffs:
            return AdaptiveHead(trunk, vocab_size)
        case NextToken():
            return NextTokenHead(loss, trunk, vocab_size)
        case SpanBoundary():
            return SpanBoundaryHead(loss, trunk, vocab_size)
        case Replaced(asks="original", at="chosen"):
            return MaskedTokensHead(MaskedTokens(), trunk, vocab_size)
        case Replaced(asks="original"):
            return OriginalHead(trunk, vocab_size)
        case Replaced():
            return ReplacedHead(loss, trunk)


class NextTokenHead(nn.Module):
    """The tied table and nothing else (GPT-2 2), or a bias per token too (XLM)."""

    def __init__(self, loss: NextToken, trunk: Trunk, vocab_size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(vocab_size)) if loss.bias else None

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        return token_score(tokens_at(hidden, batch["targets_at"]), table_VD, self.bias, batch["targets"])


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
        return Score(loss, int((label_B != IGNORE).sum()), (logits_B2.argmax(-1) == label_B).sum())
