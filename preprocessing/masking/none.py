"""No masking: left-to-right models."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.schema import Ints, Row
from preprocessing.spec import Shrinks, spec


@spec
class NoMasking:
    """No masking: a left-to-right model predicts every next token."""

    kind: Literal["none"] = "none"

    needs: ClassVar[frozenset[str]] = frozenset()
    emits: ClassVar[frozenset[str]] = frozenset()
    can_emit: ClassVar[frozenset[str]] = frozenset()
    predicted: ClassVar[float] = 1.0
    span_mean: ClassVar[float] = 0.0
    wants: ClassVar[frozenset[str]] = frozenset()
    shrinks: ClassVar[Shrinks] = {}

    def most_runs(self, num_tokens: int) -> int:
        return 0

    def describe(self) -> str:
        return "nothing"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        return np.zeros(len(row["input_ids"]), dtype=np.int32)
