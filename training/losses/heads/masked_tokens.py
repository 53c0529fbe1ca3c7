"""The head for masked language modeling, in BERT-like models and in the generator of ELECTRA."""

import torch
from torch import Tensor, nn

from training.architectures import apply_activation
from training.losses.heads.cross_entropy import Rule
from training.losses.heads.token_head import TokenHead
from training.specs import Architecture


class MaskedTokensHead(TokenHead):
    """Tied token table with a bias per token, after a linear layer, an activation and a norm (BERT 3.1, task 1).

    With `transform` False, the table follows the hidden states directly.
    """

    bias: nn.Parameter

    def __init__(self, trunk: Architecture, vocab_size: int, transform: bool = True, rule: Rule | None = None) -> None:
        super().__init__(rule)
        self.activation = trunk.activation
        self.transform = nn.Linear(trunk.hidden_size, trunk.table_width) if transform else None
        self.norm = nn.LayerNorm(trunk.table_width, eps=trunk.norm_eps) if transform else None
        self.bias = nn.Parameter(torch.empty(vocab_size))

    def features(self, hidden_MD: Tensor) -> Tensor:
        if self.transform is None or self.norm is None:
            return hidden_MD
        return self.norm(apply_activation(self.transform(hidden_MD), self.activation))
