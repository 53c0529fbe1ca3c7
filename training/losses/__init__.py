"""Losses: what the model is trained to predict, each a sum and a count. No torch in here; the heads are in heads/.

Read part.py (the facts of a loss) first, then masked_tokens.py. A loss is one file here, with its head in heads/, and
one line in the union below, which is the registry.
"""

from training.losses.adversarial import Adversarial
from training.losses.compatibility import check_losses
from training.losses.masked_tokens import MaskedTokens
from training.losses.next_token import NextToken
from training.losses.part import Arrays, LossContext, LossPart
from training.losses.replaced_token_detection import ReplacedTokenDetection
from training.losses.sentence_pair import SentencePair
from training.losses.span_boundary import SpanBoundary

__all__ = [
    "Adversarial",
    "Arrays",
    "Loss",
    "LossContext",
    "LossPart",
    "MaskedTokens",
    "NextToken",
    "ReplacedTokenDetection",
    "SentencePair",
    "SpanBoundary",
    "check_losses",
]

Loss = MaskedTokens | SentencePair | NextToken | SpanBoundary | ReplacedTokenDetection | Adversarial


def _has_every_fact(loss: Loss) -> LossPart:
    return loss  # a member without a fact is a type error here
