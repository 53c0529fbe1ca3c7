"""Each token predicts the next (GPT)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.choose import Choose
from preprocessing.schema import Row
from preprocessing.spec import spec
from preprocessing.vocab import Vocab


@spec
class Shift:
    """Each token is asked for the next one (GPT); a row of n + 1 tokens gives n questions."""

    kind: Literal["shift"] = "shift"

    needs: ClassVar[frozenset[str]] = frozenset({"ids"})
    emits: ClassVar[frozenset[str]] = frozenset({"labels"})
    specials: ClassVar[tuple[str, ...]] = ()
    lookahead: ClassVar[int] = 1

    def raw_length(self, length: int, choose: Choose) -> int:
        """Tokens of a row of which `length` are seen."""
        return length + self.lookahead

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        shortened = {name: column[:-1] if np.ndim(column) else column for name, column in row.items()}
        return shortened | {"labels": row["ids"][1:]}
