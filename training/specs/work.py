"""The work of a batch: what its FLOPs depend on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchWork:
    """How many tokens, pairs and targets a batch has, over all workers; padding counts nothing."""

    tokens: int
    squares: int  # sum over the rows of tokens squared: pairs of tokens
    targets: int  # rows that are projected to the vocabulary
    source_tokens: int = 0  # what an encoder reads while the others are its decoder's
    source_squares: int = 0
    crossed: int = 0  # sum over the rows of tokens times source tokens

    @property
    def read(self) -> int:
        """Tokens that the model reads."""
        return self.tokens + self.source_tokens

    @property
    def length(self) -> float:
        """Tokens of a row: those of each where all are alike, else the mean over the tokens."""
        return self.squares / max(1, self.tokens)

    @property
    def rows(self) -> float:
        return self.tokens / max(1.0, self.length)
