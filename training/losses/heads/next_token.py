"""The head for causal language modeling."""

import torch
from torch import nn

from training.losses.heads.cross_entropy import Rule
from training.losses.heads.token_head import TokenHead


class NextTokenHead(TokenHead):
    """The tied token table (GPT-2 2), optionally with a bias per token (XLM)."""

    def __init__(self, vocab_size: int, bias: bool, rule: Rule | None = None) -> None:
        super().__init__(rule)
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None
