"""The head for masked language modeling, in BERT-like models and in the generator of ELECTRA."""

from torch import Tensor, nn

from training.architectures import apply_activation
from training.losses.heads.cross_entropy import Rule
from training.losses.heads.token_head import TokenHead
from training.specs import Activation


class MaskedTokensHead(TokenHead):
    """Tied token table with a bias per token, after a linear layer, an activation and a norm (BERT 3.1, task 1).

    Without a transform among the tensors of the loss, the table follows the hidden states directly.
    """

    def __init__(self, activation: Activation, rule: Rule | None = None, z_loss: float = 0.0) -> None:
        super().__init__(rule, z_loss)
        self.activation = activation
        self.transform: nn.Module | None = None
        self.norm: nn.Module | None = None

    def features(self, hidden_MD: Tensor) -> Tensor:
        if self.transform is None or self.norm is None:
            return hidden_MD
        return self.norm(apply_activation(self.transform(hidden_MD), self.activation))
