"""Losses: what the net is trained to predict, a sum and a count each. No torch in here; the heads are in heads/.

Read part.py (the facts that each loss has), then masked_tokens.py. The union is the registry: a loss is a file of its
own here, with its head in heads/, and one line in the union.
"""

from training.losses.adversarial import Adversarial
from training.losses.fit import check_losses
from training.losses.masked_tokens import MaskedTokens
from training.losses.next_token import NextToken
from training.losses.pair_label import PairLabel
from training.losses.part import Arrays, LossContext, LossPart
from training.losses.replaced import Replaced
from training.losses.span_boundary import SpanBoundary

__all__ = [
    "Adversarial",
    "Arrays",
    "Loss",
    "LossContext",
    "LossPart",
    "MaskedTokens",
    "NextToken",
    "PairLabel",
    "Replaced",
    "SpanBoundary",
    "check_losses",
]

Loss = MaskedTokens | PairLabel | NextToken | SpanBoundary | Replaced | Adversarial


def _has_every_fact(loss: Loss) -> LossPart:
    return loss  # a member without a fact is a type error here
