"""Losses: the prediction targets of a model. Each loss is a sum and a count.

Read part.py (the facts of a loss) first, then masked_tokens.py. Each loss has one file here, its head in heads/, and
one line in the union below, which is the registry. This package does not import torch; only heads/ does.
"""

from training.losses.adversarial import Adversarial
from training.losses.compatibility import check_losses
from training.losses.masked_tokens import MaskedTokens
from training.losses.next_token import NextToken
from training.losses.part import Arrays, LogitsFor, LossContext, LossPart, has_token_bias, has_transform
from training.losses.replaced_token_detection import ReplacedTokenDetection
from training.losses.sentence_pair import SentencePair
from training.losses.span_boundary import SpanBoundary

__all__ = [
    "Adversarial",
    "Arrays",
    "LogitsFor",
    "Loss",
    "LossContext",
    "LossPart",
    "MaskedTokens",
    "NextToken",
    "ReplacedTokenDetection",
    "SentencePair",
    "SpanBoundary",
    "check_losses",
    "has_token_bias",
    "has_transform",
    "plain_loss",
]

Loss = MaskedTokens | SentencePair | NextToken | SpanBoundary | ReplacedTokenDetection | Adversarial


def plain_loss(logits_for: LogitsFor) -> Loss:
    """The loss with the plain head that predicts tokens in this way, for a model that lacks one.

    >>> plain_loss("causal").kind, plain_loss("masked").kind
    ('next_token', 'masked_tokens')
    """
    return NextToken() if logits_for == "causal" else MaskedTokens()


def _has_every_fact(loss: Loss) -> LossPart:
    return loss  # the type checker reports a member that lacks a fact
