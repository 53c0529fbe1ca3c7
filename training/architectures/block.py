"""A Transformer block: sublayers with residuals and norms."""

from torch import Tensor, nn

from training.architectures.dropout import Dropout
from training.architectures.kinds import make_feed_forward
from training.architectures.layout import BatchLayout
from training.architectures.made import make_norm
from training.specs import Stack


class TransformerBlock(nn.Module):
    """Attention, cross-attention in a decoder of a source, then feed-forward, each with a residual.

    It is x + f(norm(x)) for pre-norm, and norm(x + f(x)) for post-norm. With parallel residuals it is
    x + attention(norm(x)) + feed_forward(norm(x)), where the norms may be one (GPT-J).
    """

    def __init__(
        self, trunk: Stack, attention: nn.Module, cross: nn.Module | None = None, *, is_normed: bool = False
    ) -> None:
        """`is_normed`: the states below are normalized, so that the first sublayer has no norm."""
        super().__init__()
        parallel = getattr(trunk, "parallel_residual", "none")
        self.norm_first, self.is_parallel = trunk.norm_position == "pre", parallel != "none"
        self.attention = attention
        self.attention_norm = nn.Identity() if is_normed else make_norm(trunk.norm("attention_norm"))
        self.cross = cross
        self.cross_norm = nn.Identity() if cross is None else make_norm(trunk.norm("cross_norm"))
        self.feed_forward = make_feed_forward(trunk.feed_forward_layer)
        one_norm = parallel == "one_norm"
        self.feed_forward_norm = None if one_norm else make_norm(trunk.norm("feed_forward_norm"))
        self.dropout = Dropout(trunk.hidden_dropout)

    def forward(self, x: Tensor, rows: BatchLayout, source: tuple[Tensor, BatchLayout] | None = None) -> Tensor:
        """States after the block. Cross-attention reads `source`: the encoder's states and their layout."""
        if self.is_parallel:
            y = self.attention_norm(x)
            z = y if self.feed_forward_norm is None else self.feed_forward_norm(x)
            return x + self.dropout(self.attention(y, rows)) + self.dropout(self.feed_forward(z))
        assert self.feed_forward_norm is not None
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), rows))
            if self.cross is not None and source is not None:
                x = x + self.dropout(self.cross(self.cross_norm(x), rows, *source))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rows)))
        if self.cross is not None and source is not None:
            x = self.cross_norm(x + self.dropout(self.cross(x, rows, *source)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
