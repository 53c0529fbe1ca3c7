"""ALiBi (arXiv:2108.12409): a penalty on scores that grows linearly with the distance."""

from typing import ClassVar, Literal

from preprocessing.spec import AtMost, ScaleOverrides, key, spec
from training.specs.position_embedding import NoTable, check_rows


@spec
class AlibiPositions(NoTable):
    """Scores that decrease linearly with the distance of their tokens (ALiBi, arXiv:2108.12409, 3).

    A bidirectional encoder has the same penalty on both sides (MosaicBERT, arXiv:2312.17482, 2.1).
    """

    kind: Literal["alibi"] = "alibi"
    max_position_embeddings: int = key(default=2048, doc="Maximum sequence length in tokens.")

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"max_position_embeddings": AtMost(512)},
        "small": {"max_position_embeddings": AtMost(512)},
    }

    def __post_init__(self) -> None:
        check_rows(self.max_position_embeddings)

    @property
    def longest(self) -> int:
        return self.max_position_embeddings

    def describe(self) -> str:
        return "linear biases by distance"


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Penalty per token of distance for each head: 2 ** (-8 i / heads) for head i, counted from 1.

    If the number of heads is no power of two, every second slope of the next power follows (authors' code).

    >>> alibi_slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> alibi_slopes(3)
    (0.0625, 0.00390625, 0.25)
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    more = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return (*slopes, *more[: heads - power])
