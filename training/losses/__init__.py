"""Losses: what the net is trained to predict, a sum and a count each. No torch in here; the heads are in heads/.

Read masked_tokens.py first. The union is the registry.
"""

from training.losses.adversarial import Adversarial
from training.losses.fit import check_losses
from training.losses.masked_tokens import MaskedTokens
from training.losses.next_token import NextToken
from training.losses.pair_label import PairLabel
from training.losses.replaced import Replaced
from training.losses.span_boundary import SpanBoundary

__all__ = ["Adversarial", "Loss", "MaskedTokens", "NextToken", "PairLabel", "Replaced", "SpanBoundary", "check_losses"]

Loss = MaskedTokens | PairLabel | NextToken | SpanBoundary | Replaced | Adversarial
