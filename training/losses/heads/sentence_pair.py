"""The head for the label of a segment pair."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.schema import IGNORE
from training.architectures import Table, host_of
from training.losses.heads.cross_entropy import tokens_at
from training.score import Score


class SentencePairHead(nn.Module):
    """Pooler (linear and tanh) of the first token, then a two-way classifier (BERT 3.1, task 2)."""

    pooler: nn.Module
    classify: nn.Module

    def logits(self, hidden_BD: Tensor) -> Tensor:
        """Logits of the labels 0 and 1."""
        return self.classify(torch.tanh(self.pooler(hidden_BD)))

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Table) -> Score:
        logits_B2, label_B = self.logits(tokens_at(hidden, batch["first_at"])), batch["next_sentence_label"]
        count = int((host_of(batch, "next_sentence_label") != IGNORE).sum())
        label_B = label_B.to(logits_B2.device, non_blocking=True)
        loss = F.cross_entropy(logits_B2.float(), label_B, reduction="sum")
        return Score(loss, count, (logits_B2.argmax(-1) == label_B).sum())
