"""No masking: left-to-right models."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.schema import Ints, Row
from preprocessing.spec import spec


@spec
class Nothing:
    """No token is chosen: left-to-right models ask about every next token."""

    kind: Literal["nothing"] = "nothing"

    needs: ClassVar[frozenset[str]] = frozenset()
    emits: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        return np.zeros(len(row["ids"]), dtype=np.int32)
