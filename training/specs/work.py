"""The work of a batch, which determines its FLOPs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchWork:
    """Numbers of tokens, pairs and targets in a batch, over all workers and without padding."""

    tokens: int
    squares: int  # sum of squared sequence lengths: pairs of tokens
    targets: int  # hidden states that are projected to the vocabulary
    source_tokens: int = 0  # tokens of the encoder, if `tokens` are those of a decoder
    source_squares: int = 0
    crossed: int = 0  # sum over the sequences of tokens times source tokens

    @property
    def read(self) -> int:
        """Tokens that the model reads."""
        return self.tokens + self.source_tokens

    @property
    def length(self) -> float:
        """Mean sequence length, weighted by tokens."""
        return self.squares / max(1, self.tokens)

    @property
    def rows(self) -> float:
        """Approximate number of sequences."""
        return self.tokens / max(1.0, self.length)
