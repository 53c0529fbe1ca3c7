"""Fine-tuning targets for generation: the tokens of a target text, given a source. This module does not import
torch.

The targets have the kinds and heads of the pretraining losses NextToken and MaskedTokens. So they start from the
pretrained heads, and generation can use the fine-tuned weights.
"""

from typing import TYPE_CHECKING, Literal

from preprocessing.spec import key, require, spec
from training.losses import Arrays, Loss, MaskedTokens, NextToken
from training.specs import Architecture

if TYPE_CHECKING:
    from torch import nn


@spec
class TargetTokens:
    """Next token at each position with a label, with the tied table (arXiv:1706.03762, 5.4)."""

    kind: Literal["next_token"] = "next_token"
    bias: bool = key(default=False, doc="Whether the output layer has a bias per token, as in the pretraining loss.")
    smoothing: float = key(default=0.0, doc="Label smoothing: the fraction that is spread over all tokens.")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "a fraction of at least 0 and below 1")

    def count(self, batch: Arrays) -> int:
        return len(batch["targets"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        require(not (self.smoothing and trunk.cutoffs), "smoothing", self.smoothing, "0 with an adaptive softmax")
        return _build_head(NextToken(bias=self.bias), trunk, rows, self.smoothing)


@spec
class MaskedTargetTokens:
    """Masked target tokens, for a model that reads and generates with one stack (UniLM 2.4).

    UniLM is arXiv:1905.03197.
    """

    kind: Literal["masked_tokens"] = "masked_tokens"
    transform: bool = key(default=True, doc="Whether the head has a transform, as in the pretraining loss.")
    smoothing: float = key(default=0.0, doc="Label smoothing: the fraction that is spread over all tokens.")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "a fraction of at least 0 and below 1")

    def count(self, batch: Arrays) -> int:
        return len(batch["targets"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        return _build_head(MaskedTokens(transform=self.transform), trunk, rows, self.smoothing)


def _build_head(loss: Loss, trunk: Architecture, rows: int, smoothing: float) -> "nn.Module":
    """The head of a pretraining loss, with smoothed labels."""
    from training.losses.heads import TokenHead, build_head, smooth_labels

    head = build_head(loss, trunk, rows)
    if smoothing and isinstance(head, TokenHead):
        head.rule = smooth_labels(smoothing)
    return head
