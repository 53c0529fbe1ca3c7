"""Heads and losses. A loss is a sum and a count: the loop divides once, by the count over workers and micro-batches.

A head sees the trunk's hidden states, the batch and the token table, which it borrows from the trunk (tied weights). It
picks the tokens that are asked before anything is projected to the vocabulary.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from preprocessing.schema import IGNORE, Batch
from training.losses import Adversarial, Loss, MaskedTokens, NextToken, PairLabel, Replaced, SpanBoundary
from training.losses.heads import span_boundary
from training.losses.heads.adaptive_softmax import AdaptiveHead
from training.losses.heads.adversarial import AdversarialHead
from training.losses.heads.masked_tokens import MaskedTokensHead
from training.losses.heads.next_token import NextTokenHead
from training.losses.heads.pair_label import PairLabelHead
from training.losses.heads.replaced import OriginalHead, ReplacedHead
from training.losses.heads.span_boundary import SpanBoundaryHead
from training.specs import Decoder, Trunk, Twin


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
