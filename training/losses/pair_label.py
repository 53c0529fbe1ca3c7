"""The label of a pair: next sentence prediction, sentence order prediction."""

from typing import ClassVar, Literal

from preprocessing.spec import spec


@spec
class PairLabel:
    """Two-way label of a pair from the pooled first token (BERT 3.1, task 2; ALBERT 3.1). 1 = not the next segment."""

    kind: Literal["pair_label"] = "pair_label"
    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    visibility: ClassVar[str] = "full"
