"""The facts that each kind of masking states about itself; rows, checks, scales and reports read them here only."""

from typing import ClassVar, Protocol

import numpy as np

from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides


class MaskingPart(Protocol):
    """A part of the union Masking: which tokens of a row are predicted."""

    produced_columns: ClassVar[frozenset[str]]
    """Columns of schema.py that it makes: `hits`, or none."""
    possible_columns: ClassVar[frozenset[str]]
    """All columns that a part of its kind produces, whatever its keys are."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a row that it reads."""

    @property
    def predicted(self) -> float:
        """Share of the tokens of a row that is predicted, on average; 1.0 where it chooses nothing."""

    @property
    def span_mean(self) -> float:
        """Tokens of a span on average, where the length of a row alone decides how many spans there are; else 0.0."""

    @property
    def required_annotations(self) -> frozenset[str]:
        """What the corpus must have besides text: {"phrases"} (the column `unit_starts`), or nothing."""

    def most_runs(self, num_tokens: int) -> int:
        """Runs of chosen tokens that a row of so many tokens can have at the most, whatever its text and the draws."""

    def describe(self) -> str:
        """What is chosen in one line: "15% of the tokens, in whole words"."""

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        """The column `hits`, int32 [S]: 0 where nothing is chosen, k in the k-th chosen unit."""
