"""No masking, for objectives that select their own targets or predict every token."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, spec


@spec
class NoMasking:
    """No masking: a left-to-right model predicts every next token."""

    kind: Literal["none"] = "none"

    required_columns: ClassVar[frozenset[str]] = frozenset()
    produced_columns: ClassVar[frozenset[str]] = frozenset()
    possible_columns: ClassVar[frozenset[str]] = frozenset()
    predicted: ClassVar[float] = 1.0
    span_mean: ClassVar[float] = 0.0
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def most_runs(self, num_tokens: int) -> int:
        return 0

    def describe(self) -> str:
        return "nothing"

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        return np.zeros(len(row["input_ids"]), dtype=np.int32)
