"""Heads that compute the losses in torch. A head gets hidden states, a batch and the token table, and returns a Score.

Read token_head.py first, then cross_entropy.py, which all heads share, and rules.py, for a loss of your own. Each loss
constructs its head (`LossPart.head`), and from_loss.py adds the modules that the loss declares.
"""

from training.losses.heads.adaptive_softmax import AdaptiveHead
from training.losses.heads.adversarial import AdversarialHead
from training.losses.heads.cross_entropy import Rule, tokens_at
from training.losses.heads.from_loss import build_head
from training.losses.heads.masked_tokens import MaskedTokensHead
from training.losses.heads.replaced_token_detection import ChosenOriginalHead, OriginalHead, ReplacedTokenDetectionHead
from training.losses.heads.rules import add_z_loss, smooth_labels
from training.losses.heads.sentence_pair import SentencePairHead
from training.losses.heads.span_boundary import SpanBoundaryHead, boundary_targets
from training.losses.heads.token_head import TokenHead

__all__ = [
    "AdaptiveHead",
    "AdversarialHead",
    "ChosenOriginalHead",
    "MaskedTokensHead",
    "OriginalHead",
    "ReplacedTokenDetectionHead",
    "Rule",
    "SentencePairHead",
    "SpanBoundaryHead",
    "TokenHead",
    "add_z_loss",
    "boundary_targets",
    "build_head",
    "smooth_labels",
    "tokens_at",
]
