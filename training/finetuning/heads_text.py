"""The heads of targets_text.py: pretraining heads with label smoothing (arXiv:1512.00567, 7)."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

from training.architectures import Table, whole
from training.losses.heads import MaskedTokensHead, NextTokenHead, tokens_at
from training.score import Score
from training.specs import Architecture


class SmoothedNextToken(NextTokenHead):
    """The next-token head with label smoothing: a fraction of each target is spread evenly over all tokens.

    torch and transformers do the same.
    """

    def __init__(self, vocab_size: int, bias: bool, smoothing: float) -> None:
        super().__init__(vocab_size, bias)
        self.smoothing = smoothing

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        feature_MD = tokens_at(hidden, batch["targets_at"])
        return _smooth(F.linear(feature_MD, whole(table_VD), self.bias), batch["targets"], self.smoothing)


class SmoothedMaskedTokens(MaskedTokensHead):
    """The masked-token head with label smoothing."""

    def __init__(self, trunk: Architecture, vocab_size: int, transform: bool, smoothing: float) -> None:
        super().__init__(trunk, vocab_size, transform)
        self.smoothing = smoothing

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        feature_MD = self.features(tokens_at(hidden, batch["targets_at"]))
        return _smooth(F.linear(feature_MD, whole(table_VD), self.bias), batch["targets"], self.smoothing)


def _smooth(logits_MV: Tensor, target_M: Tensor, smoothing: float) -> Score:
    loss = F.cross_entropy(logits_MV.float(), target_M, label_smoothing=smoothing, reduction="sum")
    return Score(loss, len(target_M), (logits_MV.argmax(-1) == target_M).sum())
