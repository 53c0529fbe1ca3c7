"""Fine-tuning targets for generation: the tokens of a target text, given a source. This module does not import
torch.

The targets have the kinds and heads of the pretraining losses NextToken and MaskedTokens. So they start from the
pretrained heads, and generation can use the fine-tuned weights.
"""

from typing import TYPE_CHECKING, Literal

from preprocessing.spec import require, spec
from training.losses import Arrays, MaskedTokens, NextToken
from training.specs import Architecture

if TYPE_CHECKING:
    from torch import nn


@spec
class TargetTokens:
    """The next token of each place that has a label, by the tied table (arXiv:1706.03762, 5.4)."""

    kind: Literal["next_token"] = "next_token"
    bias: bool = False  # one for each token, as its loss of pretraining had
    smoothing: float = 0.0  # share of each target that is spread over all tokens
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "a fraction from 0 up to (not including) 1")

    def count(self, batch: Arrays) -> int:
        return len(batch["targets"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        if not self.smoothing or trunk.cutoffs:
            require(not self.smoothing, "smoothing", self.smoothing, "0 with an adaptive softmax")
            return NextToken(bias=self.bias).head(trunk, rows)
        from training.finetuning.heads_text import SmoothedNextToken

        return SmoothedNextToken(rows, self.bias, self.smoothing)


@spec
class MaskedTargetTokens:
    """The tokens that are masked in a target, by a net that reads and writes in one (UniLM, arXiv:1905.03197, 2.4)."""

    kind: Literal["masked_tokens"] = "masked_tokens"
    transform: bool = True  # as its loss of pretraining had
    smoothing: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "a fraction from 0 up to (not including) 1")

    def count(self, batch: Arrays) -> int:
        return len(batch["targets"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        if not self.smoothing:
            return MaskedTokens(transform=self.transform).head(trunk, rows)
        from training.finetuning.heads_text import SmoothedMaskedTokens

        return SmoothedMaskedTokens(trunk, rows, self.transform, self.smoothing)
